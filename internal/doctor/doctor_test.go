package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/doctor"
)

var now = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

// healthy is a queue of which there is nothing to say.
func healthy() doctor.Facts {
	return doctor.Facts{
		Now: now,
		Server: map[string]string{"redis_version": "7.0.15", "role": "master", "maxmemory": "0", "maxmemory_policy": "noeviction",
			"used_memory": "1000", "aof_enabled": "1", "appendfsync": "everysec", "save": ""},
		Keys:   []doctor.Key{{Name: "jobs", Is: "stream", Want: "stream"}, {Name: "delayed", Is: "none", Want: "zset"}},
		Depths: &doctor.Depths{Ready: 3, Dead: 1, Oldest: time.Second, Stream: true, Group: true},
		Listed: true,
		Workers: []doctor.Worker{
			{Name: "a", Lease: 12 * time.Second, KeepDead: 10_000, Kinds: []string{"mail"}},
			{Name: "b", Lease: 12 * time.Second, KeepDead: 10_000, Kinds: []string{"mail", "render"}},
		},
		Schedules: []doctor.Schedule{{Name: "sweep", Last: now.Add(-30 * time.Second), Next: now.Add(30 * time.Second)}},
	}
}

func TestExamineAHealthyQueue(t *testing.T) {
	t.Parallel()
	queue := healthy()
	queue.Depths.Overdue = 2 * time.Second // it waits for the next promote
	for _, f := range doctor.Examine(queue) {
		if f.Level != doctor.Fine || f.Advice != "" {
			t.Errorf("%+v", f)
		}
	}
}

