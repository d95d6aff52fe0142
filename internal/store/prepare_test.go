package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

func TestPrepare(t *testing.T) {
	each(t, func(q queue) {
		q.must(q.rdb.FlushAll(q.Context()).Err())
		q.add("kind", "enqueued before the first worker")
		q.must(q.as("w1").Prepare(q.Context()))
		q.must(q.as("w2").Prepare(q.Context()))
		if got := q.fetch("w1", 10); len(got) != 1 {
			q.Errorf("fetched %v", got)
		}
		q.unchanged(func() { q.must(q.as("w3").Prepare(q.Context())) })
	})
}

func TestPrepareByManyAtOnce(t *testing.T) {
	each(t, func(q queue) {
		q.must(q.rdb.FlushAll(q.Context()).Err())
		ok := crowd(20, func(i int) bool {
			err := q.as(fmt.Sprint("w", i)).Prepare(q.Context())
			if err != nil {
				q.Error(err)
			}
			return err == nil
		})
		q.same(20, ok)
	})
}

// final checks that an error is one that waiting does not mend, and says what it must.
func (q queue) final(what string, err error, says ...string) {
	q.Helper()
	if _, ok := errors.AsType[*store.FinalError](err); !ok {
		q.Errorf("%s: not final: %v", what, err)
		return
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			q.Errorf("%s: %q does not say %q", what, err, text)
		}
	}
}

// passing checks that an error is one to wait out.
func (q queue) passing(what string, err error) {
	q.Helper()
	if _, ok := errors.AsType[*store.FinalError](err); ok || err == nil {
		q.Errorf("%s: not worth waiting for: %v", what, err)
	}
}

func TestPrepareNamesAKeyOfTheWrongType(t *testing.T) {
	each(t, func(q queue) {
		for _, key := range []string{"jobs", "delayed", "jobs:dead", "jobs:suspect"} {
			q.sub(key, func(q queue) {
				full := strings.TrimSuffix(q.keys.Stream, "jobs") + key
				q.must(q.rdb.Del(q.Context(), full).Err())
				q.must(q.rdb.HSet(q.Context(), full, "a", "b").Err())
				q.unchanged(func() { q.final(key, q.as("w1").Prepare(q.Context()), full, "hash") })
			})
		}
	})
}

// everything does once what a worker does, each arrow with its script.
func (q queue) everything(s *store.Store) {
	q.Helper()
	ctx := q.Context()
	q.must(s.Prepare(ctx))
	entry := func() string {
		q.fetch("w1", 10) // what was released before
		return q.running("w1").ID
	}
	for _, outcome := range outcomes {
		_, err := write(ctx, s, func(t *store.Trip) store.Reply { return outcome(t, entry()) })
		q.must(err)
	}
	_, err := write(ctx, s, func(t *store.Trip) store.Reply { return done(t, entry()) })
	q.must(err)
	_, err = s.Wait(ctx, 1, time.Millisecond)
	q.must(err)
	_, err = s.Renew(ctx, []string{entry()})
	q.must(err)
	q.must(s.Idle(ctx, 0, func([]store.Pending) error { return nil }))
	claim := q.stale(time.Hour, 1)
	claim.Alone = true
	for _, ttl := range []time.Duration{lease, lease, 0, lease} { // taken, renewed, given back
		_, err = s.Isolate(ctx, claim, ttl)
		q.must(err)
	}
	_, _, err = s.Claim(ctx, claim)
	q.must(err)
	_, err = s.Gone(ctx, q.deleted().ID)
	q.must(err)
	_, _, err = s.Body(ctx, claim.ID)
	q.must(err)
	_, _, err = s.BuryAs(ctx, q.stale(time.Hour, 3).Pending, 0, 10, map[string]string{"kind": "x"})
	q.must(err)
	_, err = s.Silent(ctx, 0)
	q.must(err)
	q.must(s.Forget(ctx, "nobody"))
	q.delay(1, "due")
	_, _, err = s.Earliest(ctx)
	q.must(err)
	members, err := s.Due(ctx, q.clock(), 10)
	q.must(err)
	_, err = s.Promote(ctx, members)
	q.must(err)
	_, _, err = s.BuryMember(ctx, q.delay(1, "rubbish"), 10, map[string]string{"raw": "x"})
	q.must(err)
	q.must(s.Tick(ctx, []store.Tick{q.minute(1)})[0].Err)
	_, err = s.Now(ctx)
	q.must(err)
	for _, clock := range []time.Time{q.clock(), q.clock()} { // a minute has its depths once
		_, told, err := s.Tell(ctx, nil, lease, store.News{Self: &store.Self{}, Counts: map[string]int{"done:x": 1}, Number: clock.UnixNano(), Minute: clock, Depths: true})
		q.must(errors.Join(told, err))
	}
	_, err = s.TrimDead(ctx, time.Hour)
	q.must(err)
	q.must(s.Leave(ctx, store.News{Minute: q.clock()}))
}

