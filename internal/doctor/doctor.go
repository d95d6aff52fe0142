// Package doctor judges what is known of a queue and the server it lies on: what is wrong,
// and what to do about it. It asks nobody; see jobs.Client.Diagnose.
package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Levels of a Finding, the worst first.
const (
	Error   = "error"
	Warning = "warning"
	Unknown = "unknown"
	Fine    = "fine"
)

// A Finding is one thing that was looked at.
type Finding struct{ Level, What, Advice string }

// Facts are what is known. Times are by Redis's clock.
type Facts struct {
	Now    time.Time         // zero: unknown
	Server map[string]string // of INFO and CONFIG; what is missing is unknown
	Skew   time.Duration     // of this machine's clock
	Keys   []Key
	Depths *Depths // nil: unknown

	Strange []string // kinds of delayed jobs that were put off since no worker that fetched them knew them

	Listed    bool     // the rest is known
	Workers   []Worker // consumers of the group
	Stuck     []Stuck
	Schedules []Schedule
	Unasked   []string // what could not be asked, and why
}

// A Key is what lies under a name.
type Key struct{ Name, Is, Want string }

// Depths of the queue.
type Depths struct {
	Ready, Dead int64
	Oldest      time.Duration
	Overdue     time.Duration // of the earliest that is delayed; negative: it is not due yet, 0: nothing is delayed
	Stream      bool          // it is there
	Group       bool
}

// A Worker is a consumer; without a lease, one without a process.
type Worker struct {
	Name     string
	Lease    time.Duration
	Silent   time.Duration // for longer than one that lives; 0: it is not
	Owns     int64
	KeepDead int
	Kinds    []string
}

// Stuck is a pending entry that nobody has renewed for too long.
type Stuck struct {
	Owner, Kind string
	Idle        time.Duration
}

// A Schedule as the workers follow it.
type Schedule struct {
	Name       string
	Last, Next time.Time
}

// Examine returns what there is to say, the worst first.
func Examine(f Facts) []Finding {
	var all []Finding
	for _, look := range []func(Facts) []Finding{
		version, role, eviction, memory, persistence, clocks, keys, group, workers, silent, leases, ghosts, stuck, strangers, waiting, overdue, dead, schedules, unasked,
	} {
		all = append(all, look(f)...)
	}
	order := []string{Error, Warning, Unknown, Fine}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return slices.Index(order, a.Level) - slices.Index(order, b.Level)
	})
	return all
}

func one(level, advice, format string, args ...any) []Finding {
	return []Finding{{level, fmt.Sprintf(format, args...), advice}}
}

func fine(format string, args ...any) []Finding { return one(Fine, "", format, args...) }

func unknown(what string) []Finding {
	return one(Unknown, "ask whoever runs the server; this user may not ask INFO and CONFIG, or they do not say", "%s is not known", what)
}

func version(f Facts) []Finding {
	text := f.Server["redis_version"]
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 2 {
		return unknown("the server's version")
	}
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	if major < 6 || major == 6 && minor < 2 {
		return one(Error, "upgrade to Redis 6.2 or newer", "the server is Redis %s", text)
	}
	return fine("the server is Redis %s", text)
}

func role(f Facts) []Finding {
	if f.Server["role"] != "slave" {
		return nil
	}
	return one(Error, "connect to the master", "this server is a replica, and takes no writes")
}

func eviction(f Facts) []Finding {
	policy, limited := f.Server["maxmemory_policy"], f.Server["maxmemory"] != "0"
	const advice = "set maxmemory-policy to noeviction"
	switch {
	case policy == "":
		return unknown("maxmemory-policy")
	case policy == "noeviction":
		return fine("maxmemory-policy is noeviction")
	case !limited:
		return one(Warning, advice, "maxmemory-policy is %s; there is no maxmemory now, with one jobs may be evicted", policy)
	case strings.HasPrefix(policy, "allkeys"):
		return one(Error, advice, "maxmemory-policy is %s: when memory is out, Redis throws the queue away", policy)
	}
	return one(Error, advice, "maxmemory-policy is %s: when memory is out, Redis throws away which ticks were enqueued", policy)
}

func memory(f Facts) []Finding {
	most, _ := strconv.ParseFloat(f.Server["maxmemory"], 64)
	used, _ := strconv.ParseFloat(f.Server["used_memory"], 64)
	if most == 0 || used < 0.9*most {
		return nil
	}
	return one(Warning, "raise maxmemory, or take something away: when it is out, nothing can be enqueued", "%.0f %% of maxmemory are used", 100*used/most)
}