func TestExamineFinds(t *testing.T) {
	t.Parallel()
	server := func(pairs ...string) func(*doctor.Facts) {
		return func(f *doctor.Facts) {
			for i := 0; i < len(pairs); i += 2 {
				if f.Server[pairs[i]] = pairs[i+1]; pairs[i+1] == "?" {
					delete(f.Server, pairs[i])
				}
			}
		}
	}
	for name, c := range map[string]struct {
		but   func(*doctor.Facts)
		level string
		says  string // of What and Advice
	}{
		"promotion":             {func(f *doctor.Facts) { f.Depths.Overdue = 2 * time.Minute }, doctor.Error, "overdue by 2m0s|promote"},
		"an old server":         {server("redis_version", "6.0.16"), doctor.Error, "Redis 6.0.16|upgrade"},
		"no version":            {server("redis_version", "?"), doctor.Unknown, "version"},
		"a replica":             {server("role", "slave"), doctor.Error, "replica|master"},
		"eviction of all":       {server("maxmemory_policy", "allkeys-lru", "maxmemory", "5000"), doctor.Error, "allkeys-lru|noeviction"},
		"eviction of some":      {server("maxmemory_policy", "volatile-ttl", "maxmemory", "5000"), doctor.Error, "ticks|noeviction"},
		"eviction, no limit":    {server("maxmemory_policy", "allkeys-lru"), doctor.Warning, "no maxmemory now|noeviction"},
		"no policy":             {server("maxmemory_policy", "?"), doctor.Unknown, "maxmemory-policy"},
		"memory nearly out":     {server("maxmemory", "1100"), doctor.Warning, "91 %|raise"},
		"no persistence":        {server("aof_enabled", "0"), doctor.Error, "loses every job|appendonly"},
		"snapshots":             {server("aof_enabled", "0", "save", "3600 1"), doctor.Warning, "save 3600 1|appendonly"},
		"snapshots, perhaps":    {server("aof_enabled", "0", "save", "?"), doctor.Warning, "appendonly is off"},
		"persistence not known": {server("aof_enabled", "?"), doctor.Unknown, "persistence"},
		"never synced":          {server("appendfsync", "no"), doctor.Warning, "appendfsync|everysec"},
		"the disk is full":      {server("rdb_last_bgsave_status", "err"), doctor.Error, "failed|disk"},
		"our clock is late":     {func(f *doctor.Facts) { f.Skew = -3 * time.Second }, doctor.Warning, "3s behind|NTP"},
		"our clock is early":    {func(f *doctor.Facts) { f.Skew = 3 * time.Second }, doctor.Warning, "3s ahead|NTP"},
		"a wrong type":          {func(f *doctor.Facts) { f.Keys[1].Is = "list" }, doctor.Error, `"delayed" holds a list|prefix`},
		"no stream":             {func(f *doctor.Facts) { f.Depths = &doctor.Depths{} }, doctor.Warning, "no stream|prefix"},
		"no stream, but delayed": {func(f *doctor.Facts) { f.Depths = &doctor.Depths{Overdue: -time.Hour} }, doctor.Warning,
			"no stream: no job was ready yet|start a worker: it makes the stream"},
		"no group":          {func(f *doctor.Facts) { f.Depths.Group = false }, doctor.Error, "no group|start"},
		"no worker":         {func(f *doctor.Facts) { f.Workers = nil }, doctor.Error, "no worker runs, and 3 jobs are ready|start"},
		"no worker, no job": {func(f *doctor.Facts) { f.Workers, f.Depths.Ready = nil, 0 }, doctor.Warning, "no worker runs|delayed"},
		"no worker, job overdue": {func(f *doctor.Facts) { f.Workers, f.Depths.Ready, f.Depths.Overdue = nil, 0, 2*time.Minute }, doctor.Error,
			"no worker runs, and the earliest delayed job is overdue by 2m0s|start one"},
		"no worker, job due":   {func(f *doctor.Facts) { f.Workers, f.Depths.Ready, f.Depths.Overdue = nil, 0, 2*time.Second }, doctor.Warning, "no worker runs|delayed"},
		"a silent worker":      {func(f *doctor.Facts) { f.Workers[0].Silent = 45 * time.Second }, doctor.Warning, "a has been silent for 45s|killed"},
		"an unknown kind":      {func(f *doctor.Facts) { f.Strange = []string{"pdf"} }, doctor.Warning, `"pdf"|every worker`},
		"two leases":           {func(f *doctor.Facts) { f.Workers[0].Lease = time.Second }, doctor.Error, "a has 1s, b has 12s|same"},
		"a ghost":              {func(f *doctor.Facts) { f.Workers[0] = doctor.Worker{Name: "a", Owns: 2} }, doctor.Warning, `with 2 jobs: "a"|takes their jobs over`},
		"stuck":                {func(f *doctor.Facts) { f.Stuck = []doctor.Stuck{{"a", "mail", time.Hour}, {"a", "mail", time.Minute}} }, doctor.Warning, "2 entries|of a for up to 1h|last delivery"},
		"stuck, no handler":    {func(f *doctor.Facts) { f.Stuck = []doctor.Stuck{{"a", "pdf", time.Hour}} }, doctor.Warning, `1 entry|handles "pdf"`},
		"long waits":           {func(f *doctor.Facts) { f.Depths.Oldest = time.Hour }, doctor.Warning, "1h0m0s|slots"},
		"many dead":            {func(f *doctor.Facts) { f.Depths.Dead = 9000 }, doctor.Warning, "9000|KeepDead"},
		"too many dead":        {func(f *doctor.Facts) { f.Depths.Dead = 10_000 }, doctor.Error, "oldest is lost|KeepDead"},
		"dead, two limits":     {func(f *doctor.Facts) { f.Depths.Dead, f.Workers[0].KeepDead = 300, 300 }, doctor.Error, "300 dead letters|oldest is lost"},
		"dead, limits in turn": {func(f *doctor.Facts) { f.Depths.Dead, f.Workers[1].KeepDead = 280, 300 }, doctor.Warning, "280 dead letters, of at most 300"},
		"no tick": {func(f *doctor.Facts) {
			f.Schedules[0].Last = now.Add(-2 * time.Minute)
			f.Schedules[0].Next = now.Add(-time.Minute)
		}, doctor.Error, `"sweep"|two periods|Healthy`},
		"not permitted": {func(f *doctor.Facts) { f.Unasked = []string{"the keys: NOPERM"} }, doctor.Unknown, "NOPERM|rights"},
		"hostile names": {func(f *doctor.Facts) {
			f.Stuck = []doctor.Stuck{{"a", "\x1b[2J" + strings.Repeat("x", 1e6), time.Hour}}
		}, doctor.Warning, `"\x1b[2Jxxx`},
	} {
		f := healthy()
		c.but(&f)
		worst := doctor.Examine(f)[0]
		text := worst.What + "|" + worst.Advice
		if worst.Level != c.level || worst.Advice == "" || len(text) > 1000 {
			t.Errorf("%s: %+v", name, worst)
		}
		found := false
		for _, f := range doctor.Examine(f) {
			found = found || f.Level == c.level && all(f.What+"|"+f.Advice, strings.Split(c.says, "|"))
		}
		if !found {
			t.Errorf("%s: nothing says %q: %q", name, c.says, text)
		}
	}
}

