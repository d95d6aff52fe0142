package fields_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/fields"
)

// Any map comes back from its member, which is JSON whatever is in the map.
func FuzzMember(f *testing.F) {
	for _, tt := range members {
		for name, value := range tt.fields {
			f.Add(name, value, "kind", "ok")
		}
	}
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		checkRoundTrip(t, map[string]string{name1: value1, name2: value2})
	})
}

// What is taken for a member is JSON and means the same to encoding/json, and what encoding/json takes for an object of
// strings is a member.
func FuzzParseMember(f *testing.F) {
	for _, tt := range members {
		f.Add(tt.member)
	}
	f.Add(" { \"a\" : \"\\ud83d\\ude00\\ud800\\/\" , \"\xff\" : \"\" } ")
	f.Add(`{"a":"1","a":null}`)
	f.Add(`{"fields_base64":{"YQ==":"_w=="},"a":""}`)
	f.Fuzz(func(t *testing.T, member string) {
		m, err := fields.ParseMember(member)
		want, isObject := unmarshalStrings(member)
		if err != nil {
			if isObject || len(err.Error()) > 1000 {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		if !json.Valid([]byte(member)) {
			t.Fatalf("taken, but not JSON: %q", m)
		}
		again, err := fields.ParseMember(fields.Member(m))
		if err != nil || !maps.Equal(m, again) {
			t.Fatalf("%q came back as %q, %v", m, again, err)
		}
		if isObject && !maps.Equal(validStrings(m), validStrings(want)) {
			t.Fatalf("got %q, but encoding/json %q", m, want)
		}
	})
}

func unmarshalStrings(s string) (map[string]string, bool) {
	var all map[string]*string // nil for null
	if err := json.Unmarshal([]byte(s), &all); err != nil || all == nil {
		return nil, false
	}
	m := make(map[string]string)
	for name, value := range all {
		if value == nil {
			return nil, false
		}
		m[name] = *value
	}
	return m, true
}

// validStrings leaves out what encoding/json replaces where we keep bytes.
func validStrings(m map[string]string) map[string]string {
	valid := make(map[string]string)
	for name, value := range m {
		if s := name + " " + value; s == strings.ToValidUTF8(s, "") && !strings.ContainsRune(s, '\ufffd') {
			valid[name] = value
		}
	}
	return valid
}

type fuzzed struct {
	Text  string
	Bytes []byte
	Int   int8
	Uint  uint32
	Float float32
	Flag  bool
	At    time.Time
	For   time.Duration
	Color Color
	Any   any
	List  map[string][]int64
	Maybe *int
}

// Whatever is decoded encodes to fields that decode to the same; what is not is refused in few words.
func FuzzDecode(f *testing.F) {
	c := newCodec(f, fuzzed{})
	for _, name := range []string{"text", "bytes", "int", "uint", "float", "flag", "at", "for", "color", "any", "list", "maybe"} {
		for _, value := range []string{"", "-128", "1e3", "NaN", "true", "2025-09-18T21:14:01.5+02:00", "-1h0.5s", "red", `{"a":[1]}`, "\xff"} {
			f.Add(name, value)
		}
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		var first, second fuzzed
		if err := c.Decode(map[string]string{name: value}, &first); err != nil {
			if len(err.Error()) > 1500 {
				t.Fatalf("a long error: %v", err)
			}
			return
		}
		written := encode(t, c, &first)
		if err := c.Decode(written, &second); err != nil {
			t.Fatalf("%q: %v", written, err)
		}
		if again := encode(t, c, &second); !maps.Equal(again, written) {
			t.Fatalf("got  %q\nwant %q", again, written)
		}
		if (name == "text" || name == "bytes") && written[name] != value {
			t.Fatalf("got %q, want %q", written[name], value)
		}
	})
}

func encode(t *testing.T, c *fields.Codec, v any) map[string]string {
	t.Helper()
	m, err := c.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
