package fields_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/fields"
)

// Named types over basic kinds, and types that have a text form of their own.
type (
	Label  string
	Cents  int64
	Count  uint16
	Ratio  float32
	Flag   bool
	Blob   []byte
	Octet  byte
	Octets []Octet
	Period time.Duration
	Color  int      // MarshalText on values
	Point  struct { // MarshalText on pointers, no exported fields
		x, y int
	}
	Letter  string // UnmarshalText only
	Letters []Letter
	Price   int64 // methods for JSON, which only matter inside JSON
)

func (c Color) MarshalText() ([]byte, error) {
	if c < 0 {
		return nil, errors.New("no such color")
	}
	return []byte([]string{"red", "green"}[c]), nil
}

func (c *Color) UnmarshalText(b []byte) error {
	switch string(b) {
	case "red":
		*c = 0
	case "green":
		*c = 1
	default:
		return fmt.Errorf("unknown color %s", b)
	}
	return nil
}

func (p *Point) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d/%d", p.x, p.y), nil }
func (p *Point) UnmarshalText(b []byte) error {
	_, err := fmt.Sscanf(string(b), "%d/%d", &p.x, &p.y)
	return err
}

func (l *Letter) UnmarshalText(b []byte) error {
	if len(b) != 1 {
		return errors.New("want one letter")
	}
	*l = Letter(b)
	return nil
}

