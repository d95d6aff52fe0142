package fields_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/fields"
)

// unreadable decodes text into a field v of type T and wants the error.
func unreadable[T any](text, want string) func(t *testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		var got one[T]
		wantFieldError(t, newCodec(t, got).Decode(map[string]string{"v": text}, &got), `field "v": `+want)
		var ptr one[*T]
		wantFieldError(t, newCodec(t, ptr).Decode(map[string]string{"v": text}, &ptr), `field "v": `+want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	t.Run("int", unreadable[int]("12x", `"12x" is not an int`))
	t.Run("int, empty", unreadable[int]("", `"" is not an int`))
	t.Run("int, space", unreadable[int](" 12", `" 12" is not an int`))
	t.Run("int, line break", unreadable[int]("12\n", `"12\n" is not an int`))
	t.Run("int, fraction", unreadable[int64]("1.0", `"1.0" is not an int64`))
	t.Run("int, exponent", unreadable[int]("1e9", `"1e9" is not an int`))
	t.Run("int, underscore", unreadable[int]("1_000", `"1_000" is not an int`))
	t.Run("int, hexadecimal", unreadable[int]("0x10", `"0x10" is not an int`))
	t.Run("int, other digits", unreadable[int]("١٢", `"١٢" is not an int`))
	t.Run("int, named", unreadable[Cents]("x", `"x" is not an int64`))
	t.Run("int8", unreadable[int8]("128", `"128" is out of range of int8 (-128 to 127)`))
	t.Run("int8, low", unreadable[int8]("-129", `"-129" is out of range of int8 (-128 to 127)`))
	t.Run("int16", unreadable[int16]("32768", `"32768" is out of range of int16 (-32768 to 32767)`))
	t.Run("int32", unreadable[int32]("2147483648", `"2147483648" is out of range of int32 (-2147483648 to 2147483647)`))
	t.Run("int64", unreadable[int64]("9223372036854775808",
		`"9223372036854775808" is out of range of int64 (-9223372036854775808 to 9223372036854775807)`))
	t.Run("uint", unreadable[uint]("-1", `"-1" is not a uint`))
	t.Run("uint8", unreadable[uint8]("256", `"256" is out of range of uint8 (0 to 255)`))
	t.Run("uint64", unreadable[uint64]("18446744073709551616",
		`"18446744073709551616" is out of range of uint64 (0 to 18446744073709551615)`))
	t.Run("float", unreadable[float64]("1,5", `"1,5" is not a float64`))
	t.Run("float, empty", unreadable[float64]("", `"" is not a float64`))
	t.Run("float32", unreadable[float32]("1e39", `"1e39" is out of range of float32`))
	t.Run("bool", unreadable[bool]("yes", `"yes" is not a bool`))
	t.Run("bool, empty", unreadable[bool]("", `"" is not a bool`))
	t.Run("time", unreadable[time.Time]("yesterday", `"yesterday" is not an RFC 3339 time`))
	t.Run("time, empty", unreadable[time.Time]("", `"" is not an RFC 3339 time`))
	t.Run("time, no offset", unreadable[time.Time]("2025-09-18T21:14:01", `"2025-09-18T21:14:01" is not an RFC 3339 time`))
	t.Run("time, epoch", unreadable[time.Time]("1758203641", `"1758203641" is not an RFC 3339 time`))
	t.Run("duration", unreadable[time.Duration]("90", `"90" is not a duration such as 1h30m0s`))
	t.Run("duration, empty", unreadable[time.Duration]("", `"" is not a duration such as 1h30m0s`))
	t.Run("duration, range", unreadable[time.Duration]("2562048h", `"2562048h" is not a duration such as 1h30m0s`))
	t.Run("text", unreadable[Color]("mauve", `"mauve" cannot be read as fields_test.Color: unknown color mauve`))
	t.Run("text on pointers", unreadable[Point]("", `"" cannot be read as fields_test.Point: EOF`))
	t.Run("text read only", unreadable[Letter]("AB", `"AB" cannot be read as fields_test.Letter: want one letter`))
	t.Run("JSON, empty", unreadable[[]int]("", `"" cannot be read as []int: unexpected end of JSON input`))
	t.Run("JSON, cut", unreadable[[]int]("[1,2", `"[1,2" cannot be read as []int: unexpected end of JSON input`))
	t.Run("JSON, other type", unreadable[map[string]int](`{"a":"b"}`,
		`"{\"a\":\"b\"}" cannot be read as map[string]int: json: cannot unmarshal string into Go value of type int`))
	t.Run("JSON, more behind", unreadable[any](`{} {}`,
		`"{} {}" cannot be read as interface {}: invalid character '{' after top-level value`))
}

func TestDecodeQuotesLittle(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("1", 1<<20)
	t.Run("64 bytes", unreadable[bool](digits[:64], `"`+digits[:64]+`" is not a bool`))
	t.Run("65 bytes", unreadable[bool](digits[:65], `"`+digits[:64]+`"… is not a bool`))
	t.Run("1 MiB", unreadable[int8](digits, `"`+digits[:64]+`"… is out of range of int8 (-128 to 127)`))
	t.Run("runes stay whole", unreadable[bool](digits[:62]+"日x", `"`+digits[:62]+`"… is not a bool`))
	t.Run("bytes are cut anywhere", unreadable[bool](strings.Repeat("\xbf", 99), `"`+strings.Repeat(`\xbf`, 64)+`"… is not a bool`))
	t.Run("some bytes", unreadable[bool]("ab"+strings.Repeat("\xbf", 99), `"ab`+strings.Repeat(`\xbf`, 62)+`"… is not a bool`))
	t.Run("text", unreadable[Color](digits,
		`"`+digits[:64]+`"… cannot be read as fields_test.Color: unknown color `+digits[:256-len("unknown color ")]+"…"))
	t.Run("JSON", unreadable[[]int8](digits,
		`"`+digits[:64]+`"… cannot be read as []int8: json: cannot unmarshal number into Go value of type []int8`))
}

func TestErrorsKeepTheirCause(t *testing.T) {
	t.Parallel()
	var got one[Point]
	if err := newCodec(t, got).Decode(map[string]string{"v": ""}, &got); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	var list one[[]int]
	err := newCodec(t, list).Decode(map[string]string{"v": `"a"`}, &list)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
		t.Errorf("got %v", err)
	}
}

