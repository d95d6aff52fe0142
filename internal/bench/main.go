// Command bench compares package jobs with what a user might pick instead, and with the least that can be done by hand,
// on this machine and in one run. From this folder, which is a module of its own:
//
//	go run .                  everything, three rounds, about ten minutes
//	go run . -only drain -peers ours,floor -rounds 5 -n 60000
//	go run . -growth -svg ../../docs/growth.svg
//
// It starts its own servers: a redis-server without persistence on TCP loopback, emptied before every sample, and a
// PostgreSQL with fsync off. Every sample is taken by a process of its own. In a round each measure is taken of each
// peer in turn, so that a slow minute of the machine is nobody's own; ratios are made within a round, and the tables have
// the rounds' medians, with the least and the most.
//
// What the figures are:
//
//   - drain: jobs/s from the first handler's start to the last one's, of a backlog that was there when the worker began.
//   - CPU, commands and round trips are the difference from before the worker began until nothing is left to settle. A
//     worker's CPU is its process's, by getrusage; Redis's is that of INFO, PostgreSQL's that of its processes (Linux). The
//     commands are those of commandstats, inside of scripts too, less the measure's own. A round trip is a connection
//     that begins to read after it has written.
//   - enqueue, bulk: one goroutine, jobs/s.
//   - pickup: from just before the enqueueing to the handler's start, in one process, the queue idle for 5 to 15 ms.
//   - memory, delayed: what used_memory (of PostgreSQL the table with its indexes) grows by, the client's connections
//     closed again.
//   - due: how long after the moment that all were due at the last handler starts.
//   - failonce: from the first handler's start to the last success.
//   - dead: from the first handler's start until nothing is left to settle.
//   - transact: from the first BEGIN to the last handler, jobs/s; eight goroutines commit, a worker runs meanwhile.
//   - commit: from just before COMMIT is sent to the handler's start, in one process, both queues idle for 5 to 15 ms.
//   - kill: from the SIGKILL until the last job runs again; a second worker has started a second before.
//
// Nothing is tuned for ours: the fields, the handler and the loggers' silence are the same, and each peer has the
// settings that its documentation gives. All but the floors decode the job's fields into a struct. It is made for Unix, and
// for Linux where PostgreSQL's CPU is to be known.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stagedoor/jobs/internal/servers"
)

type options struct {
	sizes          sizes
	rounds         int
	only, peers    string
	json, markdown string // files
	svg            string
	profile        string // a folder
	growing        bool
	big            float64
	idle           time.Duration
	killEverything bool
}

