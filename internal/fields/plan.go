package fields

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// A planner walks a struct type once and collects its fields.
type planner struct {
	reserved func(name string) bool
	taken    map[string]string // by which Go field a name is taken
	fields   []field
}

func (p *planner) addStruct(t reflect.Type, path string, index []int) error {
	for i := range t.NumField() {
		sf := t.Field(i)
		at := path + "." + sf.Name
		sf.Index = append(slices.Clone(index), i)
		if err := p.addField(sf, at); err != nil {
			return err
		}
	}
	return nil
}

func (p *planner) addField(sf reflect.StructField, at string) error {
	tag, err := parseTag(sf.Tag)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", at, err)
	case tag.skip:
		return nil
	case sf.Anonymous && tag.name == "" && sf.Type.Kind() == reflect.Pointer:
		return fmt.Errorf("%s: embedded pointer: embed the type itself, or name the field in its tag", at)
	case tag.name == "" && embedsStruct(sf) && !hasOwnForm(sf.Type):
		if tag.required {
			return fmt.Errorf("%s: tag option \"required\" on an embedded struct without a name", at)
		}
		return p.addStruct(sf.Type, at, sf.Index)
	case !sf.IsExported() && (tag.present || embedsStruct(sf)):
		return fmt.Errorf("%s: not exported, so it cannot be a field", at)
	case !sf.IsExported():
		return nil
	}
	if tag.name == "" {
		tag.name = snake(sf.Name)
	}
	return p.addNamed(sf, tag, at)
}

func embedsStruct(sf reflect.StructField) bool {
	return sf.Anonymous && sf.Type.Kind() == reflect.Struct
}

func (p *planner) addNamed(sf reflect.StructField, tag tag, at string) error {
	if p.reserved != nil && p.reserved(tag.name) {
		return fmt.Errorf("%s: field name %s is reserved", at, quote(tag.name))
	}
	if other, ok := p.taken[tag.name]; ok {
		return fmt.Errorf("%s: field name %s is taken by %s", at, quote(tag.name), other)
	}
	p.taken[tag.name] = at

	f := field{name: tag.name, index: sf.Index, required: tag.required}
	t := sf.Type
	if t.Kind() == reflect.Pointer {
		f.pointer, t = true, t.Elem()
	}
	var err error
	if f.form, err = formOf(t); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	p.fields = append(p.fields, f)
	return nil
}

// A tag is what the struct tag `job:"…"` says.
type tag struct {
	name     string // "": after the Go field
	present  bool
	skip     bool
	required bool
}

func parseTag(st reflect.StructTag) (tag, error) {
	text, present := st.Lookup("job")
	if !present {
		return tag{}, nil
	}
	if text == "-" {
		return tag{present: true, skip: true}, nil
	}
	name, options, more := strings.Cut(text, ",")
	if name == "" && !more {
		return tag{}, errors.New("empty name in tag `job:\"\"`")
	}
	if name == "-" {
		return tag{}, errors.New("tag name \"-\" leaves a field out and takes no options")
	}
	t := tag{name: name, present: true}
	for more {
		var option string
		option, options, more = strings.Cut(options, ",")
		if option != "required" {
			return tag{}, fmt.Errorf("unknown tag option %s", quote(option))
		}
		t.required = true
	}
	return t, nil
}

// snake returns a Go name in snake case. A word begins at a capital that follows a small letter or a digit, and at the
// last of several capitals if a small letter follows, other than the s of a plural: HTTPCode is http_code, UserIDs is
// user_ids.
func snake(name string) string {
	runes := []rune(name)
	var b strings.Builder
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && beginsWord(runes[i-1], runes[i+1:]) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// beginsWord reports whether a capital between before and after begins a word.
func beginsWord(before rune, after []rune) bool {
	if !unicode.IsUpper(before) {
		return before != '_'
	}
	if len(after) == 0 || !unicode.IsLower(after[0]) {
		return false
	}
	plural := after[0] == 's' && (len(after) == 1 || !unicode.IsLower(after[1]))
	return !plural
}