// used are the commands, with their subcommands, that f sends.
func (q queue) used(f func()) []string {
	q.Helper()
	q.must(q.rdb.ConfigResetStat(q.Context()).Err())
	f()
	var names []string
	for line := range strings.Lines(q.rdb.Info(q.Context(), "commandstats").Val()) {
		if name, ok := strings.CutPrefix(line, "cmdstat_"); ok {
			names = append(names, name[:strings.Index(name, ":")])
		}
	}
	return names
}

// Every right that a worker will need is asked for before it fetches, and named if it is
// missing. The list is what the server has seen, so that a new command is in it.
func TestPrepareNamesAMissingRight(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t)
	q := newQueue(t, server.Client(t))
	needed := q.used(func() {
		mine := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer mine.Close()
		q.everything(q.over(mine, "w1"))
	})
	// These are of the connection, or of this test.
	foreign := []string{"hello", "ping", "client|setinfo", "config|resetstat", "info", "command"}
	tried := 0
	for _, command := range needed {
		if slices.Contains(foreign, command) {
			continue
		}
		tried++
		err := q.prepareAs(server, "~*", "+@all", "-"+command)
		q.final("without "+command, err, strings.ToUpper(command[:strings.IndexByte(command+"|", '|')]))
	}
	if tried < 20 {
		t.Errorf("only %d commands were seen: %v", tried, needed)
	}
	q.must(q.prepareAs(server, "~*", "+@all"))
}

func TestPrepareNamesAMissingRightToAKey(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t)
	q := newQueue(t, server.Client(t))
	prefix := strings.TrimSuffix(q.keys.Stream, "jobs")
	all := []string{"jobs", "delayed", "jobs:*", "sched:*"}
	for _, missing := range append(all, "") {
		rules := []string{"+@all"}
		for _, key := range all {
			if key != missing {
				rules = append(rules, "~"+prefix+key)
			}
		}
		if err := q.prepareAs(server, rules...); missing != "" {
			q.final("without the keys "+missing, err, "NOPERM", prefix+strings.TrimSuffix(missing, "*"))
		} else if err != nil {
			t.Errorf("with all keys: %v", err)
		}
	}
}

// prepareAs prepares as a user with these rights alone.
func (q queue) prepareAs(server *servers.Redis, rules ...string) error {
	q.Helper()
	return q.with(server, rules, func(rdb *redis.Client) error { return q.over(rdb, "w9").Prepare(q.Context()) })
}

// with has a client of a user with these rights alone.
func (q queue) with(server *servers.Redis, rules []string, f func(rdb *redis.Client) error) error {
	q.Helper()
	args := []any{"acl", "setuser", "worker", "reset", "on", ">secret", "&*"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	q.must(q.rdb.Do(q.Context(), args...).Err())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "worker", Password: "secret"})
	defer rdb.Close()
	return f(rdb)
}

