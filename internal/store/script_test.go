package store

import (
	"strings"
	"testing"
)

func TestAScriptTravelsWithWhatItCalls(t *testing.T) {
	for name, want := range map[string][]string{
		"done":    {},
		"retry":   {"is", "wrongtype", "pending", "owned", "held", "now"},
		"bury":    {"is", "wrongtype", "pending", "owned", "held"},
		"promote": {"is", "wrongtype", "now"},
		"gone":    {"pending"},
	} {
		text := script(name)
		if !strings.HasPrefix(text, "-- ") || strings.Count(text, "--") != 1 {
			t.Errorf("%s travels without its first line, or with more comment than that:\n%s", name, text)
		}
		for _, function := range want {
			if !strings.Contains(text, "local function "+function+"(") {
				t.Errorf("%s travels without %s:\n%s", name, function, text)
			}
		}
		if n := strings.Count(text, "local function "); n != len(want) {
			t.Errorf("%s travels with %d functions, and calls %d:\n%s", name, n, len(want), text)
		}
	}
}
