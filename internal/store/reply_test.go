package store

import (
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestReadEntries(t *testing.T) {
	t.Parallel()
	entry := "*2\r\n$3\r\n1-0\r\n*4\r\n$4\r\nkind\r\n$2\r\nok\r\n$1\r\na\r\n$4\r\n\r\n\xff\x00\r\n"
	again := "*2\r\n$3\r\n2-0\r\n*4\r\n$1\r\na\r\n$0\r\n\r\n$1\r\na\r\n$1\r\n2\r\n"
	tests := map[string]struct {
		raw  string
		want int
		err  string
	}{
		"RESP2":                 {"*1\r\n*2\r\n$4\r\njobs\r\n*2\r\n" + entry + again, 2, ""},
		"RESP3, a map":          {"%1\r\n$4\r\njobs\r\n*2\r\n" + entry + again, 2, ""},
		"RESP3, as miniredis":   {"*2\r\n$4\r\njobs\r\n*2\r\n" + entry + again, 2, ""},
		"a null of RESP2":       {"*-1\r\n", 0, ""},
		"a null string":         {"$-1\r\n", 0, ""},
		"a null of RESP3":       {"_\r\n", 0, ""},
		"no entries":            {"*1\r\n*2\r\n$4\r\njobs\r\n*0\r\n", 0, ""},
		"an error":              {"-NOGROUP No such key\r\n", 0, "NOGROUP No such key"},
		"broken off":            {"*1\r\n*2\r\n$4\r\njobs\r\n*2\r\n" + entry, 0, "breaks off"},
		"broken off in a value": {("*1\r\n*2\r\n$4\r\njobs\r\n*1\r\n" + entry)[:60], 0, "breaks off"},
		"something else":        {":1\r\n", 0, `":1"`},
		"more than that":        {"*-1\r\n:1\r\n", 0, "behind its end"},
		"a number that is none": {"*x\r\n", 0, `"*x"`},
		"far too many":          {"*1\r\n*2\r\n$4\r\njobs\r\n*999999999\r\n", 0, "more entries"},
		"far too many fields":   {"*1\r\n*2\r\n$4\r\njobs\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*999999999\r\n", 0, "breaks off"},
		"a length out of range": {"*1\r\n*2\r\n$99999999999999999999\r\njobs\r\n", 0, "9999"},
		"a length beyond it":    {"*1\r\n*2\r\n$9\r\njobs\r\n", 0, "no string"},
		"a length of 19 digits": {"*1\r\n*2\r\n$9223372036854775807\r\njobs\r\n", 0, "no string"},
		"nothing":               {"", 0, "breaks off"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entries, err := readEntries([]byte(test.raw))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil || len(entries) != test.want {
				t.Fatalf("%v, %v", entries, err)
			}
			if test.want == 2 {
				if entries[0].ID != "1-0" || !maps.Equal(entries[0].Fields, map[string]string{"kind": "ok", "a": "\r\n\xff\x00"}) {
					t.Errorf("%q", entries[0])
				}
				if entries[1].ID != "2-0" || !maps.Equal(entries[1].Fields, map[string]string{"a": "2"}) {
					t.Errorf("%q: of a name given twice the last counts", entries[1])
				}
			}
		})
	}
}

func TestReplyErrorIsRefused(t *testing.T) {
	t.Parallel()
	_, err := readEntries([]byte("-NOGROUP no\r\n"))
	if !Refused(err) || !NoGroup(err) {
		t.Errorf("%v is not what Redis has answered", err)
	}
	var _ redis.Error = replyError("")
}

func FuzzReadEntries(f *testing.F) {
	f.Add([]byte("*1\r\n*2\r\n$4\r\njobs\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"))
	f.Add([]byte("%1\r\n$4\r\njobs\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*-1\r\n"))
	f.Add([]byte("*-1\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if entries, err := readEntries(raw); err != nil && len(entries) > len(raw) {
			t.Errorf("%d entries of %d bytes", len(entries), len(raw))
		}
	})
}
