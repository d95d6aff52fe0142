package fields

import (
	"strconv"
	"unicode/utf8"
)

const (
	maxQuoted = 64  // bytes of a name or value that an error quotes
	maxCause  = 256 // bytes of another error's text that an error repeats
)

// A FieldError says which field of a job cannot be read or written, and why. Its text is bounded, however long the name,
// the value and the text of the error it wraps are.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return "field " + quote(e.Field) + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// A refusal wraps what a type's own method or encoding/json says of a value. Both may repeat the whole value, so their
// text is cut; the error itself is kept for errors.Is.
type refusal struct {
	text string
	err  error
}

func refuse(what string, err error) error {
	text := err.Error()
	if len(text) > maxCause {
		text = head(text, maxCause) + "…"
	}
	return &refusal{what + ": " + text, err}
}

func (e *refusal) Error() string { return e.text }
func (e *refusal) Unwrap() error { return e.err }

// quote returns the beginning of s as a Go string literal, with a mark behind it where s was cut.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(head(s, maxQuoted)) + "…"
}

// head returns at most n bytes of the longer s without splitting a rune; bytes that are not UTF-8 are split anywhere.
func head(s string, n int) string {
	for cut := n; cut > n-utf8.UTFMax; cut-- {
		if utf8.RuneStart(s[cut]) {
			return s[:cut]
		}
	}
	return s[:n]
}