func (p Price) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"%d EUR"`, int64(p)), nil }
func (p *Price) UnmarshalJSON(b []byte) error {
	_, err := fmt.Sscanf(string(b), `"%d EUR"`, (*int64)(p))
	return err
}

// Opaque has methods for JSON, and nothing that encoding/json could see without them.
type Opaque struct {
	text string
	Done chan int
}

func (o Opaque) MarshalJSON() ([]byte, error)  { return json.Marshal(o.text) }
func (o *Opaque) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &o.text) }

// Side is a byte with a text form.
type Side byte

func (s Side) MarshalText() ([]byte, error) { return []byte([]string{"left", "right"}[s]), nil }
func (s *Side) UnmarshalText(b []byte) error {
	*s = Side(len(b) - len("left"))
	return nil
}

type one[T any] struct{ V T }

// oneField runs T as the single field of a job, v, from value to text and back.
func oneField[T any](value T, text string) func(t *testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		c := newCodec(t, one[T]{})
		for _, v := range []any{one[T]{value}, &one[T]{value}} {
			m, err := c.Encode(v)
			if want := map[string]string{"v": text}; err != nil || !maps.Equal(m, want) {
				t.Fatalf("Encode(%T): got %.200q, %v, want %.200q", v, m, err, want)
			}
		}
		var got one[T]
		if err := c.Decode(map[string]string{"v": text}, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.V, value) {
			t.Errorf("Decode: got %.200v, want %.200v", got.V, value)
		}
	}
}

func TestRoundTripText(t *testing.T) {
	t.Parallel()
	mega := strings.Repeat("é\x00\"<\xff", 1<<20/6)
	t.Run("string", oneField("x", "x"))
	t.Run("string, empty", oneField("", ""))
	t.Run("string, spaces", oneField(" x ", " x "))
	t.Run("string, not UTF-8", oneField("\xff\x00", "\xff\x00"))
	t.Run("string, 1 MiB", oneField(mega, mega))
	t.Run("string, named", oneField(Label("14C"), "14C"))
	t.Run("bytes", oneField([]byte("\x00\xff\n"), "\x00\xff\n"))
	t.Run("bytes, 1 MiB", oneField([]byte(mega), mega))
	t.Run("bytes, nil", oneField([]byte(nil), ""))
	t.Run("bytes, named", oneField(Blob("b"), "b"))
	t.Run("bytes, named twice", oneField(Octets("b"), "b"))
	t.Run("raw JSON", oneField(json.RawMessage(`{"a": 1}`), `{"a": 1}`))
	t.Run("text on values", oneField(Color(1), "green"))
	t.Run("text on pointers", oneField(Point{3, -4}, "3/-4"))
	t.Run("text read only", oneField(Letter("A"), "A"))
	t.Run("text, address", oneField(netip.MustParseAddr("::1"), "::1"))
	t.Run("text, no address", oneField(netip.Addr{}, ""))
	t.Run("text, big number", oneField(*big.NewInt(-900719925474099312), "-900719925474099312"))
	t.Run("text, pointer", oneField(new(Point{1, 2}), "1/2"))
	t.Run("text, embedded time", oneField(Stamp{time.Unix(0, 0).UTC()}, "1970-01-01T00:00:00Z"))
}

func TestRoundTripNumbers(t *testing.T) {
	t.Parallel()
	t.Run("bool", oneField(true, "true"))
	t.Run("bool, named", oneField(Flag(false), "false"))
	t.Run("int", oneField(0, "0"))
	t.Run("int, 18 digits", oneField(900719925474099312, "900719925474099312"))
	t.Run("int, min", oneField(math.MinInt64, "-9223372036854775808"))
	t.Run("int8, min", oneField(int8(-128), "-128"))
	t.Run("int16, max", oneField(int16(32767), "32767"))
	t.Run("int32, min", oneField(int32(math.MinInt32), "-2147483648"))
	t.Run("int64, max", oneField(int64(math.MaxInt64), "9223372036854775807"))
	t.Run("int, named", oneField(Cents(-5), "-5"))
	t.Run("int, JSON method", oneField(Price(5), "5"))
	t.Run("uint", oneField(uint(7), "7"))
	t.Run("uint8, max", oneField(uint8(255), "255"))
	t.Run("uint16, named", oneField(Count(65535), "65535"))
	t.Run("uint32, max", oneField(uint32(math.MaxUint32), "4294967295"))
	t.Run("uint64, max", oneField(uint64(math.MaxUint64), "18446744073709551615"))
	t.Run("uintptr", oneField(uintptr(9), "9"))
	t.Run("float64", oneField(0.1, "0.1"))
	t.Run("float64, whole", oneField(4471000.0, "4471000"))
	t.Run("float64, zero", oneField(0.0, "0"))
	t.Run("float64, largest", oneField(math.MaxFloat64, "1.7976931348623157e+308"))
	t.Run("float64, smallest", oneField(math.SmallestNonzeroFloat64, "5e-324"))
	t.Run("float64, infinite", oneField(math.Inf(-1), "-Inf"))
	t.Run("float32", oneField(float32(0.1), "0.1"))
	t.Run("float32, largest", oneField(Ratio(math.MaxFloat32), "3.4028235e+38"))
}

func TestRoundTripTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 9, 18, 21, 14, 1, 641877001, time.UTC)
	t.Run("UTC", oneField(at, "2025-09-18T21:14:01.641877001Z"))
	t.Run("zero", oneField(time.Time{}, "0001-01-01T00:00:00Z"))
	t.Run("last year", oneField(time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), "9999-12-31T23:59:59.999999999Z"))
	t.Run("duration", oneField(90*time.Minute, "1h30m0s"))
	t.Run("duration, zero", oneField(time.Duration(0), "0s"))
	t.Run("duration, min", oneField(time.Duration(math.MinInt64), "-2562047h47m16.854775808s"))
	t.Run("duration, max", oneField(time.Duration(math.MaxInt64), "2562047h47m16.854775807s"))
	t.Run("duration, micro", oneField(1001*time.Nanosecond, "1.001µs"))
	t.Run("duration, named", oneField(Period(time.Second), "1000000000"))
}

func TestRoundTripJSON(t *testing.T) {
	t.Parallel()
	type seat struct {
		Row   string `json:"row"`
		Price Price  `json:"price"`
	}
	t.Run("slice", oneField([]string{"<a>", "\ufffd", `\ufffd`}, "[\"<a>\",\"\ufffd\",\"\\\\ufffd\"]"))
	t.Run("slice, empty", oneField([]int{}, "[]"))
	t.Run("slice, nil", oneField([]int(nil), "null"))
	t.Run("slice, text elements", oneField(Letters{"A"}, `["A"]`))
	t.Run("array", oneField([3]byte{1, 2}, "[1,2,0]"))
	t.Run("map", oneField(map[string]int64{"b": 900719925474099312, "a": 1}, `{"a":1,"b":900719925474099312}`))
	t.Run("struct", oneField(seat{"C", 45}, `{"row":"C","price":"45 EUR"}`))
	t.Run("struct, no fields", oneField(struct{}{}, `{}`))
	t.Run("struct, optional", oneField(&seat{"C", 0}, `{"row":"C","price":"0 EUR"}`))
	t.Run("pointer to nil", oneField(new([]int(nil)), `null`))
	t.Run("struct, JSON methods", oneField(Opaque{text: "x"}, `"x"`))
	t.Run("slice of bytes with a text form", oneField([]Side{0, 1}, `["left","right"]`))
	t.Run("any", oneField(any(map[string]any{"n": 1.5}), `{"n":1.5}`))
	t.Run("any, nil", oneField(any(nil), `null`))
}

func TestTimeKeepsItsInstantAndOffset(t *testing.T) {
	t.Parallel()
	c := newCodec(t, one[time.Time]{})
	for offset, want := range map[int]string{
		2 * 3600:        "2025-09-18T23:14:01+02:00",
		-(9*3600 + 900): "2025-09-18T11:59:01-09:15",
		53*60 + 28:      "2025-09-18T21:14:01Z", // an offset that RFC 3339 cannot say
	} {
		at := time.Date(2025, 9, 18, 21, 14, 1, 0, time.UTC).In(time.FixedZone("", offset))
		m, err := c.Encode(one[time.Time]{at})
		if err != nil || m["v"] != want {
			t.Errorf("got %q, %v, want %s", m, err, want)
		}
		var got one[time.Time]
		if err := c.Decode(m, &got); err != nil || !got.V.Equal(at) || got.V.Format(time.RFC3339) != want {
			t.Errorf("got %v, %v, want %v", got.V, err, at)
		}
	}
}

func TestNaN(t *testing.T) {
	t.Parallel()
	c := newCodec(t, one[float64]{})
	m, err := c.Encode(one[float64]{math.NaN()})
	if err != nil || m["v"] != "NaN" {
		t.Fatalf("got %q, %v", m, err)
	}
	var got one[float64]
	if err := c.Decode(m, &got); err != nil || !math.IsNaN(got.V) {
		t.Errorf("got %v, %v", got.V, err)
	}
	m, err = c.Encode(one[float64]{math.Copysign(0, -1)})
	if err != nil || m["v"] != "-0" || c.Decode(m, &got) != nil || !math.Signbit(got.V) {
		t.Errorf("negative zero: got %q, %v, %v", m, err, got.V)
	}
}

func TestFloatsReadBackTheSame(t *testing.T) {
	t.Parallel()
	c := newCodec(t, one[float64]{})
	for f := 1e-30; f < 1e30; f *= 3.7 {
		var got one[float64]
		m, err := c.Encode(one[float64]{f})
		if err != nil || c.Decode(m, &got) != nil || got.V != f {
			t.Errorf("%v: got %q, %v, %v", f, m, err, got.V)
		}
	}
}

// optional has a pointer to everything that a pointer may lead to.
type optional struct {
	Text  *string
	N     *int `job:"n"`
	Flag  *bool
	Bytes *[]byte
	At    *time.Time
	For   *time.Duration
	Color *Color
	List  *[]int
	Any   *any
}

func TestOptionalFields(t *testing.T) {
	t.Parallel()
	c := newCodec(t, optional{})
	m, err := c.Encode(optional{})
	if err != nil || len(m) != 0 {
		t.Fatalf("nil pointers: got %q, %v", m, err)
	}
	full := optional{
		new(""), new(0), new(false), new([]byte(nil)), new(time.Time{}), new(time.Duration(0)), new(Color(0)), new([]int{}), new(any),
	}
	if m, err = c.Encode(full); err != nil || len(m) != reflect.TypeOf(full).NumField() {
		t.Fatalf("pointers to zero: got %q, %v", m, err)
	}
	var got optional
	if err := c.Decode(m, &got); err != nil || !reflect.DeepEqual(got, full) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := c.Decode(map[string]string{}, &got); err != nil || got != (optional{}) {
		t.Errorf("missing fields: got %+v, %v", got, err)
	}
}

func TestRequired(t *testing.T) {
	t.Parallel()
	type args struct {
		OrderID int  `job:",required"`
		Seat    *int `job:"seat,required"`
		Note    string
	}
	c := newCodec(t, args{})
	var got args
	if err := c.Decode(map[string]string{"order_id": "0", "seat": "1"}, &got); err != nil || *got.Seat != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	wantFieldError(t, c.Decode(map[string]string{"seat": "1"}, &got), `field "order_id": required, but missing`)
	wantFieldError(t, c.Decode(map[string]string{"order_id": "1"}, &got), `field "seat": required, but missing`)
	wantFieldError(t, c.Decode(map[string]string{"order_id": "", "seat": "1"}, &got), `field "order_id": "" is not an int`)
	m, err := c.Encode(args{})
	wantFieldError(t, err, `field "seat": required, but nil`)
	if m != nil {
		t.Errorf("got %q", m)
	}
}

// wantFieldError wants a *FieldError with the text want.
func wantFieldError(t *testing.T, err error, want string) {
	t.Helper()
	fe, ok := errors.AsType[*fields.FieldError](err)
	if !ok || err.Error() != want || !strings.HasPrefix(want, fmt.Sprintf("field %q: ", fe.Field)) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestMissingFieldsAreZeroAndExtraOnesIgnored(t *testing.T) {
	t.Parallel()
	type args struct {
		A       int
		B       []byte
		C       Point
		D       map[string]int
		E       *int
		Skipped string `job:"-"`
	}
	c := newCodec(t, args{})
	got := args{1, []byte("x"), Point{1, 2}, map[string]int{"a": 1}, new(1), "s"}
	if err := c.Decode(map[string]string{"z": "1", "": "", "\xff": "\x00", "A": "7"}, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, args{}) {
		t.Errorf("got %+v", got)
	}
	if err := c.Decode(nil, &got); err != nil {
		t.Error(err)
	}
}

func TestEmbeddedFieldsRoundTrip(t *testing.T) {
	t.Parallel()
	c := newCodec(t, embedding{})
	want := embedding{
		Base: Base{1}, base: base{2}, Color: 1, Stamp: Stamp{time.Unix(5, 0).UTC()}, Named: Named{"n"}, Alone: &Alone{3},
	}
	m, err := c.Encode(want)
	wantMap := map[string]string{
		"base_id": "1", "deep_id": "2", "color": "green", "stamp": "1970-01-01T00:00:05Z",
		"note": `{"Text":"n"}`, "only_by_name": `{"X":3}`,
	}
	if err != nil || !maps.Equal(m, wantMap) {
		t.Fatalf("got %q, %v", m, err)
	}
	var got embedding
	if err := c.Decode(m, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestNothingIsShared(t *testing.T) {
	t.Parallel()
	type args struct {
		Bytes []byte
		Text  string
		Parts []json.RawMessage
		N     *int
	}
	c := newCodec(t, args{})
	in := args{[]byte("abc"), "abc", []json.RawMessage{[]byte(`"abc"`)}, new(1)}
	m, err := c.Encode(&in)
	if err != nil {
		t.Fatal(err)
	}
	in.Bytes[0], in.Parts[0][1], *in.N = 'X', 'X', 2
	want := map[string]string{"bytes": "abc", "text": "abc", "parts": `["abc"]`, "n": "1"}
	if !maps.Equal(m, want) {
		t.Errorf("the fields changed with the arguments: %q", m)
	}

	var a, b args
	if err := errors.Join(c.Decode(m, &a), c.Decode(m, &b)); err != nil {
		t.Fatal(err)
	}
	a.Bytes[0], a.Parts[0][1], *a.N = 'Y', 'Y', 3
	if !maps.Equal(m, want) || string(b.Bytes) != "abc" || string(b.Parts[0]) != `"abc"` || *b.N != 1 {
		t.Errorf("the fields or other arguments changed with the arguments: %q, %+v", m, b)
	}
	m["text"] = "changed"
	if a.Text != "abc" {
		t.Error("the arguments changed with the fields")
	}
}
