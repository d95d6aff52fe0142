package fields_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stagedoor/jobs/internal/fields"
)

func newCodec(t testing.TB, v any) *fields.Codec {
	t.Helper()
	c, err := fields.New(reflect.TypeOf(v), fields.Reserved)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFieldNames(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		fields any
		want   string // sorted
	}{
		{"words", struct{ OrderID, SeatLabel, Amount int }{}, "amount order_id seat_label"},
		{"initialisms", struct{ ID, URL, HTTPCode, MyHTTPServer, A, AB, ABc int }{}, "a a_bc ab http_code id my_http_server url"},
		{"plurals", struct{ UserIDs, URLsSeen, IDs, ThisIs, HTTPSite int }{}, "http_site ids this_is urls_seen user_ids"},
		{"digits", struct{ Sha256Sum, Line2, V2API, HTTP2Code int }{}, "http2_code line2 sha256_sum v2_api"},
		{"underscores", struct{ Order_ID, X_y_Z, Z_ int }{}, "order_id x_y_z z_"},
		{"beyond ASCII", struct{ ÉtatCivil, Größe int }{}, "größe état_civil"},
		{"tags", struct {
			A int `job:"order_id"`
			B int `job:",required"`
			C int `job:"a,required"`
			D int `json:"other"`
			E int `job:"with space"`
			F int `job:"fields_base64"`
			G int `job:"日本"`
		}{}, "a b d fields_base64 order_id with space 日本"},
		{"nothing", struct{}{}, ""},
		{"left out", leftOut{note: "n", done: make(chan int)}, ""},
		{"embedded", embedding{Alone: &Alone{}, id: "left out"}, "base_id color deep_id note only_by_name stamp"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(namesOf(t, tt.fields), " ")
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func namesOf(t *testing.T, v any) []string {
	t.Helper()
	m, err := newCodec(t, v).Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(m))
}

// leftOut has no fields that a job can see.
type leftOut struct {
	note   string
	done   chan int
	_      int
	Events chan int `job:"-"`
	Base   `job:"-"`
}

type embedding struct {
	Base                // its fields are the outer struct's
	base                // so are those of a type that is not exported
	Color               // no struct: a field called after its type
	Stamp               // has a text form
	Named  `job:"note"` // has a name
	*Alone `job:"only_by_name"`
	id     // no struct and not exported: left out
}

type (
	Base  struct{ BaseID int }
	base  struct{ DeepID int }
	Named struct{ Text string }
	Alone struct{ X int }
	Stamp struct{ time.Time }
	id    string
)

func TestEmbeddedTime(t *testing.T) {
	t.Parallel()
	type visit struct {
		time.Time
		Seat string
	}
	if got := namesOf(t, visit{}); !slices.Equal(got, []string{"seat", "time"}) {
		t.Errorf("got %q", got)
	}
}

// Types that cannot be the fields of a job, or that are only half of one.
type (
	writesText struct{}
	readsText  struct{}
	noExported struct{ n int }
	stamp      struct{ time.Time }
	node       struct {
		Next *node
		Bad  func()
	}
	textKey      struct{ N int }
	writeOnlyKey struct{ N int }
)

func (writesText) MarshalText() ([]byte, error)   { return nil, nil }
func (*readsText) UnmarshalText([]byte) error     { return nil }
func (textKey) MarshalText() ([]byte, error)      { return nil, nil }
func (*textKey) UnmarshalText([]byte) error       { return nil }
func (writeOnlyKey) MarshalText() ([]byte, error) { return nil, nil }

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	_ = noExported{n: 1}
	type Args struct{ A int }
	tests := []struct {
		name string
		typ  reflect.Type
		want string // after the type's own name
	}{
		{"nothing", nil, "<nil> is not a struct"},
		{"a map", reflect.TypeFor[map[string]string](), "map[string]string is not a struct"},
		{"a pointer", reflect.TypeFor[*Args](), "*fields_test.Args is not a struct"},
		{"an interface", reflect.TypeFor[any](), "interface {} is not a struct"},
		{"chan", typeOf[struct{ A chan int }](), "A: unsupported type chan int"},
		{"func", typeOf[struct{ A func() }](), "A: unsupported type func()"},
		{"complex64", typeOf[struct{ A complex64 }](), "A: unsupported type complex64"},
		{"complex128", typeOf[struct{ A complex128 }](), "A: unsupported type complex128"},
		{"unsafe pointer", typeOf[struct{ A unsafe.Pointer }](), "A: unsupported type unsafe.Pointer"},
		{"pointer to chan", typeOf[struct{ A *chan int }](), "A: unsupported type chan int"},
		{"pointer to pointer", typeOf[struct{ A **int }](), "A: unsupported type **int: a pointer to a pointer"},
		{"nested chan", typeOf[struct{ A map[string][]chan int }](), "A: unsupported type chan int"},
		{"nested func", typeOf[struct{ A [2]*node }](), "A: unsupported type func()"},
		{"nested in an embedded struct", typeOf[struct{ A []struct{ *node } }](), "A: unsupported type func()"},
		{"interface with methods", typeOf[struct{ A error }](), "A: unsupported type error: an interface with methods cannot be read back"},
		{"nested interface", typeOf[struct{ A []fmt.Stringer }](), "A: unsupported type fmt.Stringer: an interface with methods cannot be read back"},
		{"keys", typeOf[struct{ A map[bool]int }](), "A: unsupported type map[bool]int: JSON has no such keys"},
		{"keys that are only written", typeOf[struct{ A map[writeOnlyKey]int }](), "A: unsupported type map[fields_test.writeOnlyKey]int: JSON has no such keys"},
		{"nothing exported", typeOf[struct{ A noExported }](), "A: unsupported type fields_test.noExported: no exported fields"},
		{"a mutex", typeOf[struct{ A *sync.Mutex }](), "A: unsupported type sync.Mutex: no exported fields"},
		{"text one way", typeOf[struct{ A writesText }](), "A: unsupported type fields_test.writesText: MarshalText without UnmarshalText"},
		{"text the other way", typeOf[struct{ A readsText }](), "A: unsupported type fields_test.readsText: UnmarshalText without MarshalText"},
		{"reserved", typeOf[struct {
			ID int `job:"job_id"`
		}](), `ID: field name "job_id" is reserved`},
		{"reserved by its Go name", typeOf[struct{ Kind int }](), `Kind: field name "kind" is reserved`},
		{"two with one tag", typeOf[struct {
			A, B int `job:"x"`
		}](), `B: field name "x" is taken by %s.A`},
		{"a tag like a Go name", typeOf[struct {
			OrderID int
			B       int `job:"order_id"`
		}](), `B: field name "order_id" is taken by %s.OrderID`},
		{"taken by an embedded one", typeOf[struct {
			Base
			BaseID int
		}](), `BaseID: field name "base_id" is taken by %s.Base.BaseID`},
		{"empty tag", typeOf[struct {
			A int `job:""`
		}](), "A: empty name in tag `job:\"\"`"},
		{"a name to leave out", typeOf[struct {
			A int `job:"-,required"`
		}](), `A: tag name "-" leaves a field out and takes no options`},
		{"unknown option", typeOf[struct {
			A int `job:"a,omitempty"`
		}](), `A: unknown tag option "omitempty"`},
		{"option with space", typeOf[struct {
			A int `job:"a, required"`
		}](), `A: unknown tag option " required"`},
		{"empty option", typeOf[struct {
			A int `job:"a,"`
		}](), `A: unknown tag option ""`},
		{"tag on an unexported field", typeOf[struct {
			a int `job:"a"`
		}](), "a: not exported, so it cannot be a field"},
		{"embedded pointer", typeOf[struct{ *Base }](), "Base: embedded pointer: embed the type itself, or name the field in its tag"},
		{"embedded unexported pointer", typeOf[struct{ *base }](), "base: embedded pointer: embed the type itself, or name the field in its tag"},
		{"embedded unexported text", typeOf[struct{ stamp }](), "stamp: not exported, so it cannot be a field"},
		{"embedded unexported with a name", typeOf[struct {
			base `job:"b"`
		}](), "base: not exported, so it cannot be a field"},
		{"embedded required", typeOf[struct {
			Base `job:",required"`
		}](), `Base: tag option "required" on an embedded struct without a name`},
		{"inside an embedded struct", typeOf[struct{ inner }](), "inner.C: unsupported type chan int"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := tt.want
			if tt.typ != nil && tt.typ.Kind() == reflect.Struct {
				want = tt.typ.String() + "." + strings.ReplaceAll(want, "%s", tt.typ.String())
			}
			c, err := fields.New(tt.typ, fields.Reserved)
			if err == nil || err.Error() != want || c != nil {
				t.Errorf("got  %v, %v\nwant %s", c, err, want)
			}
		})
	}
}

