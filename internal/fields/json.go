package fields

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

var (
	jsonWriter = reflect.TypeFor[json.Marshaler]()
	jsonReader = reflect.TypeFor[json.Unmarshaler]()
)

// hasOwnForm reports whether t itself says how it is written or read, as text or as JSON.
func hasOwnForm(t reflect.Type) bool {
	return implements(t, textWriter) || implements(t, textReader) || implements(t, jsonWriter) || implements(t, jsonReader)
}

func writeJSON(v reflect.Value) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v.Addr().Interface()); err != nil {
		return "", refuse("cannot be written as JSON", err)
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if hasReplacement(text) {
		return "", errors.New("holds text that is not UTF-8, which JSON cannot carry")
	}
	return text, nil
}

// hasReplacement reports whether JSON text holds the escape that encoding/json puts, without an error, in place of bytes
// that are not UTF-8. It writes a U+FFFD that was there before as itself.
func hasReplacement(text string) bool {
	for {
		before, after, found := strings.Cut(text, `\ufffd`)
		if !found {
			return false
		}
		// After an odd number of backslashes the one that was found is not the beginning of an escape.
		if slashes := len(before) - len(strings.TrimRight(before, `\`)); slashes%2 == 0 {
			return true
		}
		text = after
	}
}

func readJSON(v reflect.Value, s string) error {
	if err := json.Unmarshal([]byte(s), v.Addr().Interface()); err != nil {
		return refuse(quote(s)+" cannot be read as "+v.Type().String(), err)
	}
	return nil
}

// checkJSON returns an error for a type that encoding/json would refuse to write or to read back, or would write without
// its content. What an interface value holds and what a type's own methods do is not known before there is a value.
func checkJSON(t reflect.Type) error {
	if t.Kind() == reflect.Pointer {
		return fmt.Errorf("unsupported type *%s: a pointer to a pointer", t)
	}
	if t.Kind() == reflect.Struct && !hasOwnForm(t) && t.NumField() > 0 && len(exported(t)) == 0 {
		return fmt.Errorf("unsupported type %s: no exported fields", t)
	}
	return checkNested(t, make(map[reflect.Type]bool))
}

// checkNested looks at t and all that it holds. Types in seen have been looked at, or are being looked at further up.
func checkNested(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] || hasOwnForm(t) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("unsupported type %s", t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("unsupported type %s: an interface with methods cannot be read back", t)
		}
	case reflect.Map:
		if !isJSONKey(t.Key()) {
			return fmt.Errorf("unsupported type %s: JSON has no such keys", t)
		}
		return checkNested(t.Elem(), seen)
	case reflect.Slice, reflect.Array, reflect.Pointer:
		return checkNested(t.Elem(), seen)
	case reflect.Struct:
		for _, f := range exported(t) {
			if err := checkNested(f.Type, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// exported returns the fields of t that encoding/json looks at.
func exported(t reflect.Type) []reflect.StructField {
	var all []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("json") != "-" && (f.IsExported() || f.Anonymous) {
			all = append(all, f)
		}
	}
	return all
}

func isJSONKey(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return true
	}
	return t.Implements(textWriter) && implements(t, textReader)
}