func TestPrepareWithAWrongPassword(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{"--requirepass", "secret"}})
	for name, o := range map[string]redis.Options{
		"wrong": {Password: "guess"},
		"none":  {},
	} {
		o.Addr = server.Addr()
		rdb := redis.NewClient(&o)
		defer rdb.Close()
		q := queue{T: t}
		q.final(name, store.New(rdb, "").As("w1").Prepare(t.Context()))
	}
}

// An old server knows the commands, and not the forms.
func TestPrepareOnAnOldServer(t *testing.T) {
	each(t, func(q queue) {
		proxy := servers.NewProxy(q, q.rdb.Options().Addr)
		far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		defer far.Close()
		for name, old := range map[string]struct {
			is    func(cmd []string) bool
			reply string
			says  string
		}{
			"XPENDING IDLE":  {has("xpending", "idle"), "ERR syntax error", "XPENDING"},
			"ZRANGE BYSCORE": {has("zrange", "byscore"), "ERR syntax error", "ZRANGE"},
			"XADD NOMKSTREAM": {has("xadd", "nomkstream"),
				"ERR Invalid stream ID specified as stream command argument", "XADD"},
			"streams at all": {has("xgroup", "create"),
				"ERR unknown command `xgroup`, with args beginning with: `create`, ", "XGROUP"},
		} {
			proxy.Hook(func(cmd []string) servers.Action {
				if old.is(cmd) {
					return servers.ReplyError(old.reply)
				}
				return servers.Pass
			})
			q.final(name, q.over(far, "w1").Prepare(q.Context()), old.says, "6.2")
		}
	})
}

// has is true of a command with this name and this argument.
func has(name, arg string) func(cmd []string) bool {
	return func(cmd []string) bool {
		return strings.EqualFold(cmd[0], name) && slices.ContainsFunc(cmd, func(s string) bool { return strings.EqualFold(s, arg) })
	}
}

// What passes is waited for: each of these has an end.
func TestPrepareMeetsWhatPasses(t *testing.T) {
	each(t, func(q queue) {
		q.meets([]string{"type", "xgroup", "xack", "eval"}, func(far *redis.Client) error { return q.over(far, "w1").Prepare(q.Context()) })
	})
}

// meets sees to it that prepare, over a connection of its own, takes what any of commands is refused with for a while for
// what passes, and a connection that is cut, too.
func (q queue) meets(commands []string, prepare func(far *redis.Client) error) {
	q.Helper()
	proxy := servers.NewProxy(q, q.rdb.Options().Addr)
	try := func() error { // anew: where MULTI is refused go-redis leaves replies behind, which the next one may read
		far := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
		defer far.Close()
		return prepare(far)
	}
	for _, reply := range []string{
		"LOADING Redis is loading the dataset in memory",
		"READONLY You can't write against a read only replica.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"MISCONF Redis is configured to save RDB snapshots",
		"CLUSTERDOWN The cluster is down",
	} {
		for _, command := range commands {
			proxy.Hook(func(cmd []string) servers.Action {
				if strings.EqualFold(cmd[0], command) {
					return servers.ReplyError(reply)
				}
				return servers.Pass
			})
			q.passing(command+" meets "+reply, try())
		}
	}
	proxy.Hook(func([]string) servers.Action { return servers.CutBefore })
	q.passing("a connection that is cut", try())
	proxy.Hook(nil)
	q.must(try())
}

// A server that is full is no reason not to start: it may be emptied by working.
func TestPrepareForWantOfMemory(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t))
	q.must(q.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	q.must(q.as("w1").Prepare(t.Context()))
}

func TestPrepareOnAClusterWantsAHashTag(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, MaxRedirects: -1})
	defer rdb.Close()
	for prefix, ok := range map[string]bool{"": false, "app:": false, "{}:": false, "app}{:": false, "{app}:": true, "x{app}y:": true} {
		ctx, stop := context.WithCancel(t.Context())
		if ok {
			stop() // the connection would fail
		}
		err := store.New(rdb, prefix).As("w1").Prepare(ctx)
		stop()
		q := queue{T: t}
		if ok {
			q.passing(prefix, err)
		} else {
			q.final(prefix, err, "hash tag")
		}
	}
}

