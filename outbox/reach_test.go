package outbox

import (
	"testing"
	"time"
)

func TestReach(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var r reach
	for _, step := range []struct {
		name    string
		now     int
		from    int64 // want
		highest int64 // that the read brings
		full    bool
	}{
		{"the first is whole", 0, 0, 1000, true},
		{"a full one goes on where it ended", 1, 1000, 2000, true},
		{"and on", 2, 2000, 2100, false},
		{"the rest begins where the whole one before the last ended: nowhere yet", 3, 0, 0, false},
		{"where the first whole one ended", 1002, 1000, 2300, false},
		{"a whole one is due", 1003, 0, 2301, false},
		{"where the second ended", 1500, 2100, 0, false},
		{"a whole one brings a late row", 2003, 0, 1500, false},
		{"what was seen stays", 2004, 2301, 0, false},
		{"a whole one is due in a run of full ones too", 3005, 0, 2400, true},
		{"full", 3006, 2400, 3400, true},
		{"what is left", 3007, 3400, 3500, false},
		{"a whole one brings as many late rows as it can", 4006, 0, 1200, true},
		{"and goes on among them", 4007, 1200, 1300, true},
		{"to the end", 4008, 1300, 3600, false},
		{"and then with what is new", 4009, 2400, 0, false},
	} {
		now := at(step.now)
		from := r.from(now)
		if from != step.from {
			t.Errorf("%s: from %d, want %d", step.name, from, step.from)
		}
		r.read(from, step.highest, step.full, now.Add(time.Second))
	}
}
