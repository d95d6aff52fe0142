package servers

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// newPostgres starts a cluster of the test's own.
func newPostgres(t *testing.T, o ...PostgresOptions) *Postgres {
	t.Helper()
	p, err := StartPostgres(o...)
	if err != nil {
		fail(t, err)
	}
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

func query(t *testing.T, p *Postgres, db, statement string) string {
	t.Helper()
	out, err := p.psql(p.port, db, statement)
	must(t, err)
	return strings.TrimSpace(out)
}

func TestPostgresLife(t *testing.T) {
	t.Parallel()
	p := newPostgres(t, PostgresOptions{Settings: []string{"max_connections=17"}})
	if got := query(t, p, "postgres", "SHOW max_connections"); got != "17" {
		t.Errorf("max_connections is %s", got)
	}
	if socket := filepath.Join(p.SocketDir(), ".s.PGSQL."+strconv.Itoa(p.port)); !exists(socket) {
		t.Errorf("no socket %s", socket)
	}
	keepsItsData(t, p)
	refusesWhatMakesNoSense(t, p)
	must(t, p.Close())
	must(t, p.Close())
	if exists(p.dir) {
		t.Errorf("%s is left behind", p.dir)
	}
}

func keepsItsData(t *testing.T, p *Postgres) {
	query(t, p, "postgres", "CREATE TABLE seats (label text)")
	for name, again := range map[string]func() error{
		"restarted": p.Restart,
		"stopped":   func() error { return errors.Join(p.Stop(), p.Start()) },
		"killed":    func() error { return errors.Join(p.Kill(), p.Start()) },
	} {
		query(t, p, "postgres", "INSERT INTO seats VALUES ('"+name+"')")
		pid := p.Pid()
		must(t, again())
		if got := query(t, p, "postgres", "SELECT count(*) FROM seats WHERE label = '"+name+"'"); got != "1" || p.Pid() == pid {
			t.Errorf("%s: %s rows, process %d, before %d", name, got, p.Pid(), pid)
		}
	}
}

func refusesWhatMakesNoSense(t *testing.T, p *Postgres) {
	if err := p.Start(); !errors.Is(err, errRunning) {
		t.Errorf("Start of a running server: %v", err)
	}
	must(t, p.Kill())
	for name, f := range map[string]func() error{"Stop": p.Stop, "Kill": p.Kill} {
		if err := f(); !errors.Is(err, errStopped) {
			t.Errorf("%s of a stopped server: %v", name, err)
		}
	}
	p.settings = append(p.settings, "no_such_setting=1")
	if err := p.Start(); err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v, want the server's own reason", err)
	}
}

func TestNewPostgresIsFreshAndDropped(t *testing.T) {
	t.Parallel()
	NewPostgres(t) // skips where there is none
	p, err := sharedPostgres()
	must(t, err)
	var first string
	t.Run("first", func(t *testing.T) {
		first = database(t, NewPostgres(t))
		query(t, p, first, "CREATE TABLE seats (label text)")
	})
	t.Run("second", func(t *testing.T) {
		second := database(t, NewPostgres(t))
		if got := query(t, p, second, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); got != "0" {
			t.Errorf("%s tables in a new database", got)
		}
	})
	if got := query(t, p, "postgres", "SELECT count(*) FROM pg_database WHERE datname = '"+first+"'"); got != "0" {
		t.Errorf("%s is still there", first)
	}
}

func TestDropDatabaseEndsSessions(t *testing.T) {
	t.Parallel()
	NewPostgres(t)
	p, err := sharedPostgres()
	must(t, err)
	must(t, p.CreateDatabase("busy"))
	session, err := start(p.program("psql", "-X", "-h", "127.0.0.1", "-p", p.Addr()[len("127.0.0.1:"):], "-U", "postgres",
		"-d", "busy", "-c", "SELECT pg_sleep(600)"), os.Kill)
	must(t, err)
	eventually(t, "the session is in the database", func() bool {
		return query(t, p, "postgres", "SELECT count(*) FROM pg_stat_activity WHERE datname = 'busy'") == "1"
	})
	must(t, p.DropDatabase("busy"))
	<-session.ended
}

func database(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	must(t, err)
	return strings.TrimPrefix(u.Path, "/")
}

func TestFindPostgres(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, file := range []string{
		"9/bin/initdb", "9/bin/postgres", "9/bin/psql",
		"15/bin/initdb", "15/bin/postgres", "15/bin/psql",
		"16/bin/psql", // only a client
		"path/initdb", "path/postgres", "path/psql",
	} {
		must(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755))
		must(t, os.WriteFile(filepath.Join(root, file), nil, 0o755))
	}
	pattern := filepath.Join(root, "*/bin")
	for _, c := range []struct{ name, path, pattern, want string }{
		{"in the path", "/nowhere:" + filepath.Join(root, "path"), pattern, "path"},
		{"only a client in the path", filepath.Join(root, "16/bin"), pattern, "15/bin"},
		{"newest that is whole", "", pattern, "15/bin"},
		{"none", "", filepath.Join(root, "16/*"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := findPostgres(c.path, []string{c.pattern})
			if c.want == "" && !errors.Is(err, ErrNotInstalled) {
				t.Errorf("got %v, %v", got, err)
			}
			if c.want != "" && got != filepath.Join(root, c.want) {
				t.Errorf("got %v, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestVersionIgnoresTheRestOfThePath(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]int{
		"/usr/lib/postgresql/15/bin": 15, "/usr/pgsql-16/bin": 16, "/opt/homebrew/opt/postgresql@17/bin": 17, "/usr/local/pgsql/bin": 0, "/tmp/123/9/bin": 9,
	} {
		if got := version(dir); got != want {
			t.Errorf("version(%s) = %d, want %d", dir, got, want)
		}
	}
}
