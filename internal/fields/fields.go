// Package fields holds the forms a job's fields take outside a Go program: flat string fields of a stream entry, in an
// order people can read (Flatten), one member of the sorted set `delayed` (Member, ParseMember), and the arguments of a
// kind as a Go struct (Codec). Names and values are bytes: whatever goes in comes out.
//
// The functions here are pure, share nothing with what they are given and may be called from any goroutine.
package fields

import "slices"

// trailer names the library's own fields in the order they follow a job's arguments. The error and the traceback of a
// dead letter are its last two fields.
var trailer = [...]string{
	"job_id", "outbox_id", "scheduled_at", "attempts", "request_id", "trace",
	"last_error", "unknown_since", "raw", "error", "traceback",
}

// Reserved reports whether name is one of the library's own fields, which a job may not use for an argument.
func Reserved(name string) bool {
	switch name {
	case "kind", "job_id", "outbox_id", "attempts", "request_id", "trace", "scheduled_at",
		"last_error", "unknown_since", "error", "traceback", "raw":
		return true
	}
	return false
}

// Flatten returns m as name, value, name, value, … in the order in which entries are written: the kind, the job's own
// arguments sorted by name, then the library's fields, error and traceback last. Only what is in m is in the result.
func Flatten(m map[string]string) []string {
	flat := appendField(make([]string, 0, 2*len(m)), m, "kind")
	flat = appendArguments(flat, m)
	for _, name := range trailer {
		flat = appendField(flat, m, name)
	}
	return flat
}

// Entry is Flatten of a new job's fields: of its own, and of what the library says of it, which are names and values in
// Flatten's order, the kind first.
func Entry(own map[string]string, library ...string) []string {
	flat := append(make([]string, 0, 2*len(own)+len(library)), library[:2]...)
	return append(appendArguments(flat, own), library[2:]...)
}

func appendArguments(flat []string, m map[string]string) []string {
	var room [16]string // so that the names of most jobs need no memory of their own
	own := room[:0]
	for name := range m {
		if !Reserved(name) {
			own = append(own, name)
		}
	}
	slices.Sort(own)
	for _, name := range own {
		flat = append(flat, name, m[name])
	}
	return flat
}

// Map is the other way round. Of a name given twice the last counts.
func Map(pairs []string) map[string]string {
	m := make(map[string]string, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func appendField(flat []string, m map[string]string, name string) []string {
	if value, ok := m[name]; ok {
		return append(flat, name, value)
	}
	return flat
}
