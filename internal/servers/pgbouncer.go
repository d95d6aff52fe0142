package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Pgbouncer is a pgbouncer in transaction mode in front of a PostgreSQL.
type Pgbouncer struct {
	dir     string
	port    int
	process *process
}

// StartPgbouncer starts a pgbouncer that has at most so many connections to a database of p, and returns when it takes
// connections. Close ends it.
func StartPgbouncer(p *Postgres, connections int) (*Pgbouncer, error) {
	program, err := findPgbouncer()
	if err != nil {
		return nil, err
	}
	account, err := unprivileged()
	if err != nil {
		return nil, err
	}
	b := &Pgbouncer{}
	if b.dir, err = makeDir(account.tempDir(), "pgbouncer"); err != nil {
		return nil, err
	}
	err = onFreePort(freePort, func(port int) error {
		b.port = port
		settings := filepath.Join(b.dir, "pgbouncer.ini")
		if err := errors.Join(os.WriteFile(settings, []byte(b.settings(p, connections)), 0o644), account.own(b.dir)); err != nil {
			return err
		}
		cmd := exec.Command(program, settings)
		cmd.Dir = b.dir
		account.apply(cmd)
		return b.start(cmd)
	})
	if err != nil {
		_ = removeDir(b.dir) // the first error says more
		return nil, err
	}
	return b, nil
}

// findPgbouncer looks also where Debian puts it, which is in root's path alone.
func findPgbouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", fmt.Errorf("servers: pgbouncer is %w", ErrNotInstalled)
}

func (b *Pgbouncer) settings(p *Postgres, connections int) string {
	return fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
server_login_retry = 1
`, p.port, b.port, connections)
}

func (b *Pgbouncer) start(cmd *exec.Cmd) error {
	p, err := start(cmd, os.Kill)
	if err != nil {
		return err
	}
	if err := p.await(func() bool { return accepts(address(b.port)) }); err != nil {
		p.kill()
		return err
	}
	b.process = p
	return nil
}

// accepts reports whether something takes connections. A pgbouncer that finds its port in use ends.
func accepts(addr string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	_ = c.Close() // nothing was sent
	return true
}

// NewPgbouncer is StartPgbouncer for one test and its subtests, in front of the PostgreSQL that tests share.
func NewPgbouncer(t testing.TB, connections int) *Pgbouncer {
	t.Helper()
	needsMain(t)
	p, err := sharedPostgres()
	if err != nil {
		fail(t, err)
	}
	b, err := StartPgbouncer(p, connections)
	if err != nil {
		fail(t, err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Addr returns host and port, for which those of a PostgreSQL's URL are exchanged.
func (b *Pgbouncer) Addr() string { return address(b.port) }

// Close ends the pgbouncer and removes its folder.
func (b *Pgbouncer) Close() error {
	b.process.kill()
	return removeDir(b.dir)
}
