package fields

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A job that is not due yet lies in the sorted set `delayed` as one member, which holds its fields and which other
// programs write and read too: a JSON object of strings, or, since JSON cannot carry bytes that are not UTF-8, an object
// of base64 under a name of its own. A value tells the two apart: of a plain member all are strings.
const packedName = "fields_base64"

// Member returns the fields m as a member of `delayed`. Equal maps give equal bytes. ParseMember gives m back.
func Member(m map[string]string) string {
	var room [16]string // so that the names of most jobs need no memory of their own
	names, size, text := room[:0], 2, true
	for name, value := range m {
		names = append(names, name)
		size += len(name) + len(value) + len(`"":"",`)
		text = text && utf8.ValidString(name) && utf8.ValidString(value)
	}
	slices.Sort(names)
	if !text {
		return packedMember(m, names)
	}
	var b strings.Builder
	b.Grow(size + size/8) // with room for a few escapes
	b.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		writeQuoted(&b, name)
		b.WriteByte(':')
		writeQuoted(&b, m[name])
	}
	b.WriteByte('}')
	return b.String()
}

func packedMember(m map[string]string, names []string) string {
	b := []byte(`{"` + packedName + `":{`)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendBase64(append(b, '"'), name), `":"`...)
		b = append(appendBase64(b, m[name]), '"')
	}
	return string(append(b, `}}`...))
}

func appendBase64(b []byte, s string) []byte { return base64.StdEncoding.AppendEncode(b, []byte(s)) }

// writeQuoted writes s, which is UTF-8, as a JSON string in which only what JSON wants escaped is escaped.
func writeQuoted(b *strings.Builder, s string) {
	const hex = "0123456789abcdef"
	b.WriteByte('"')
	begin := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b.WriteString(s[begin:i])
		b.WriteByte('\\')
		begin = i + 1
		if short := strings.IndexByte("\"\\\b\f\n\r\t", c); short >= 0 {
			b.WriteByte(`"\bfnrt`[short])
		} else {
			b.WriteString("u00")
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	b.WriteString(s[begin:])
	b.WriteByte('"')
}

// ParseMember returns the fields that a member of `delayed` holds. Any program's JSON will do. Of a name given twice the
// last counts. Bytes that are not UTF-8 are kept as they are, and half of a surrogate pair (\ud800) becomes the three
// bytes it would have in UTF-8, so that different members stay different. What is not an object with string values is
// refused, with an error that says where or, as a *FieldError, in which field, and that quotes little of it.
func ParseMember(s string) (map[string]string, error) {
	p := parser{s: s}
	if !p.take('{') {
		return nil, fmt.Errorf("not a JSON object: %s", quote(s))
	}
	m := make(map[string]string, min(strings.Count(s, `"`)/4, 32))
	var packed map[string]string
	err := p.object(func(name string) (err error) {
		if name == packedName {
			delete(m, name)
			packed = nil
			if p.take('{') {
				packed, err = p.packed()
				return err
			}
		}
		m[name], err = p.value(name)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case p.peek() != 0 || p.i < len(s):
		return nil, p.want("the end")
	case packed != nil && len(m) > 0:
		return nil, &FieldError{packedName, errors.New("an object beside other fields")}
	case packed != nil:
		return packed, nil
	}
	return m, nil
}

// A parser reads JSON objects of strings. Strings without escapes are parts of s, not copies.
type parser struct {
	s string
	i int // what is before has been read
}

// peek skips white space and returns the byte that follows, 0 at the end.
func (p *parser) peek() byte {
	for p.i < len(p.s) {
		switch c := p.s[p.i]; c {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return c
		}
	}
	return 0
}

// take skips white space and, if c follows, c.
func (p *parser) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.i++
	return true
}

func (p *parser) want(what string) error {
	found := "the end"
	if p.i < len(p.s) {
		found = quote(p.s[p.i:min(p.i+8, len(p.s))])
	}
	return fmt.Errorf("not a JSON object: want %s at byte %d, found %s", what, p.i, found)
}

// object reads an object behind its opening brace. It calls value with each name, to read what stands behind the colon.
func (p *parser) object(value func(name string) error) error {
	if p.take('}') {
		return nil
	}
	for {
		if p.peek() != '"' {
			return p.want("a name in quotes")
		}
		name, err := p.text()
		if err != nil {
			return err
		}
		if !p.take(':') {
			return p.want(`":"`)
		}
		if err := value(name); err != nil {
			return err
		}
		if p.take('}') {
			return nil
		}
		if !p.take(',') {
			return p.want(`"," or "}"`)
		}
	}
}

// value reads the string that is the value of the field called name.
func (p *parser) value(name string) (string, error) {
	kind := ""
	switch c := p.peek(); c {
	case '"':
		return p.text()
	case '{':
		kind = "an object"
	case '[':
		kind = "an array"
	case 't', 'f':
		kind = "a bool"
	case 'n':
		kind = "null"
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		kind = "a number"
	default:
		return "", p.want("a string")
	}
	return "", &FieldError{name, errors.New(kind + ", not a string")}
}

// packed reads the object of base64 behind its opening brace.
func (p *parser) packed() (map[string]string, error) {
	m := make(map[string]string)
	err := p.object(func(coded string) error {
		name, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			return &FieldError{packedName, fmt.Errorf("name %s is not base64", quote(coded))}
		}
		coded, err = p.value(string(name))
		if err != nil {
			return err
		}
		value, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			return &FieldError{string(name), fmt.Errorf("%s is not base64", quote(coded))}
		}
		m[string(name)] = string(value)
		return nil
	})
	return m, err
}