func persistence(f Facts) []Finding {
	var all []Finding
	if f.Server["rdb_last_bgsave_status"] == "err" || f.Server["aof_last_write_status"] == "err" {
		all = one(Error, "look at the server's log and its disk", "the server's last attempt to write to disk has failed")
	}
	const advice = "set appendonly to yes"
	save, known := f.Server["save"]
	switch {
	case f.Server["aof_enabled"] == "":
		return append(all, unknown("the server's persistence")...)
	case f.Server["aof_enabled"] != "0" && f.Server["appendfsync"] == "no":
		return append(all, one(Warning, "set appendfsync to everysec", "appendfsync is no: a crash of the machine loses what the system had not written yet")...)
	case f.Server["aof_enabled"] != "0":
		return append(all, fine("appendonly is on")...)
	case save != "":
		return append(all, one(Warning, advice, "appendonly is off, and snapshots are rare (save %s): a crash loses all since the last one", save)...)
	case known:
		return append(all, one(Error, advice, "appendonly is off and there are no snapshots: a restart of the server loses every job")...)
	}
	return append(all, one(Warning, advice, "appendonly is off: a crash loses what no snapshot has")...)
}

func clocks(f Facts) []Finding {
	if f.Now.IsZero() {
		return nil // see unasked
	}
	if f.Skew.Abs() < 2*time.Second {
		return fine("this machine's clock agrees with Redis's")
	}
	how := "ahead of"
	if f.Skew < 0 {
		how = "behind"
	}
	return one(Warning, "set the clocks by NTP; Redis's decides, so jobs are on time, but logs and At() are not",
		"this machine's clock is %s %s Redis's", f.Skew.Abs().Round(time.Millisecond), how)
}

func keys(f Facts) []Finding {
	var all []Finding
	for _, k := range f.Keys {
		if k.Is != k.Want && k.Is != "none" {
			all = append(all, one(Error, "another program uses this name: give one of them a prefix",
				"key %q holds a %s, and should hold a %s", k.Name, k.Is, k.Want)...)
		}
	}
	if len(all) == 0 && len(f.Keys) > 0 {
		return fine("the keys hold what they should")
	}
	return all
}

func group(f Facts) []Finding {
	switch {
	case f.Depths == nil:
	case !f.Depths.Stream && f.Depths.Overdue != 0:
		return one(Warning, "start a worker: it makes the stream", "there is no stream: no job was ready yet, and no worker has run")
	case !f.Depths.Stream:
		return one(Warning, "is the prefix right? Else start a worker", "there is no stream: nothing was ever enqueued, and no worker has run")
	case !f.Depths.Group:
		return one(Error, "start a worker: it makes the group", "the stream has no group %q: no worker has ever run, or somebody has destroyed it", "workers")
	}
	return nil
}

func living(f Facts) (alive []Worker) {
	for _, w := range f.Workers {
		if w.Lease > 0 {
			alive = append(alive, w)
		}
	}
	return alive
}

func workers(f Facts) []Finding {
	switch n := len(living(f)); {
	case !f.Listed:
		return nil
	case n > 0:
		return fine("%s", count(n, "worker runs", "workers run"))
	case f.Depths != nil && f.Depths.Ready > 0:
		return one(Error, "start one", "no worker runs, and %s", count(int(f.Depths.Ready), "job is ready", "jobs are ready"))
	case f.Depths != nil && f.Depths.Overdue >= tooLate:
		return one(Error, "start one", "no worker runs, and the earliest delayed job is overdue by %s", f.Depths.Overdue.Round(time.Second))
	}
	return one(Warning, "start one, or what is delayed or scheduled will not run", "no worker runs")
}

func silent(f Facts) (all []Finding) {
	for _, w := range living(f) {
		if w.Silent > 0 {
			all = append(all, one(Warning, "if it was killed, others have its jobs by now; else look whether it is paused, or cannot reach Redis",
				"%s has been silent for %s", w.Name, w.Silent.Round(time.Second))...)
		}
	}
	return all
}

func leases(f Facts) []Finding {
	differ := map[time.Duration]string{}
	for _, w := range living(f) {
		differ[w.Lease] = w.Name
	}
	if len(differ) < 2 {
		return nil
	}
	var text []string
	for _, lease := range slices.Sorted(maps.Keys(differ)) {
		text = append(text, fmt.Sprintf("%s has %s", differ[lease], lease))
	}
	return one(Error, "give all workers the same Config.Lease", "workers have different leases, and may take each other for dead: %s", strings.Join(text, ", "))
}

func ghosts(f Facts) []Finding {
	var names []string
	owned := int64(0)
	for _, w := range f.Workers {
		if w.Lease == 0 {
			names, owned = append(names, w.Name), owned+w.Owns
		}
	}
	switch {
	case len(names) == 0:
		return nil
	case owned == 0:
		return fine("%s and will be forgotten: %s", count(len(names), "consumer has no process", "consumers have no process"), list(names))
	}
	return one(Warning, "a worker takes their jobs over when the lease has run out; if this stays, see which kinds no worker handles",
		"%s, and with %s: %s", count(len(names), "consumer has no process", "consumers have no process"), count(int(owned), "job", "jobs"), list(names))
}

