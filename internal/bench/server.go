package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// server is what the measures ask of the server under a peer.
type server interface {
	reset(ctx context.Context) error
	// used is the CPU it has used, and the commands it has carried out but for this server value's own.
	used(ctx context.Context) (cpu time.Duration, commands int64, err error)
	// memory is what its data takes, in bytes.
	memory(ctx context.Context) (int64, error)
	version(ctx context.Context) (string, error)
	close()
}

func dialServer(ctx context.Context, e entry, at addresses) (server, error) {
	if e.postgres {
		conn, err := pgx.Connect(ctx, at.Postgres)
		return &postgresServer{conn, at.PostgresPid}, err
	}
	return dialRedisServer(at.Redis), nil
}

// redisServer is seen through one connection, which counts what it asks.
type redisServer struct {
	rdb   *redis.Client
	asked int64
}

func dialRedisServer(addr string) *redisServer {
	s := &redisServer{rdb: redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1})}
	s.rdb.AddHook(s)
	return s
}

func (s *redisServer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *redisServer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.asked++
		return next(ctx, cmd)
	}
}

func (s *redisServer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.asked += int64(len(cmds))
		return next(ctx, cmds)
	}
}

func (s *redisServer) reset(ctx context.Context) error {
	return errors.Join(s.rdb.FlushAll(ctx).Err(), s.rdb.ScriptFlush(ctx).Err())
}

func (s *redisServer) used(ctx context.Context) (time.Duration, int64, error) {
	before := s.asked // INFO does not count itself
	info, err := s.info(ctx)
	if err != nil {
		return 0, 0, err
	}
	var calls int64
	for name, value := range info {
		if strings.HasPrefix(name, "cmdstat_") {
			calls += statCalls(value)
		}
	}
	cpu := number(info["used_cpu_user"]) + number(info["used_cpu_sys"])
	return time.Duration(cpu * float64(time.Second)), calls - before, nil
}

// byCommand is how often each command was carried out.
func (s *redisServer) byCommand(ctx context.Context) (map[string]int64, error) {
	info, err := s.info(ctx)
	calls := map[string]int64{}
	for name, value := range info {
		if command, ok := strings.CutPrefix(name, "cmdstat_"); ok {
			calls[command] = statCalls(value)
		}
	}
	return calls, err
}

// statCalls reads "calls=12,usec=…".
func statCalls(value string) int64 {
	calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
	return int64(number(calls))
}

func (s *redisServer) info(ctx context.Context) (map[string]string, error) {
	text, err := s.rdb.Info(ctx, "all").Result()
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, err
}

func number(text string) float64 {
	f, _ := strconv.ParseFloat(text, 64) // Redis writes numbers
	return f
}

func (s *redisServer) memory(ctx context.Context) (int64, error) {
	info, err := s.info(ctx)
	return int64(number(info["used_memory"])), err
}

func (s *redisServer) version(ctx context.Context) (string, error) {
	info, err := s.info(ctx)
	return "Redis " + info["redis_version"], err
}

// count is the sum of commands that answer a number, each given as its words.
func (s *redisServer) count(ctx context.Context, commands ...string) (sum int64, err error) {
	for _, command := range commands {
		var words []any
		for _, w := range strings.Fields(command) {
			words = append(words, w)
		}
		n, err := s.rdb.Do(ctx, words...).Int64()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func (s *redisServer) close() { _ = s.rdb.Close() } // nothing is lost with it

// postgresServer is seen through one connection and, for its CPU, through /proc: Linux only.
type postgresServer struct {
	conn *pgx.Conn
	pid  int // of the postmaster
}

func (s *postgresServer) reset(ctx context.Context) error {
	_, err := s.conn.Exec(ctx, "TRUNCATE river_job, river_leader, river_queue, jobs.outbox")
	return err
}

func (s *postgresServer) used(context.Context) (time.Duration, int64, error) {
	const ticks = 100 // a second: USER_HZ, the same on every Linux
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	var sum int64
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		sum += postgresTicks(string(b), s.pid)
	}
	return time.Duration(sum) * time.Second / ticks, 0, err
}

// postgresTicks is what a process of the server has used, with what its ended children have; 0 for other processes.
func postgresTicks(stat string, postmaster int) (sum int64) {
	own, rest, _ := strings.Cut(stat, " (")
	fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:]) // from the third on: state, ppid, …
	if len(fields) < 15 || own != strconv.Itoa(postmaster) && fields[1] != strconv.Itoa(postmaster) {
		return 0
	}
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		sum += int64(number(f))
	}
	return sum
}

func (s *postgresServer) memory(ctx context.Context) (n int64, err error) {
	err = s.conn.QueryRow(ctx, "SELECT pg_total_relation_size('river_job')").Scan(&n)
	return n, err
}

func (s *postgresServer) version(ctx context.Context) (v string, err error) {
	err = s.conn.QueryRow(ctx, "SHOW server_version").Scan(&v)
	return fmt.Sprintf("PostgreSQL %s", v), err
}

func (s *postgresServer) close() { _ = s.conn.Close(context.Background()) } // nothing is lost with it