// text reads a string, which begins at p.i.
func (p *parser) text() (string, error) {
	p.i++
	begin := p.i
	for ; p.i < len(p.s); p.i++ {
		switch c := p.s[p.i]; {
		case c == '"':
			p.i++
			return p.s[begin : p.i-1], nil
		case c == '\\':
			return p.escaped([]byte(p.s[begin:p.i]))
		case c < ' ':
			return "", p.want("no control character")
		}
	}
	return "", p.want(`"\""`)
}

// escaped reads the rest of a string, from its first escape on; b is what comes before.
func (p *parser) escaped(b []byte) (string, error) {
	for p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c == '"':
			p.i++
			return string(b), nil
		case c == '\\':
			r, size := unescape(p.s[p.i:])
			if size == 0 {
				return "", p.want("an escape")
			}
			b = appendRune(b, r)
			p.i += size
		case c < ' ':
			return "", p.want("no control character")
		default:
			b = append(b, c)
			p.i++
		}
	}
	return "", p.want(`"\""`)
}

// unescape returns the character that the escape at the beginning of s stands for, and the length of the escape: 0 if it
// is none.
func unescape(s string) (r rune, size int) {
	if len(s) < 2 {
		return 0, 0
	}
	if short := strings.IndexByte(`"\/bfnrt`, s[1]); short >= 0 {
		return rune("\"\\/\b\f\n\r\t"[short]), 2
	}
	high, ok := unescape16(s)
	if !ok {
		return 0, 0
	}
	low, _ := unescape16(s[6:]) // 0 is no half of a pair either
	if pair := utf16.DecodeRune(high, low); pair != utf8.RuneError {
		return pair, 12
	}
	return high, 6
}

// unescape16 reads the escape \uXXXX.
func unescape16(s string) (r rune, ok bool) {
	if len(s) < 6 || s[:2] != `\u` {
		return 0, false
	}
	n, err := strconv.ParseUint(s[2:6], 16, 16)
	return rune(n), err == nil
}

// appendRune appends r as UTF-8 does, and half of a surrogate pair, which UTF-8 does not have, in the same manner.
func appendRune(b []byte, r rune) []byte {
	if utf16.IsSurrogate(r) {
		return append(b, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
	}
	return utf8.AppendRune(b, r)
}