func stuck(f Facts) []Finding {
	handled := map[string]bool{}
	for _, w := range living(f) {
		for _, kind := range w.Kinds {
			handled[kind] = true
		}
	}
	byOwner := map[string][]Stuck{}
	for _, s := range f.Stuck {
		byOwner[s.Owner] = append(byOwner[s.Owner], s)
	}
	var all []Finding
	for _, owner := range slices.Sorted(maps.Keys(byOwner)) {
		longest, unhandled := time.Duration(0), map[string]bool{}
		for _, s := range byOwner[owner] {
			longest = max(longest, s.Idle)
			if !handled[s.Kind] {
				unhandled[s.Kind] = true
			}
		}
		advice := "one on its last delivery waits until a worker is empty; else look at the workers' logs"
		if kinds := slices.Sorted(maps.Keys(unhandled)); len(kinds) > 0 {
			advice = "no worker that runs handles " + list(kinds) + ": start one that does"
		}
		all = append(all, one(Warning, advice, "%s of %s for up to %s",
			count(len(byOwner[owner]), "entry is pending and not renewed", "entries are pending and not renewed"), owner, longest.Round(time.Second))...)
	}
	return all
}

func strangers(f Facts) []Finding {
	if len(f.Strange) == 0 {
		return nil
	}
	return one(Warning, "have every worker handle them; after an hour their jobs are dead-lettered",
		"jobs are put off again and again, since no worker that fetched them knew their kinds: %s", list(f.Strange))
}

func waiting(f Facts) []Finding {
	const long = 5 * time.Minute
	if len(living(f)) == 0 || f.Depths == nil || f.Depths.Oldest < long {
		return nil
	}
	return one(Warning, "more slots, more workers or faster handlers", "the oldest job that is ready has waited for %s", f.Depths.Oldest.Round(time.Second))
}

// tooLate is what no delayed job is where one worker promotes: each tries once a second.
const tooLate = time.Minute

// overdue is what no worker promotes, though some run.
func overdue(f Facts) []Finding {
	if len(living(f)) == 0 || f.Depths == nil || f.Depths.Overdue < tooLate {
		return nil
	}
	return one(Error, "look at the workers' logs for the promote loop; is its Healthy asked?",
		"the earliest delayed job is overdue by %s", f.Depths.Overdue.Round(time.Second))
}

// dead is judged by the worker that keeps the fewest: the next letter that it writes pushes the others' out. Where none
// says how many it keeps, the default is a guess, and too many are no error.
func dead(f Facts) []Finding {
	if f.Depths == nil {
		return nil
	}
	n, keep := int(f.Depths.Dead), kept(f)
	known, most := keep > 0, fmt.Sprintf("of at most %d", keep)
	if !known {
		keep, most = 10_000, "and by default 10000 are kept"
	}
	const advice = "read, replay or discard them, or raise Config.KeepDead"
	switch {
	case known && n >= keep:
		return one(Error, advice, "there are %d dead letters, as many as are kept: with each new one the oldest is lost", n)
	case 10*n >= 9*keep:
		return one(Warning, advice, "there are %d dead letters, %s", n, most)
	}
	return fine("%s, %s", count(n, "there is one dead letter", "there are %d dead letters"), most)
}

// kept is how many dead letters the living workers keep; 0: unknown.
func kept(f Facts) (fewest int) {
	for _, w := range living(f) {
		if w.KeepDead > 0 && (fewest == 0 || w.KeepDead < fewest) {
			fewest = w.KeepDead
		}
	}
	return fewest
}

func schedules(f Facts) []Finding {
	if f.Now.IsZero() {
		return nil
	}
	var all []Finding
	for _, s := range f.Schedules {
		period := s.Next.Sub(s.Last)
		if s.Next.IsZero() || s.Last.IsZero() || period <= 0 || f.Now.Sub(s.Last) < max(2*period, time.Minute) {
			continue
		}
		all = append(all, one(Error, "look at the workers' logs for the tick loop; is its Healthy asked?",
			"schedule %q has not ticked since %s, for more than two periods", s.Name, s.Last.UTC().Format(time.RFC3339))...)
	}
	if len(all) == 0 && len(f.Schedules) > 0 {
		return fine("%s on time", count(len(f.Schedules), "schedule ticks", "schedules tick"))
	}
	return all
}

func unasked(f Facts) (all []Finding) {
	for _, what := range f.Unasked {
		advice := "see the errors above, or ask again"
		if strings.Contains(what, "NOPERM") || strings.Contains(what, "can't run") {
			advice = "ask as a user with more rights"
		}
		all = append(all, one(Unknown, advice, "%s", what)...)
	}
	return all
}

// count is a number with its noun: of one, and of many.
func count(n int, singular, plural string) string {
	if n == 1 {
		if strings.HasPrefix(singular, "there is") {
			return singular
		}
		return "1 " + singular
	}
	if strings.Contains(plural, "%d") {
		return fmt.Sprintf(plural, n)
	}
	return strconv.Itoa(n) + " " + plural
}

// list names the first few.
func list(names []string) string {
	const most = 5
	quoted := make([]string, 0, most)
	for _, name := range names[:min(len(names), most)] {
		if len(name) > 64 {
			name = name[:64]
		}
		quoted = append(quoted, strconv.Quote(name))
	}
	text := strings.Join(quoted, ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
