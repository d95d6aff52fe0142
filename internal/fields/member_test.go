package fields_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stagedoor/jobs/internal/fields"
)

// members are maps with the bytes they become.
var members = []struct {
	name   string
	fields map[string]string
	member string
}{
	{"no fields", map[string]string{}, `{}`},
	{"a retry", map[string]string{"kind": "send_tickets", "attempts": "1"}, `{"attempts":"1","kind":"send_tickets"}`},
	{"18 digits", map[string]string{"id": "900719925474099312"}, `{"id":"900719925474099312"}`},
	{"empty name and value", map[string]string{"": ""}, `{"":""}`},
	{"markup stays", map[string]string{"<a>": "&</a>\u2028\u2029"}, "{\"<a>\":\"&</a>\u2028\u2029\"}"},
	{"escapes", map[string]string{"q": "\"\\/"}, `{"q":"\"\\/"}`},
	{"controls", map[string]string{"\x00": "\b\f\n\r\t\x1f\x7f"}, `{"\u0000":"\b\f\n\r\t\u001f` + "\x7f" + `"}`},
	{"beyond ASCII", map[string]string{"é": "日本😀"}, `{"é":"日本😀"}`},
	{"replacement character", map[string]string{"r": "\ufffd"}, "{\"r\":\"\ufffd\"}"},
	{"text that looks like an escape", map[string]string{"e": `\ud800\u0041`}, `{"e":"\\ud800\\u0041"}`},
	{"bytes in a value", map[string]string{"a": "x", "b": "\xff"}, `{"fields_base64":{"YQ==":"eA==","Yg==":"/w=="}}`},
	{"bytes in a name", map[string]string{"\xff": "x"}, `{"fields_base64":{"/w==":"eA=="}}`},
	{"a surrogate in UTF-8", map[string]string{"s": "\xed\xa0\x80"}, `{"fields_base64":{"cw==":"7aCA"}}`},
	{"empty beside bytes", map[string]string{"": "\x80"}, `{"fields_base64":{"":"gA=="}}`},
	{"a field called fields_base64", map[string]string{"fields_base64": "x"}, `{"fields_base64":"x"}`},
	{
		"a field called fields_base64 with bytes",
		map[string]string{"fields_base64": "\xff"},
		`{"fields_base64":{"ZmllbGRzX2Jhc2U2NA==":"/w=="}}`,
	},
}

func TestMember(t *testing.T) {
	t.Parallel()
	for _, tt := range members {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := fields.Member(tt.fields); got != tt.member {
				t.Errorf("Member: got %s, want %s", got, tt.member)
			}
			got, err := fields.ParseMember(tt.member)
			if err != nil || !maps.Equal(got, tt.fields) {
				t.Errorf("ParseMember: got %q, %v, want %q", got, err, tt.fields)
			}
		})
	}
}

func TestMemberOfNil(t *testing.T) {
	t.Parallel()
	if got := fields.Member(nil); got != "{}" {
		t.Errorf("got %s", got)
	}
}

func TestMemberIsTheSameForEqualMaps(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{"", "\xff"} {
		first := fields.Member(manyFields(100, odd))
		for range 20 {
			if got := fields.Member(manyFields(100, odd)); got != first {
				t.Fatalf("got %s\nand %s", first, got)
			}
		}
	}
}

func manyFields(n int, suffix string) map[string]string {
	m := make(map[string]string)
	for i := range n {
		m[strings.Repeat("n", i)+suffix] = strings.Repeat("v", i) + suffix
	}
	return m
}

func TestMemberOfEveryByteAndSize(t *testing.T) {
	t.Parallel()
	for i := range 256 {
		checkRoundTrip(t, map[string]string{string([]byte{byte(i)}): string([]byte{'a', byte(i), 'b'})})
	}
	for _, unit := range []string{"a", "é\"", "\x00", "\xff"} {
		checkRoundTrip(t, map[string]string{"big": strings.Repeat(unit, 1<<20/len(unit))})
	}
	checkRoundTrip(t, manyFields(1000, ""))
	checkRoundTrip(t, manyFields(1000, "\xfe"))
}