func all(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// What is delayed was enqueued, under this very prefix, whether it is due or not.
func TestExamineWhereAllIsDelayed(t *testing.T) {
	t.Parallel()
	for _, overdue := range []time.Duration{-time.Hour, time.Hour} {
		f := healthy()
		f.Workers, f.Depths = nil, &doctor.Depths{Overdue: overdue}
		for _, found := range doctor.Examine(f) {
			if text := found.What + found.Advice; strings.Contains(text, "ever enqueued") || strings.Contains(text, "prefix") {
				t.Errorf("overdue by %s: %+v", overdue, found)
			}
		}
	}
}

// How many dead letters are kept is the workers' to say, of those that live.
func TestExamineDoesNotKnowHowManyDeadAreKept(t *testing.T) {
	t.Parallel()
	for dead, want := range map[int64]string{
		1: doctor.Fine, 300: doctor.Fine, 9000: doctor.Warning, 10_000: doctor.Warning, 50_000: doctor.Warning,
	} {
		for name, workers := range map[string][]doctor.Worker{
			"no worker": nil, "a ghost": {{Name: "a", KeepDead: 100}}, "an older worker": {{Name: "a", Lease: time.Second}},
		} {
			f := healthy()
			f.Workers, f.Depths.Dead, f.Depths.Ready = workers, dead, 0
			for _, found := range doctor.Examine(f) {
				if !strings.Contains(found.What, "dead letter") {
					continue
				}
				if found.Level != want || !strings.Contains(found.What, "by default 10000") || strings.Contains(found.What, "lost") {
					t.Errorf("%s, %d dead letters: %+v", name, dead, found)
				}
			}
		}
	}
}

// What is not known is not said to be wrong.
func TestExamineAdvisesOnWhatCouldNotBeAsked(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Now, f.Skew = time.Time{}, time.Hour
	f.Unasked = []string{"the clock: NOPERM time", "the depths: WRONGTYPE"}
	advice := map[string]string{}
	for _, found := range doctor.Examine(f) {
		advice[found.What] = found.Advice
		if strings.Contains(found.What, "this machine's clock") || strings.Contains(found.What, "schedule") {
			t.Errorf("it knows of a clock: %+v", found)
		}
	}
	if got := advice["the clock: NOPERM time"]; got != "ask as a user with more rights" {
		t.Errorf("what is not permitted: %q", got)
	}
	if got := advice["the depths: WRONGTYPE"]; strings.Contains(got, "rights") {
		t.Errorf("what has failed: %q", got)
	}
}

func TestExamineKnowsNothing(t *testing.T) {
	t.Parallel()
	for _, f := range doctor.Examine(doctor.Facts{}) {
		if f.Level == doctor.Error || f.Level == doctor.Warning {
			t.Errorf("%+v", f)
		}
	}
}

func TestExamineSaysTheWorstFirst(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Depths.Dead, f.Skew, f.Server["aof_enabled"] = 9000, time.Hour, "0"
	delete(f.Server, "maxmemory_policy")
	var levels []string
	for _, found := range doctor.Examine(f) {
		if len(levels) == 0 || levels[len(levels)-1] != found.Level {
			levels = append(levels, found.Level)
		}
	}
	if got := strings.Join(levels, " "); got != "error warning unknown fine" {
		t.Error(got)
	}
}