func TestDecodeStopsAtTheFirstUnreadableField(t *testing.T) {
	t.Parallel()
	type args struct{ B, A int }
	var got args
	wantFieldError(t, newCodec(t, got).Decode(map[string]string{"a": "x", "b": "y"}, &got), `field "b": "y" is not an int`)
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	loop := map[string]any{}
	loop["a"] = loop
	tests := []struct {
		name string
		v    any
		want string
	}{
		{"text", one[Color]{-1}, `cannot be written as text: no such color`},
		{"text, optional", one[*Color]{new(Color(-1))}, `cannot be written as text: no such color`},
		{"a year too far", one[time.Time]{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
			`cannot be written as an RFC 3339 time: Time.AppendText: year outside of range [0,9999]`},
		{"JSON has no NaN", one[[]float64]{[]float64{math.NaN()}}, `cannot be written as JSON: json: unsupported value: NaN`},
		{"JSON has no chan", one[any]{make(chan int)}, `cannot be written as JSON: json: unsupported type: chan int`},
		{"bytes in JSON", one[[]string]{[]string{"\xff"}}, `holds text that is not UTF-8, which JSON cannot carry`},
		{"bytes in JSON behind a backslash", one[[]string]{[]string{`\ufffd\`, "\\\xff"}}, `holds text that is not UTF-8, which JSON cannot carry`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, err := newCodec(t, tt.v).Encode(tt.v)
			wantFieldError(t, err, `field "v": `+tt.want)
			if m != nil {
				t.Errorf("got %q", m)
			}
		})
	}
	if _, err := newCodec(t, one[any]{}).Encode(one[any]{loop}); err == nil || len(err.Error()) > 400 {
		t.Errorf("a loop: got %v", err)
	}
}

func TestWrongGoTypes(t *testing.T) {
	t.Parallel()
	type args struct{ A int }
	c := newCodec(t, args{})
	var none *args
	for v, want := range map[any]string{
		nil:           "encode <nil>: want fields_test.args or a pointer to one",
		none:          "encode *fields_test.args: want fields_test.args or a pointer to one",
		7:             "encode int: want fields_test.args or a pointer to one",
		one[int]{}:    "encode fields_test.one[int]: want fields_test.args or a pointer to one",
		new(one[int]): "encode *fields_test.one[int]: want fields_test.args or a pointer to one",
	} {
		if _, err := c.Encode(v); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for dst, want := range map[any]string{
		nil:           "decode into <nil>: want a pointer to fields_test.args",
		none:          "decode into *fields_test.args: want a pointer to fields_test.args",
		args{}:        "decode into fields_test.args: want a pointer to fields_test.args",
		new(one[int]): "decode into *fields_test.one[int]: want a pointer to fields_test.args",
	} {
		if err := c.Decode(map[string]string{"a": "1"}, dst); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestFieldErrorBoundsTheName(t *testing.T) {
	t.Parallel()
	err := &fields.FieldError{Field: strings.Repeat("n", 1000), Err: io.EOF}
	if want := `field "` + strings.Repeat("n", 64) + `"…: EOF`; err.Error() != want {
		t.Errorf("got %s", err)
	}
}
