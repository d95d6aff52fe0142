package fields

import (
	"errors"
	"fmt"
	"reflect"
)

var (
	errMissing = errors.New("required, but missing")
	errNil     = errors.New("required, but nil")
)

// A Codec turns one struct type into flat string fields and back. It is made once for a kind and never changes, so it
// may be used by any number of goroutines.
//
// A field is named by its tag, `job:"order_id"`, or else after the Go field in snake case: OrderID is order_id, HTTPCode
// is http_code, UserIDs is user_ids, Sha256Sum is sha256_sum. `job:"name,required"` and `job:",required"` make a missing
// field an error. Fields tagged `job:"-"` and unexported ones are left out; a tag on an unexported one is refused.
//
// The fields of an embedded struct count as the outer struct's own, as in encoding/json, unless the embedded field has a
// name in its tag or its type has a form of its own (time.Time, or methods for text or JSON): then it is one field. Two
// fields with one name are refused wherever they come from; nothing hides anything. An embedded pointer needs a name.
//
// Values are written so:
//
//	string, named or not    as it is
//	int…, uint…             decimal digits; read strictly: no spaces, no overflow
//	bool                    true or false; read as strconv.ParseBool
//	float32, float64        the shortest decimal that reads back the same; NaN, +Inf, -Inf
//	[]byte, named or not    as it is; nil and empty are both the empty string, which reads back as nil
//	time.Time               RFC 3339 with nanoseconds and UTC offset (in UTC, where the offset has seconds)
//	time.Duration           as its String, 1h30m0s; read as time.ParseDuration
//	encoding.TextMarshaler  its text, whatever its kind; read by UnmarshalText
//	*T                      nil: no field; else as T
//	anything else           as encoding/json does it (a number in an `any` reads back as a float64), < > & unescaped
//
// A type that has UnmarshalText alone is read by it and written by its kind, if that is one of the first five rows.
type Codec struct {
	typ  reflect.Type
	plan []field
}

type field struct {
	name     string
	index    []int
	required bool
	pointer  bool // the Go field is a pointer to what form is for
	form     form
}

// New plans the codec of the struct type t. reserved, if not nil, reports names that no field may have. The error names
// the type, the Go field and what is wrong with it.
func New(t reflect.Type, reserved func(name string) bool) (*Codec, error) {
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%v is not a struct", t)
	}
	p := planner{reserved: reserved, taken: make(map[string]string)}
	if err := p.addStruct(t, t.String(), nil); err != nil {
		return nil, err
	}
	return &Codec{typ: t, plan: p.fields}, nil
}

// Encode returns the fields of v, which is the codec's struct or, with one copy less, a pointer to it. Every field is
// there, zero or not, except for nil pointers. The map is the caller's. A value that cannot be written is a *FieldError;
// a panic in a MarshalText or MarshalJSON method is the caller's to catch.
func (c *Codec) Encode(v any) (map[string]string, error) {
	s, err := c.addressable(v)
	if err != nil {
		return nil, err
	}
	m := make(map[string]string, len(c.plan))
	for i := range c.plan {
		f := &c.plan[i]
		value, present, err := f.write(s.FieldByIndex(f.index))
		if err != nil {
			return nil, &FieldError{f.name, err}
		}
		if present {
			m[f.name] = value
		}
	}
	return m, nil
}

// addressable returns v as a struct whose pointer-receiver methods can be called.
func (c *Codec) addressable(v any) (reflect.Value, error) {
	rv := reflect.ValueOf(v)
	switch {
	case rv.IsValid() && rv.Type() == c.typ:
		s := reflect.New(c.typ).Elem()
		s.Set(rv)
		return s, nil
	case c.pointsTo(rv):
		return rv.Elem(), nil
	}
	return reflect.Value{}, fmt.Errorf("encode %T: want %s or a pointer to one", v, c.typ)
}

// Decode overwrites all of *dst, a value of the codec's struct type, with what m says: zero where m has no such field.
// Fields of m that the struct does not have are ignored. A field that is there and cannot be read, as an empty one where
// a number is wanted, and a required one that is missing are a *FieldError; *dst is then of no use. Nothing in *dst that
// can be written to is shared with m. A panic in an UnmarshalText or UnmarshalJSON method is the caller's to catch.
func (c *Codec) Decode(m map[string]string, dst any) error {
	p := reflect.ValueOf(dst)
	if !c.pointsTo(p) {
		return fmt.Errorf("decode into %T: want a pointer to %s", dst, c.typ)
	}
	s := p.Elem()
	s.SetZero()
	for i := range c.plan {
		f := &c.plan[i]
		value, ok := m[f.name]
		if !ok && !f.required {
			continue
		}
		if !ok {
			return &FieldError{f.name, errMissing}
		}
		if err := f.read(s.FieldByIndex(f.index), value); err != nil {
			return &FieldError{f.name, err}
		}
	}
	return nil
}

func (c *Codec) pointsTo(v reflect.Value) bool {
	return v.Kind() == reflect.Pointer && !v.IsNil() && v.Type().Elem() == c.typ
}

func (f *field) write(v reflect.Value) (value string, present bool, err error) {
	if f.pointer {
		if v.IsNil() && f.required {
			return "", false, errNil
		}
		if v.IsNil() {
			return "", false, nil
		}
		v = v.Elem()
	}
	value, err = f.form.write(v)
	return value, true, err
}

func (f *field) read(v reflect.Value, value string) error {
	if f.pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	return f.form.read(v, value)
}
