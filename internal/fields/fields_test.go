package fields_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stagedoor/jobs/internal/fields"
)

// reserved is the wire contract's list, in the order in which the names stand in an entry.
var reserved = []string{
	"kind", "job_id", "outbox_id", "scheduled_at", "attempts", "request_id", "trace",
	"last_error", "unknown_since", "raw", "error", "traceback",
}

func TestReserved(t *testing.T) {
	t.Parallel()
	for _, name := range reserved {
		if !fields.Reserved(name) {
			t.Errorf("Reserved(%q) = false", name)
		}
	}
	for _, name := range []string{"", "order_id", "Kind", "kind ", "id", "fields_base64", "errors", "tick"} {
		if fields.Reserved(name) {
			t.Errorf("Reserved(%q) = true", name)
		}
	}
}

func TestFlatten(t *testing.T) {
	t.Parallel()
	everything := map[string]string{"zeta": "z", "order_id": "4471", "": "empty", "\x00": "nul", "Kind": "k"}
	want := []string{"kind", "is kind", "", "empty", "\x00", "nul", "Kind", "k", "order_id", "4471", "zeta", "z"}
	for _, name := range reserved {
		everything[name] = "is " + name
		if name != "kind" {
			want = append(want, name, "is "+name)
		}
	}
	tests := []struct {
		name string
		in   map[string]string
		want []string
	}{
		{"nil", nil, []string{}},
		{"no kind", map[string]string{"b": "2", "a": "1"}, []string{"a", "1", "b", "2"}},
		{"empty values are there", map[string]string{"kind": "", "error": ""}, []string{"kind", "", "error", ""}},
		{
			"the dead letter of a render",
			map[string]string{
				"traceback": "render.go:88", "error": "not a row letter", "trace": "4bf92f35", "request_id": "7f3a9c2e",
				"attempts": "2", "outbox_id": "88210", "order_id": "4471", "kind": "render_tickets",
			},
			[]string{
				"kind", "render_tickets", "order_id", "4471", "outbox_id", "88210", "attempts", "2",
				"request_id", "7f3a9c2e", "trace", "4bf92f35", "error", "not a row letter", "traceback", "render.go:88",
			},
		},
		{"everything", everything, want},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := maps.Clone(tt.in)
			if got := fields.Flatten(tt.in); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			if !maps.Equal(before, tt.in) {
				t.Errorf("the map was changed to %q", tt.in)
			}
		})
	}
}

func TestFlattenManyFields(t *testing.T) {
	t.Parallel()
	m := make(map[string]string)
	for i := range 1000 {
		m[string(rune('a'+i%26))+string(rune(0x4e00+i))] = "v"
	}
	flat := fields.Flatten(m)
	var names []string
	for i := 0; i < len(flat); i += 2 {
		names = append(names, flat[i])
	}
	if len(names) != len(m) || !slices.IsSorted(names) {
		t.Errorf("%d names of %d, sorted %v", len(names), len(m), slices.IsSorted(names))
	}
}
