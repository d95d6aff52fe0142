package record_test

import (
	"fmt"
	"maps"
	"testing"
	"unicode/utf8"

	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/record"
	"github.com/stagedoor/jobs/internal/store"
)

// added are the fields that a runner writes and a replay takes away.
var added = []string{"error", "traceback", "raw", "last_error", "unknown_since"}

// Any entry parses or is refused in few words. What it says beside what a runner writes
// survives being rewritten for delayed, dead-lettered and replayed, byte for byte.
func FuzzParse(f *testing.F) {
	f.Add("1758203641877-0", "render_tickets", "88210", "2", "order_id", "4471", "seat", "14-C", uint16(0))
	f.Add("1-0", "", "", "", "", "", "", "", uint16(0))
	f.Add("1-0", "a", "", "-1", "attempts", "1", "kind", "b", uint16(0))
	f.Add("1-0", "a", "x", "2147483647", "raw", "x", "error", "y", uint16(0))
	f.Add("1-0", "a\xff", "\x00", "007", "\xff", "\xfe\xff", "fields_base64", "{}", uint16(0))
	f.Add("1-0", "a", "", "0", "last_error", "503", "unknown_since", "1758203641", uint16(store.MaxFields-2))
	f.Add("1-0", "a", "", "", "outbox_id", "9", "job_id", "", uint16(store.MaxFields+1))
	f.Fuzz(func(t *testing.T, id, kind, jobID, attempts, name1, value1, name2, value2 string, filler uint16) {
		m := map[string]string{"kind": kind, "job_id": jobID, "attempts": attempts}
		for name, value := range m {
			if value == "" {
				delete(m, name)
			}
		}
		m[name1], m[name2] = value1, value2
		for i := range filler % (2 * store.MaxFields) {
			m[fmt.Sprint("f", i)] = ""
		}
		e := store.Entry{ID: id, Fields: maps.Clone(m)}
		checkRecord(t, e)
		if !maps.Equal(e.Fields, m) {
			t.Fatalf("the entry itself was changed: %q", e.Fields)
		}
	})
}

func checkRecord(t *testing.T, e store.Entry) {
	h, err := record.Parse(e.ID, e.Fields)
	if err != nil && len(err.Error()) > 200 {
		t.Fatalf("a long error: %v", err)
	}
	checkArguments(t, e.Fields, record.Arguments(e.Fields))

	later := record.Rewritten(e)
	back, parseErr := fields.ParseMember(fields.Member(later))
	if parseErr != nil || !maps.Equal(back, later) {
		t.Fatalf("through delayed: %v, %q, want %q", parseErr, back, later)
	}
	letter := record.Letter(e, h.Attempts+1, "why", "where")
	if letter["error"] != "why" || letter["traceback"] != "where" || letter["attempts"] != fmt.Sprint(h.Attempts+1) {
		t.Fatalf("letter %q", letter)
	}
	if store.TooMany(e.Fields) {
		raw, err := fields.ParseMember(letter["raw"])
		if err != nil || !maps.Equal(raw, e.Fields) {
			t.Fatalf("raw: %v, %q, want %q", err, raw, e.Fields)
		}
		return
	}
	checkReplay(t, e, h, err, letter)
}

// checkReplay follows a dead letter back to ready.
func checkReplay(t *testing.T, e store.Entry, h record.Header, refused error, letter map[string]string) {
	replayed := record.Original(letter)
	replayed["attempts"] = "0"
	want := record.Rewritten(e)
	want["attempts"] = "0"
	for _, name := range added {
		delete(want, name)
	}
	if !maps.Equal(replayed, want) {
		t.Fatalf("replayed as %q, want %q", replayed, want)
	}
	again, err := record.Parse("another-id", replayed)
	if refused == nil && err != nil {
		t.Fatalf("accepted, and refused after its replay: %v", err)
	}
	if h.Attempts = 0; refused == nil && e.ID != "" && again != h {
		t.Fatalf("after its replay it is %+v, before %+v", again, h)
	}
}

func checkArguments(t *testing.T, all, own map[string]string) {
	n := 0
	for name, value := range all {
		if fields.Reserved(name) {
			continue
		}
		if got, ok := own[name]; !ok || got != value {
			t.Fatalf("argument %q is %q, want %q", name, got, value)
		}
		n++
	}
	if n != len(own) {
		t.Fatalf("%d arguments of %d: %q", len(own), n, own)
	}
}

// Bounded text is UTF-8, and no longer than it may be.
func FuzzBounded(f *testing.F) {
	f.Add("503", uint16(256))
	f.Add("\xff\xff\xff\xff", uint16(64))
	f.Add("ä\xf0\x9f\x98", uint16(64))
	f.Fuzz(func(t *testing.T, s string, n uint16) {
		limit := max(int(n), 64) // room for the mark
		got := record.Bounded(s, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("%d bytes of %d: %q", len(got), limit, got)
		}
		if utf8.ValidString(s) && len(s) <= limit && got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
}
