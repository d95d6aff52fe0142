package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
)

func TestSafe(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain, žluťoučký, 漢字 ✓": "plain, žluťoučký, 漢字 ✓",
		"\x1b[31m":               `\x1b[31m`,
		"a\tb\nc\rd":             `a\tb\nc\rd`,
		"\u009b1m":               `\u009b1m`,
		"\u202eabc\u200b":        `\u202eabc\u200b`,
		"\xff\xfe":               `\xff\xfe`,
		"\U000e0041":             `\U000e0041`,
		"\x00\x7f":               `\x00\x7f`,
		"\ufffd":                 `\ufffd`,
	} {
		if got := safe(in); got != want {
			t.Errorf("%q is %s, want %s", in, got, want)
		}
	}
}

// Chinese, Japanese, Korean and emoji take two columns of a terminal, and an accent of its own none.
func TestWideCharactersInATable(t *testing.T) {
	t.Parallel()
	var tab table
	tab.row("KIND", "ERROR")
	tab.row("切符を印刷", "席が無い")
	tab.row("e\u0301te\u0301", "ｆｕｌｌ 🎭")
	for limit, want := range map[int]string{
		0:  "KIND        ERROR\n切符を印刷  席が無い\ne\u0301te\u0301         ｆｕｌｌ 🎭\n",
		24: "KIND        ERROR\n切符を印刷  席が無い\ne\u0301te\u0301         ｆｕｌｌ 🎭\n",
		17: "KIND  ERROR\n切符を印刷\n  席が無い\ne\u0301te\u0301  ｆｕｌｌ 🎭\n",
	} {
		var out strings.Builder
		must(t, tab.print(&out, limit))
		if out.String() != want {
			t.Errorf("%d columns:\n%swant\n%s", limit, out.String(), want)
		}
	}
	for limit, want := range map[int]string{8: "席が無い", 7: "席が無…", 6: "席が…", 1: "…"} {
		if got := cut("席が無い", limit); got != want {
			t.Errorf("cut to %d: %s, want %s", limit, got, want)
		}
	}
}

func FuzzShown(f *testing.F) {
	f.Add("\x1b[2J\u009b\U000e0041\xff")
	f.Fuzz(func(t *testing.T, s string) {
		var out strings.Builder
		if err := (&tool{out: &out}).line(map[string]string{"s": s}); err != nil {
			t.Fatal(err)
		}
		for _, r := range strings.TrimSuffix(out.String(), "\n") + safe(s) + strings.ReplaceAll(safeLines(s, " "), "\n", "") {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q is printed raw, of %q", r, s)
			}
		}
		var back map[string]string
		if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back["s"] != strings.ToValidUTF8(s, "\ufffd") && len(back["s"]) == 0 && s != "" {
			t.Fatalf("%q came back as %q, %v", s, back["s"], err)
		}
	})
}

func TestInstant(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 15, 30, 0, 0, time.Local)
	day := func(d, hour, minute int) time.Time { return time.Date(2026, 11, d, hour, minute, 0, 0, time.Local) }
	for text, want := range map[string]time.Time{
		"2h":                   now.Add(-2 * time.Hour),
		"90s":                  now.Add(-90 * time.Second),
		"3d":                   now.Add(-72 * time.Hour),
		"+2h30m":               now.Add(150 * time.Minute),
		"+1d":                  now.Add(24 * time.Hour),
		"now":                  now,
		"today":                day(29, 0, 0),
		"yesterday":            day(28, 0, 0),
		"yesterday 14:05":      day(28, 14, 5),
		"tomorrow 09:00":       day(30, 9, 0),
		"09:00":                day(29, 9, 0),
		"2026-11-27":           day(27, 0, 0),
		"2026-11-27 08:15":     day(27, 8, 15),
		"2026-11-27T08:15":     day(27, 8, 15),
		"2026-11-27T08:15:00Z": time.Date(2026, 11, 27, 8, 15, 0, 0, time.UTC),
	} {
		if got, err := instant(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "never", "25:00", "yesterday noon", "-2h", "+-2h", "2", "1e300d"} {
		if got, err := instant(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": 0, "50/s": 20 * time.Millisecond, "50": 20 * time.Millisecond, "600/m": 100 * time.Millisecond, "100/h": 36 * time.Second,
	} {
		if got, err := pace(text); err != nil || got != want {
			t.Errorf("%q is %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"0/s", "50/d", "1e-11/s", "0.01/h", "-1", "x", "5/x", "NaN", "Inf"} {
		if got, err := pace(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59900 * time.Millisecond: "59s", 61 * time.Second: "1m01s",
		26 * time.Hour: "26h00m", 73 * time.Hour: "3d",
	} {
		if got := age(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
}
