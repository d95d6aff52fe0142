package store_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

// demoted is a server that was the master, and is a replica of the one that q is on.
func (q queue) demoted(master *servers.Redis) *servers.Redis {
	q.Helper()
	host, port, err := net.SplitHostPort(master.Addr())
	q.must(err)
	old := servers.NewRedis(q.T)
	rdb := old.Client(q.T)
	q.must(rdb.Do(q.Context(), "replicaof", host, port).Err())
	for deadline := time.Now().Add(time.Minute); rdb.Exists(q.Context(), q.keys.Stream).Val() == 0; {
		if time.Now().After(deadline) {
			q.Fatal("it replicates nothing")
		}
	}
	return old
}

// connected is a client of a name that leads to servers, with a connection to the first; to others
// once that is closed.
func (q queue) connected(first, then *servers.Redis) *redis.Client {
	var now atomic.Pointer[servers.Redis]
	now.Store(first)
	rdb := redis.NewClient(&redis.Options{Addr: "queue:6379", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", now.Load().Addr())
	}})
	q.Cleanup(func() { _ = rdb.Close() })
	_, err := rdb.Pipelined(q.Context(), func(pipe redis.Pipeliner) error { return pipe.Ping(q.Context()).Err() })
	q.must(err)
	now.Store(then)
	return rdb
}

// A master that became a replica keeps its connections. One that has refused is given up, wherever
// in a trip it did: what is sent next reaches the new master.
func TestAFormerMasterIsLeft(t *testing.T) {
	t.Parallel()
	master := servers.NewRedis(t, servers.RedisOptions{Args: []string{"--repl-diskless-sync-delay", "0"}})
	q := newQueue(t, master.Client(t))
	q.tick("w1", q.minute(3))
	letter, member := goingBack(q.dead("x"))[0], q.delay(1, "x")
	old := q.demoted(master)
	for name, send := range map[string]func(s *store.Store) error{
		"one job": func(s *store.Store) error {
			_, _, err := s.Enqueue(t.Context(), items(1))
			return err
		},
		"a transaction": func(s *store.Store) error {
			_, _, err := s.Enqueue(t.Context(), items(2))
			return err
		},
		"a transaction of scripts": func(s *store.Store) error {
			later := store.Item{Entry: []string{"kind", "x"}, In: time.Hour}
			_, _, err := s.Enqueue(t.Context(), []store.Item{later, later})
			return err
		},
		"a fetch": func(s *store.Store) error {
			trip := s.Trip(t.Context())
			trip.Fetch(1)
			_, err := trip.Go()
			return err
		},
		"a fetch behind an outcome": func(s *store.Store) error {
			trip := s.Trip(t.Context())
			trip.Release("1-1", map[string]string{"kind": "x"}) // which is not there, so that it writes nothing
			trip.Fetch(1)
			_, err := trip.Go()
			return err
		},
		"a start":              func(s *store.Store) error { return s.Prepare(t.Context()) },
		"the start of a relay": func(s *store.Store) error { return s.PrepareRelay(t.Context()) },
		"ticks": func(s *store.Store) error {
			replies := s.Tick(t.Context(), []store.Tick{q.minute(4), q.minute(1)}) // the first is past
			return errors.Join(replies[0].Err, replies[1].Err)
		},
		"a renewal": func(s *store.Store) error {
			_, told, err := s.Tell(t.Context(), []string{"1-1"}, lease, store.News{Counts: map[string]int{"done:x": 1}, Minute: q.clock()})
			return errors.Join(told, err)
		},
		"a replay": func(s *store.Store) error {
			_, err := s.Replay(t.Context(), []store.Replayed{{Entry: store.Entry{ID: "1-1"}}, letter})
			return err
		},
		"rows": func(s *store.Store) error {
			_, err := s.BuryRows(t.Context(), 10, []map[string]string{{"raw": "a"}})
			return err
		},
		"a promotion": func(s *store.Store) error {
			_, err := s.Promote(t.Context(), []store.Member{member})
			return err
		},
	} {
		s := q.over(q.connected(old, master), "w1")
		if err := send(s); err != nil && !redis.IsReadOnlyError(err) {
			t.Errorf("%s: %v", name, err)
		}
		if err := send(s); err != nil {
			t.Errorf("%s still goes to the old one: %v", name, err)
		}
	}
}