// Blind has no exported fields, but methods for JSON.
type Blind struct{ n int }

func (b Blind) MarshalJSON() ([]byte, error)     { return json.Marshal(b.n) }
func (b *Blind) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &b.n) }

type inner struct{ C chan int }

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

func TestNewNamesTheType(t *testing.T) {
	t.Parallel()
	type Args struct{ Amount chan int }
	_, err := fields.New(reflect.TypeFor[Args](), nil)
	if want := "fields_test.Args.Amount: unsupported type chan int"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestNewWithoutReservedNames(t *testing.T) {
	t.Parallel()
	c, err := fields.New(reflect.TypeFor[struct{ Kind string }](), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Encode(struct{ Kind string }{"x"})
	if err != nil || m["kind"] != "x" {
		t.Errorf("got %q, %v", m, err)
	}
}

// What JSON itself leaves out, or what has methods for JSON or text, is no reason to refuse a type.
func TestNewAccepts(t *testing.T) {
	t.Parallel()
	type tree struct {
		Children []*tree
		ByKey    map[textKey]*tree
		Hidden   func() `json:"-"`
		private  chan int
	}
	_ = tree{private: nil}
	newCodec(t, struct {
		Tree  tree
		Nodes map[int8]json.RawMessage
		Own   []Opaque
		Blind Blind
		Any   []any
		Time  *time.Time
		Mutex struct {
			sync.Mutex
			N int
		}
	}{})
}
