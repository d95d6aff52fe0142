package fields

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"
)

// A form is how the values of one type are written as a string and read back. write is given an addressable value, read
// a settable one that is zero.
type form struct {
	write func(v reflect.Value) (string, error)
	read  func(v reflect.Value, s string) error
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	textWriter   = reflect.TypeFor[encoding.TextMarshaler]()
	textReader   = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// formOf returns the form for t, or an error where what is written could not be read back.
func formOf(t reflect.Type) (form, error) {
	switch t {
	case timeType:
		return form{writeTime, readTime}, nil
	case durationType:
		return form{writeDuration, readDuration}, nil
	}
	plain, isPlain := plainForm(t)
	writes, reads := implements(t, textWriter), implements(t, textReader)
	switch {
	case writes && reads:
		return form{writeText, readText}, nil
	case reads && isPlain:
		return form{plain.write, readText}, nil
	case reads:
		return form{}, fmt.Errorf("unsupported type %s: UnmarshalText without MarshalText", t)
	case writes:
		return form{}, fmt.Errorf("unsupported type %s: MarshalText without UnmarshalText", t)
	case isPlain:
		return plain, nil
	}
	return form{writeJSON, readJSON}, checkJSON(t)
}

// implements reports whether a value of type t that has an address has the methods of i.
func implements(t, i reflect.Type) bool { return reflect.PointerTo(t).Implements(i) }

// plainForm returns the form for types that are strings, bytes, numbers or bools underneath.
func plainForm(t reflect.Type) (form, bool) {
	switch t.Kind() {
	case reflect.String:
		return form{writeString, readString}, true
	case reflect.Bool:
		return form{writeBool, readBool}, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return form{writeInt, readInt}, true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return form{writeUint, readUint}, true
	case reflect.Float32, reflect.Float64:
		return form{writeFloat, readFloat}, true
	case reflect.Slice:
		isBytes := t.Elem().Kind() == reflect.Uint8 && !hasOwnForm(t.Elem())
		return form{writeBytes, readBytes}, isBytes
	}
	return form{}, false
}

func writeString(v reflect.Value) (string, error) { return v.String(), nil }

func readString(v reflect.Value, s string) error {
	v.SetString(s)
	return nil
}

func writeBytes(v reflect.Value) (string, error) { return string(v.Bytes()), nil }

func readBytes(v reflect.Value, s string) error {
	if s != "" {
		v.SetBytes([]byte(s))
	}
	return nil
}

func writeBool(v reflect.Value) (string, error) { return strconv.FormatBool(v.Bool()), nil }

func readBool(v reflect.Value, s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%s is not a bool", quote(s))
	}
	v.SetBool(b)
	return nil
}

func writeInt(v reflect.Value) (string, error) { return strconv.FormatInt(v.Int(), 10), nil }

func readInt(v reflect.Value, s string) error {
	bits := v.Type().Bits()
	n, err := strconv.ParseInt(s, 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		limit := int64(1)<<(bits-1) - 1
		return fmt.Errorf("%s is out of range of %s (%d to %d)", quote(s), v.Kind(), -limit-1, limit)
	case err != nil:
		return fmt.Errorf("%s is not an %s", quote(s), v.Kind())
	}
	v.SetInt(n)
	return nil
}

func writeUint(v reflect.Value) (string, error) { return strconv.FormatUint(v.Uint(), 10), nil }

func readUint(v reflect.Value, s string) error {
	bits := v.Type().Bits()
	n, err := strconv.ParseUint(s, 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s is out of range of %s (0 to %d)", quote(s), v.Kind(), uint64(math.MaxUint64)>>(64-bits))
	case err != nil:
		return fmt.Errorf("%s is not a %s", quote(s), v.Kind())
	}
	v.SetUint(n)
	return nil
}

// writeFloat uses an exponent only for the very large and the very small, since people and other programs read this.
func writeFloat(v reflect.Value) (string, error) {
	f, format := v.Float(), byte('f')
	if abs := math.Abs(f); abs != 0 && abs < 1e-6 || abs >= 1e21 {
		format = 'e'
	}
	return strconv.FormatFloat(f, format, -1, v.Type().Bits()), nil
}

func readFloat(v reflect.Value, s string) error {
	f, err := strconv.ParseFloat(s, v.Type().Bits())
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s is out of range of %s", quote(s), v.Kind())
	case err != nil:
		return fmt.Errorf("%s is not a %s", quote(s), v.Kind())
	}
	v.SetFloat(f)
	return nil
}

func writeTime(v reflect.Value) (string, error) {
	t := *v.Addr().Interface().(*time.Time)
	if _, offset := t.Zone(); offset%60 != 0 {
		t = t.UTC() // RFC 3339 has no seconds in an offset, and dropping them would move the instant
	}
	var room [len(time.RFC3339Nano)]byte
	b, err := t.AppendText(room[:0])
	if err != nil {
		return "", refuse("cannot be written as an RFC 3339 time", err)
	}
	return string(b), nil
}

func readTime(v reflect.Value, s string) error {
	if err := v.Addr().Interface().(*time.Time).UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("%s is not an RFC 3339 time", quote(s))
	}
	return nil
}

func writeDuration(v reflect.Value) (string, error) { return time.Duration(v.Int()).String(), nil }

func readDuration(v reflect.Value, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%s is not a duration such as 1h30m0s", quote(s))
	}
	v.SetInt(int64(d))
	return nil
}

func writeText(v reflect.Value) (string, error) {
	b, err := v.Addr().Interface().(encoding.TextMarshaler).MarshalText()
	if err != nil {
		return "", refuse("cannot be written as text", err)
	}
	return string(b), nil
}

func readText(v reflect.Value, s string) error {
	if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
		return refuse(quote(s)+" cannot be read as "+v.Type().String(), err)
	}
	return nil
}