// relays are the keys of a queue that a relay uses.
var relays = []string{"jobs", "delayed", "jobs:dead", "jobs:probe"}

func TestPrepareRelayMakesNothing(t *testing.T) {
	each(t, func(q queue) {
		q.must(q.rdb.Del(q.Context(), q.keys.Stream).Err())
		q.unchanged(func() { q.must(q.as("").PrepareRelay(q.Context())) })
		if len(q.state()) != 0 {
			q.Errorf("there is %v", q.state())
		}
		q.must(q.as("w1").Prepare(q.Context()))
		q.running("w1")
		q.delay(1, "due")
		q.dead("old")
		q.unchanged(func() { q.must(q.as("").PrepareRelay(q.Context())) })
	})
}

func TestPrepareRelayNamesAKeyOfTheWrongType(t *testing.T) {
	each(t, func(q queue) {
		for _, key := range relays {
			q.sub(key, func(q queue) {
				full := strings.TrimSuffix(q.keys.Stream, "jobs") + key
				q.must(q.rdb.Del(q.Context(), full).Err())
				q.must(q.rdb.HSet(q.Context(), full, "a", "b").Err())
				q.unchanged(func() { q.final(key, q.as("").PrepareRelay(q.Context()), full, "hash") })
			})
		}
	})
}

// Every right that a relay will need is asked for, and none besides.
func TestPrepareRelayNamesAMissingRight(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t)
	q := newQueue(t, server.Client(t))
	needed := q.used(func() {
		mine := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer mine.Close()
		s := q.over(mine, "")
		q.must(s.PrepareRelay(t.Context()))
		_, err := s.Now(t.Context())
		q.must(err)
		for _, n := range []int{1, 2} {
			_, _, err = s.Enqueue(t.Context(), items(n))
			q.must(err)
		}
		_, _, err = s.Enqueue(t.Context(), []store.Item{{Entry: []string{"kind", "x"}, At: time.Unix(5e9, 0)}})
		q.must(err)
		_, err = s.BuryRows(t.Context(), 10, []map[string]string{{"raw": "x"}})
		q.must(err)
	})
	foreign := []string{"hello", "ping", "client|setinfo", "config|resetstat", "info", "command"}
	needed = slices.DeleteFunc(needed, func(command string) bool { return slices.Contains(foreign, command) })
	for _, command := range needed {
		err := q.prepareRelayAs(server, "~*", "+@all", "-"+command)
		q.final("without "+command, err, strings.ToUpper(command))
	}
	just := []string{"+hello", "+ping", "+client"}
	for _, command := range needed {
		just = append(just, "+"+command)
	}
	prefix := strings.TrimSuffix(q.keys.Stream, "jobs")
	for _, key := range relays {
		just = append(just, "~"+prefix+key)
	}
	if err := q.prepareRelayAs(server, just...); err != nil || len(needed) < 8 {
		t.Errorf("with %v: %v", just, err)
	}
	for _, key := range relays {
		rules := slices.DeleteFunc(slices.Clone(just), func(rule string) bool { return rule == "~"+prefix+key })
		q.final("without the key "+key, q.prepareRelayAs(server, rules...), "NOPERM", prefix+key)
	}
}

// prepareRelayAs prepares as a user with these rights alone.
func (q queue) prepareRelayAs(server *servers.Redis, rules ...string) error {
	q.Helper()
	return q.with(server, rules, func(rdb *redis.Client) error { return q.over(rdb, "").PrepareRelay(q.Context()) })
}

func TestPrepareRelayMeetsWhatPasses(t *testing.T) {
	each(t, func(q queue) {
		q.meets([]string{"type", "time", "multi", "zadd", "eval"}, func(far *redis.Client) error { return q.over(far, "").PrepareRelay(q.Context()) })
	})
}

func TestPrepareRelayForWantOfMemory(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t))
	q.must(q.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	q.must(q.as("").PrepareRelay(t.Context()))
}