func main() {
	if inChild() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, parse()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse() (o options) {
	flag.IntVar(&o.rounds, "rounds", 3, "how often everything is measured")
	flag.StringVar(&o.only, "only", "", "measures, by how their names begin: "+strings.Join(names(measures), ", "))
	flag.StringVar(&o.peers, "peers", "ours,asynq,river,outbox,watermill,floor,strict,raw", "who is measured")
	flag.StringVar(&o.json, "json", "", "a file to write the results to")
	flag.StringVar(&o.markdown, "md", "", "a file to write the tables to, too")
	flag.StringVar(&o.profile, "profile", "", "a folder to write a CPU profile of each worker to: PEER-MEASURE.prof, of the last round")
	flag.BoolVar(&o.growing, "growth", false, "measure how ours behaves as things grow, instead")
	flag.StringVar(&o.svg, "svg", "", "with -growth: a file to draw a picture into")
	flag.Float64Var(&o.big, "big", 1, "with -growth: what the million waiting, the million delayed and the 100,000 dead are multiplied by")
	flag.DurationVar(&o.idle, "idle", 20*time.Second, "with -growth: for how long an idle worker is watched")
	flag.BoolVar(&o.killEverything, "killpeers", false, "SIGKILL a worker of every peer that can recover, which takes minutes each; else of ours alone")
	flag.IntVar(&o.sizes.Jobs, "n", 60_000, "jobs of a drain and of the memory; a third of it are dead-lettered; slower peers get a part of it")
	flag.IntVar(&o.sizes.Due, "due", 20_000, "jobs that are due at once")
	flag.IntVar(&o.sizes.Failing, "fail", 10_000, "jobs that fail once")
	flag.IntVar(&o.sizes.Pickups, "pickups", 600, "jobs that are picked up one by one; for at most twice -patience")
	flag.DurationVar(&o.sizes.Patience, "patience", 3*time.Second, "for how long is enqueued")
	flag.Parse()
	return o
}

func names(list []measure) (all []string) {
	for _, m := range list {
		if !m.apart {
			all = append(all, m.name)
		}
	}
	return all
}

func run(ctx context.Context, o options) error {
	chosen, err := o.choose()
	if err != nil {
		return err
	}
	at, machine, stop, err := startServers(ctx, slices.ContainsFunc(chosen, func(e entry) bool { return e.postgres }) && !o.growing)
	if err != nil {
		return err
	}
	defer stop()
	begun := time.Now()
	var rs results
	if o.growing {
		rs, err = o.growth(ctx, at)
	} else {
		rs, err = o.compare(ctx, chosen, at)
	}
	fmt.Fprintln(os.Stderr, "measured in", time.Since(begun).Round(time.Second))
	return errors.Join(err, o.report(rs, chosen, machine))
}

func (o options) choose() (chosen []entry, err error) {
	for name := range strings.SplitSeq(o.peers, ",") {
		e, err := entryOf(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, e)
	}
	return chosen, nil
}

func (o options) wants(m measure) bool {
	if m.apart {
		return false
	}
	return o.only == "" || slices.ContainsFunc(strings.Split(o.only, ","), func(begin string) bool { return strings.HasPrefix(m.name, begin) })
}

// compare takes every measure of every peer in every round. What fails is reported and leaves a gap.
func (o options) compare(ctx context.Context, chosen []entry, at addresses) (results, error) {
	rs := results{}
	failed := 0
	for round := range o.rounds {
		for _, m := range measures {
			if !o.wants(m) {
				continue
			}
			for _, e := range chosen {
				if !e.can(m.name) || m.name == "kill" && e.name != "ours" && !o.killEverything || ctx.Err() != nil {
					continue
				}
				failed += rs.add(ctx, o, round, e.name, spec{Measure: m.name, Peer: e.name, Profile: o.profile, Sizes: o.sizes, At: at})
			}
		}
	}
	return rs, errors.Join(failures(failed), ctx.Err())
}

// startServers starts what the peers need, and returns what ends it.
func startServers(ctx context.Context, postgres bool) (at addresses, machine string, stop func(), err error) {
	rd, err := servers.StartRedis(servers.RedisOptions{})
	if err != nil {
		return at, "", nil, err
	}
	stop = func() { _ = rd.Close() }
	at.Redis = rd.Addr()
	about := []string{machineAbout()}
	if postgres {
		pg, err := servers.StartPostgres()
		if err != nil {
			stop()
			return at, "", nil, err
		}
		stop = func() { _, _ = rd.Close(), pg.Close() }
		at.Postgres, at.PostgresPid = pg.URL("postgres"), pg.Pid()
		if err := errors.Join(prepareRiver(ctx, at.Postgres), prepareOutbox(ctx, at.Postgres)); err != nil {
			stop()
			return at, "", nil, err
		}
	}
	for _, e := range entries {
		if e.name == "ours" || e.postgres && postgres {
			about = append(about, versionOf(ctx, e, at))
		}
	}
	return at, strings.Join(about, ", "), stop, nil
}

func versionOf(ctx context.Context, e entry, at addresses) string {
	s, err := dialServer(ctx, e, at)
	if err != nil {
		return err.Error()
	}
	defer s.close()
	v, err := s.version(ctx)
	if err != nil {
		return err.Error()
	}
	return v
}