// checkRoundTrip writes m as a member that any JSON parser takes and reads it back.
func checkRoundTrip(t *testing.T, m map[string]string) {
	t.Helper()
	before := maps.Clone(m)
	member := fields.Member(m)
	if !json.Valid([]byte(member)) || !utf8.ValidString(member) {
		t.Errorf("not JSON: %.300q", member)
	}
	got, err := fields.ParseMember(member)
	if err != nil || !maps.Equal(got, before) || !maps.Equal(m, before) {
		t.Errorf("%.300q came back from %.300q as %.300q, %v", before, member, got, err)
	}
}

func TestParseMemberOfOtherPrograms(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, member string
		want         map[string]string
	}{
		{"white space", " \t\r\n{ \"a\" : \"1\" ,\n \"b\":\"2\" } \n", map[string]string{"a": "1", "b": "2"}},
		{"white space in an empty object", "{ }", map[string]string{}},
		{"all escapes", `{"a":"\"\\\/\b\f\n\r\t"}`, map[string]string{"a": "\"\\/\b\f\n\r\t"}},
		{"unicode escapes", `{"\u00e9":"\u00E9\u65e5\u0000"}`, map[string]string{"é": "é日\x00"}},
		{"a surrogate pair", `{"a":"x\ud83d\ude00y"}`, map[string]string{"a": "x😀y"}},
		{"the last two halves are the pair", `{"a":"\ud83d\ud83d\ude00"}`, map[string]string{"a": "\xed\xa0\xbd😀"}},
		{"halves of pairs", `{"a":"\ud800","b":"\udfffx\ud800"}`, map[string]string{"a": "\xed\xa0\x80", "b": "\xed\xbf\xbfx\xed\xa0\x80"}},
		{"a half before another escape", `{"a":"\ud800\u0041\ud800\n"}`, map[string]string{"a": "\xed\xa0\x80A\xed\xa0\x80\n"}},
		{"an escaped replacement character", `{"a":"\ufffd"}`, map[string]string{"a": "\ufffd"}},
		{"bytes that are not UTF-8", "{\"a\xff\":\"\xc3\\n\xff\"}", map[string]string{"a\xff": "\xc3\n\xff"}},
		{"a name given twice", `{"a":"1","b":"2","\u0061":"3"}`, map[string]string{"a": "3", "b": "2"}},
		{"base64 with white space", `{ "fields_base64" : { "YQ==" : "eA==" } }`, map[string]string{"a": "x"}},
		{"base64 under an escaped name", `{"fields\u005fbase64":{"YQ==":"eA=="}}`, map[string]string{"a": "x"}},
		{"base64 with escaped slashes", `{"fields_base64":{"YQ==":"\/w=="}}`, map[string]string{"a": "\xff"}},
		{"base64 of no fields", `{"fields_base64":{}}`, map[string]string{}},
		{"base64, a name given twice", `{"fields_base64":{"YQ==":"eA==","YQ==":"eQ=="}}`, map[string]string{"a": "y"}},
		{"fields_base64 given twice, an object last", `{"fields_base64":"x","fields_base64":{"YQ==":"eA=="}}`, map[string]string{"a": "x"}},
		{"fields_base64 given twice, a string last", `{"fields_base64":{"YQ==":"eA=="},"fields_base64":"x"}`, map[string]string{"fields_base64": "x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := fields.ParseMember(tt.member)
			if err != nil || !maps.Equal(got, tt.want) {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestParseMemberRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	tests := []struct{ name, member, want string }{
		{"nothing", ``, `not a JSON object: ""`},
		{"rubbish", `not-a-job`, `not a JSON object: "not-a-job"`},
		{"long rubbish", long, `not a JSON object: "` + long[:64] + `"…`},
		{"a string", `"kind"`, `not a JSON object: "\"kind\""`},
		{"an array", `["kind"]`, `not a JSON object: "[\"kind\"]"`},
		{"null", `null`, `not a JSON object: "null"`},
		{"only a brace", `{`, `not a JSON object: want a name in quotes at byte 1, found the end`},
		{"a bare name", `{kind:"x"}`, `not a JSON object: want a name in quotes at byte 1, found "kind:\"x\""`},
		{"a name alone", `{"kind"}`, `not a JSON object: want ":" at byte 7, found "}"`},
		{"no value", `{"kind":}`, `not a JSON object: want a string at byte 8, found "}"`},
		{"cut in a value", `{"kind":"x`, `not a JSON object: want "\"" at byte 10, found the end`},
		{"cut after an escape", `{"kind":"\n`, `not a JSON object: want "\"" at byte 11, found the end`},
		{"cut in an escape", `{"kind":"\`, `not a JSON object: want an escape at byte 9, found "\\"`},
		{"cut behind a value", `{"kind":"x"`, `not a JSON object: want "," or "}" at byte 11, found the end`},
		{"no comma", `{"a":"1" "b":"2"}`, `not a JSON object: want "," or "}" at byte 9, found "\"b\":\"2\"}"`},
		{"comma at the end", `{"a":"1",}`, `not a JSON object: want a name in quotes at byte 9, found "}"`},
		{"trailing garbage", `{"a":"1"} {}`, `not a JSON object: want the end at byte 10, found "{}"`},
		{"trailing NUL", "{}\x00", `not a JSON object: want the end at byte 2, found "\x00"`},
		{"a line break in a string", "{\"a\":\"\n\"}", `not a JSON object: want no control character at byte 6, found "\n\"}"`},
		{"a tab behind an escape", "{\"a\":\"\\n\t\"}", `not a JSON object: want no control character at byte 8, found "\t\"}"`},
		{"an unknown escape", `{"a":"\x41"}`, `not a JSON object: want an escape at byte 6, found "\\x41\"}"`},
		{"a short unicode escape", `{"a":"\u41"}`, `not a JSON object: want an escape at byte 6, found "\\u41\"}"`},
		{"a signed unicode escape", `{"a":"\u+041"}`, `not a JSON object: want an escape at byte 6, found "\\u+041\"}"`},
		{"a number", `{"kind":"x","n":-12}`, `field "n": a number, not a string`},
		{"null in a field", `{"n":null}`, `field "n": null, not a string`},
		{"a bool", `{"n":true}`, `field "n": a bool, not a string`},
		{"an array in a field", `{"n":["x"]}`, `field "n": an array, not a string`},
		{"an object in a field", `{"n":{"x":"y"}}`, `field "n": an object, not a string`},
		{"a number in a long field", `{"` + long + `":1}`, `field "` + long[:64] + `"…: a number, not a string`},
		{"a number in fields_base64", `{"fields_base64":1}`, `field "fields_base64": a number, not a string`},
		{"other fields before", `{"a":"1","fields_base64":{}}`, `field "fields_base64": an object beside other fields`},
		{"other fields after", `{"fields_base64":{},"a":"1"}`, `field "fields_base64": an object beside other fields`},
		{"a name not base64", `{"fields_base64":{"a":"eA=="}}`, `field "fields_base64": name "a" is not base64`},
		{"a value not base64", `{"fields_base64":{"YQ==":"x"}}`, `field "a": "x" is not base64`},
		{"base64 without padding", `{"fields_base64":{"YQ==":"eA"}}`, `field "a": "eA" is not base64`},
		{"base64 for addresses", `{"fields_base64":{"YQ==":"_w=="}}`, `field "a": "_w==" is not base64`},
		{"a number in base64", `{"fields_base64":{"YQ==":1}}`, `field "a": a number, not a string`},
		{"cut in base64", `{"fields_base64":{"YQ==":"eA=="}`, `not a JSON object: want "," or "}" at byte 32, found the end`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, err := fields.ParseMember(tt.member)
			if err == nil || err.Error() != tt.want || m != nil {
				t.Errorf("got  %q, %v\nwant %s", m, err, tt.want)
			}
			var fe *fields.FieldError
			if strings.HasPrefix(tt.want, "field") != errors.As(err, &fe) {
				t.Errorf("error is a %T", err)
			}
		})
	}
}
