package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// PostgresOptions say how a PostgreSQL is started.
type PostgresOptions struct {
	// Settings are further settings, "name=value". Without any, commits survive a crash of the server but not of the
	// machine (fsync is off).
	Settings []string
}

// Postgres is a PostgreSQL cluster of our own. Its one user is postgres, without a password. Its methods may be called
// concurrently.
type Postgres struct {
	bin, dir string
	settings []string
	account  *account
	port     int

	mu      sync.Mutex
	process *process // nil before the first start
}

// StartPostgres makes a cluster in a temporary folder, starts it and returns when it takes connections. Close ends it.
func StartPostgres(o ...PostgresOptions) (*Postgres, error) {
	bin, err := findPostgres(os.Getenv("PATH"), postgresFolders)
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: bin}
	for _, options := range o {
		p.settings = append(p.settings, options.Settings...)
	}
	if p.account, err = unprivileged(); err != nil {
		return nil, err
	}
	if p.dir, err = makeDir(p.account.tempDir(), "pg"); err != nil {
		return nil, err
	}
	if err := p.create(); err != nil {
		_ = removeDir(p.dir) // the first error says more
		return nil, err
	}
	return p, nil
}

func (p *Postgres) create() error {
	if err := p.account.own(p.dir); err != nil {
		return err
	}
	_, err := run(p.program("initdb", "-D", p.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"))
	if err != nil {
		return err
	}
	return onFreePort(freePort, func(port int) error {
		p.port = port
		return p.Start()
	})
}

// NewPostgres returns the URL of a new, empty database, dropped at the end of the test. All databases lie in one cluster,
// which the test binary's first call starts. The package's TestMain must call Main.
func NewPostgres(t testing.TB) string {
	t.Helper()
	needsMain(t)
	p, err := sharedPostgres()
	if err != nil {
		fail(t, err)
	}
	name := fmt.Sprintf("test%d", databases.Add(1))
	if err := p.CreateDatabase(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.DropDatabase(name); err != nil {
			t.Error(err)
		}
	})
	return p.URL(name)
}

var databases atomic.Int64

var sharedPostgres = sync.OnceValues(func() (*Postgres, error) {
	p, err := StartPostgres()
	if err == nil {
		shared.add(p)
	}
	return p, err
})

// Addr returns host and port.
func (p *Postgres) Addr() string { return address(p.port) }

// SocketDir returns the folder of the server's Unix socket.
func (p *Postgres) SocketDir() string { return p.dir }

// URL returns a database's connection URL. A new cluster has the database postgres.
func (p *Postgres) URL(db string) string {
	return "postgres://postgres@" + p.Addr() + "/" + db + "?sslmode=disable"
}

// Pid returns the process ID of the server that runs or ran last.
func (p *Postgres) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process.pid()
}

// CreateDatabase makes an empty database. The name is a plain identifier.
func (p *Postgres) CreateDatabase(name string) error {
	// Nobody can be connected to template0, which would be in the way of copying it.
	_, err := p.psql(p.port, "postgres", "CREATE DATABASE "+name+" TEMPLATE template0")
	return err
}

// DropDatabase removes a database and ends the sessions that are in it.
func (p *Postgres) DropDatabase(name string) error {
	_, err := p.psql(p.port, "postgres", "DROP DATABASE "+name+" WITH (FORCE)")
	return err
}

// psql runs one statement over the port, which may be a proxy's, and returns the bare rows.
func (p *Postgres) psql(port int, db, statement string) (string, error) {
	return run(p.program("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
		"-h", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "postgres", "-d", db, "-c", statement))
}

// Start starts a stopped server again, on the same port and folder, and returns when it has recovered.
func (p *Postgres) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start()
}

func (p *Postgres) start() error {
	if p.process != nil && p.process.alive() {
		return errRunning
	}
	settings := []string{"listen_addresses=127.0.0.1", "unix_socket_directories=" + p.dir, "fsync=off", "full_page_writes=off"}
	args := []string{"-D", p.data(), "-p", strconv.Itoa(p.port)}
	for _, s := range append(settings, p.settings...) {
		args = append(args, "-c", s)
	}
	server, err := start(p.program("postgres", args...), quitSignal) // SIGQUIT ends its children too, SIGKILL would not
	if err != nil {
		return err
	}
	if err := server.await(func() bool { return postmasterReady(p.data(), server.pid()) }); err != nil {
		server.kill()
		return err
	}
	p.process = server
	return nil
}

// Stop ends the server in order: sessions are cut, everything is on disk. The folder stays for Start.
func (p *Postgres) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stop()
}

func (p *Postgres) stop() error {
	if !p.process.alive() {
		return errStopped
	}
	return p.process.stop(os.Interrupt)
}

// Restart stops the server and starts it again.
func (p *Postgres) Restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.stop(), p.start())
}

// Kill ends the server at once, with SIGKILL, and returns when its children have noticed. The folder stays for Start.
func (p *Postgres) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.process.alive() {
		return errStopped
	}
	p.process.kill()
	return nil
}

// Close ends the server, if it runs, and removes its folder.
func (p *Postgres) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.process.alive() {
		err = p.process.stop(quitSignal)
	}
	return errors.Join(err, removeDir(p.dir))
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// program is a command of PostgreSQL's, run as a user that it accepts.
func (p *Postgres) program(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, executable(name)), args...)
	cmd.Dir = p.dir
	p.account.apply(cmd)
	return cmd
}

// postmasterReady reads the lock file, where a server notes its process ID and, in the eighth line, its state.
func postmasterReady(data string, pid int) bool {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(b), "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// postgresFolders are where packages put PostgreSQL's programs when they keep several versions apart.
var postgresFolders = []string{
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/pgsql-*/bin",          // Red Hat
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/usr/local/pgsql/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// findPostgres returns the folder of PostgreSQL's programs: the first in path that has them all, else the one with the
// highest version among those that the patterns name.
func findPostgres(path string, patterns []string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if hasPostgres(dir) {
			return dir, nil
		}
	}
	var found []string
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern) // the patterns are our own, and well formed
		found = append(found, dirs...)
	}
	found = slices.DeleteFunc(found, func(dir string) bool { return !hasPostgres(dir) })
	if len(found) == 0 {
		return "", fmt.Errorf("servers: PostgreSQL's programs (initdb, postgres, psql) are %w", ErrNotInstalled)
	}
	return slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) }), nil
}

func hasPostgres(dir string) bool {
	return filepath.IsAbs(dir) && !slices.ContainsFunc([]string{"initdb", "postgres", "psql"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, executable(name)))
		return err != nil
	})
}

var number = regexp.MustCompile(`\d+`)

// version is the last number in a folder's path, 0 if there is none.
func version(dir string) int {
	numbers := number.FindAllString(dir, -1)
	if len(numbers) == 0 {
		return 0
	}
	v, _ := strconv.Atoi(numbers[len(numbers)-1]) // too large a number is no version either
	return v
}

func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}
