package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sentinel is a master, its replica, and one sentinel that makes the replica the master a second after the master has
// fallen silent.
type Sentinel struct {
	Nodes [2]*Redis // the first is the master at the start

	dir     string
	port    int
	process *process
}

// MasterName is what a Sentinel calls its master.
const MasterName = "stagedoor"

// replication has a replica begin at once, where it would wait for others to begin with.
var replication = []string{"--repl-diskless-sync-delay", "0"}

// StartReplica starts a redis-server that holds what the one at master holds, and returns when it does.
func StartReplica(master string, o RedisOptions) (*Redis, error) {
	host, port, _ := strings.Cut(master, ":")
	args := append([]string{"--replicaof", host + " " + port}, replication...)
	r, err := StartRedis(RedisOptions{Args: append(args, o.Args...), Port: o.Port})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = r.do(ctx, func(rdb *redis.Client) error {
		return poll(ctx, func() (bool, error) {
			info, err := rdb.Info(ctx, "replication").Result()
			return strings.Contains(info, "master_link_status:up"), err
		})
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("servers: replica: %w", err), r.Close())
	}
	return r, nil
}

// StartSentinel starts the three and returns when the sentinel knows the replica. Options are the two servers'. Close
// ends them.
func StartSentinel(o RedisOptions) (*Sentinel, error) {
	s := &Sentinel{}
	master, err := StartRedis(RedisOptions{Args: append(replication[:len(replication):len(replication)], o.Args...)})
	if err != nil {
		return nil, err
	}
	s.Nodes[0] = master
	if s.Nodes[1], err = StartReplica(master.Addr(), o); err == nil {
		err = s.watch()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// NewSentinel is StartSentinel for one test and its subtests.
func NewSentinel(t testing.TB) *Sentinel {
	t.Helper()
	s, err := StartSentinel(RedisOptions{})
	if err != nil {
		fail(t, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// watch starts the sentinel.
func (s *Sentinel) watch() error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("servers: redis-server is %w: %v", ErrNotInstalled, err)
	}
	if s.dir, err = makeDir("", "sentinel"); err != nil {
		return err
	}
	err = onFreePort(freePort, func(port int) error {
		s.port = port
		return s.start(program)
	})
	if err != nil {
		return err
	}
	return s.await()
}

func (s *Sentinel) start(program string) error {
	file := filepath.Join(s.dir, "sentinel.conf") // the sentinel writes to it
	text := fmt.Sprintf(`port %d
bind 127.0.0.1
dir %s
sentinel monitor %[3]s 127.0.0.1 %[4]d 1
sentinel down-after-milliseconds %[3]s 1000
sentinel failover-timeout %[3]s 10000
`, s.port, s.dir, MasterName, s.Nodes[0].port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("servers: sentinel: %w", err)
	}
	cmd := exec.Command(program, file, "--sentinel")
	cmd.Dir = s.dir
	p, err := start(cmd, os.Kill)
	if err != nil {
		return err
	}
	if err := p.await(func() bool { return redisAnswers(s.Addr(), p.pid()) }); err != nil {
		p.kill()
		return err
	}
	s.process = p
	return nil
}

// await waits until the sentinel knows the replica: before, it could not fail over.
func (s *Sentinel) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rdb := redis.NewSentinelClient(&redis.Options{Addr: s.Addr()})
	defer rdb.Close()
	err := poll(ctx, func() (bool, error) {
		replicas, err := rdb.Replicas(ctx, MasterName).Result()
		return len(replicas) == 1 && replicas[0]["flags"] == "slave" && replicas[0]["master-link-status"] == "ok", err
	})
	if err != nil {
		return fmt.Errorf("servers: sentinel: %w", err)
	}
	return nil
}

// Addr returns the sentinel's host and port.
func (s *Sentinel) Addr() string { return address(s.port) }

// Client returns a new client of whoever is the master, with go-redis's own defaults, closed at the end of the test.
func (s *Sentinel) Client(t testing.TB) *redis.Client {
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: MasterName, SentinelAddrs: []string{s.Addr()}})
	t.Cleanup(func() { _ = rdb.Close() }) // a test may have closed it
	return rdb
}

// Master returns whom the sentinel takes for the master.
func (s *Sentinel) Master(ctx context.Context) (*Redis, error) {
	rdb := redis.NewSentinelClient(&redis.Options{Addr: s.Addr()})
	defer rdb.Close()
	addr, err := rdb.GetMasterAddrByName(ctx, MasterName).Result()
	if err != nil {
		return nil, fmt.Errorf("servers: sentinel: %w", err)
	}
	for _, node := range s.Nodes {
		if strings.Join(addr, ":") == node.Addr() {
			return node, nil
		}
	}
	return nil, fmt.Errorf("servers: sentinel: %v is the master, and none of ours", addr)
}

// Close ends all three and removes their folders.
func (s *Sentinel) Close() error {
	var failed error
	if s.process != nil {
		s.process.kill()
	}
	if s.dir != "" {
		failed = removeDir(s.dir)
	}
	for _, node := range s.Nodes {
		if node != nil {
			failed = errors.Join(failed, node.Close())
		}
	}
	return failed
}
