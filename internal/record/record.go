// Package record knows what a job's flat fields say beside its arguments: what a producer
// must write, what a runner adds, and what of it is taken away again.
package record

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/store"
)

// A Header is what a record says of its job, all but the arguments.
type Header struct {
	ID, Kind         string
	Attempts         int // made so far
	Tick             time.Time
	RequestID, Trace string
}

// Parse reads a header; id is what the job is called where it has no ID of its own. With an
// error the record is no job, and the header what could be read of it.
func Parse(id string, m map[string]string) (Header, error) {
	h := Header{ID: id, Kind: m["kind"], RequestID: m["request_id"], Trace: m["trace"]}
	for _, name := range [...]string{"outbox_id", "job_id"} {
		if own := m[name]; own != "" {
			h.ID = own
		}
	}
	if text := m["scheduled_at"]; text != "" {
		h.Tick, _ = time.Parse(time.RFC3339, text)
	}
	if text, ok := m["attempts"]; ok {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || n == math.MaxInt32 {
			return h, fmt.Errorf("field \"attempts\": %q is not a count", Bounded(text, 64))
		}
		h.Attempts = int(n)
	}
	switch {
	case h.Kind == "":
		return h, errors.New("field \"kind\": there is none")
	case store.TooMany(m):
		return h, tooMany(len(m))
	}
	return h, nil
}

func tooMany(n int) error {
	return fmt.Errorf("it has %d fields, and %d are permitted", n, store.MaxFields)
}

// CheckKind refuses what cannot be the name of a kind.
func CheckKind(name string) error {
	if name == "" {
		return errors.New("a kind without a name")
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) || r == '\uFFFD' }) {
		return fmt.Errorf("the kind name %q has a space, an unprintable character or no valid UTF-8", name[:min(len(name), 64)])
	}
	return nil
}

// Check refuses what could not be enqueued: reserved arguments, too many fields of any sort.
func Check(arguments map[string]string, n int) error {
	for name := range arguments {
		if fields.Reserved(name) {
			return fmt.Errorf("the field name %q is reserved", Bounded(name, 64))
		}
	}
	if n > store.MaxFields {
		return tooMany(n)
	}
	return nil
}

// Arguments are a job's own fields.
func Arguments(m map[string]string) map[string]string {
	own := make(map[string]string, len(m))
	for name, value := range m {
		if !fields.Reserved(name) {
			own[name] = value
		}
	}
	return own
}

// Rewritten is an entry's record as it is written anew: with an ID.
func Rewritten(e store.Entry) map[string]string {
	m := maps.Clone(e.Fields)
	if m["job_id"] == "" && m["outbox_id"] == "" {
		m["job_id"] = e.ID
	}
	return m
}

// Original takes away what a runner has added, all but attempts.
func Original(m map[string]string) map[string]string { return bare(maps.Clone(m)) }

// bare is Original of a map that may be changed.
func bare(m map[string]string) map[string]string {
	for _, name := range [...]string{"error", "traceback", "raw", "last_error", "unknown_since"} {
		delete(m, name)
	}
	return m
}

// Letter is an entry's record as a dead letter.
func Letter(e store.Entry, tried int, text, traceback string) map[string]string {
	m := bare(Rewritten(e))
	if store.TooMany(e.Fields) {
		m = map[string]string{"job_id": e.ID, "raw": fields.Member(e.Fields)}
		if kind := e.Fields["kind"]; kind != "" {
			m["kind"] = kind
		}
	}
	m["attempts"] = strconv.Itoa(tried)
	m["error"], m["traceback"] = text, traceback
	return m
}

// Bounded is s as valid UTF-8, at most n bytes, marked where it was cut.
func Bounded(s string, n int) string {
	if len(s) <= n && utf8.ValidString(s) {
		return s
	}
	clean := strings.ToValidUTF8(s[:min(len(s), n+1)], "\uFFFD")
	if len(s) <= n && len(clean) <= n {
		return clean
	}
	mark := fmt.Sprintf(" … [cut, %d bytes]", len(s))
	room := min(len(clean), n-len(mark)) // a run of bad bytes has become one character
	return strings.ToValidUTF8(clean[:room], "") + mark
}
