package main

// What lies in Redis was written by others: nothing of it reaches a terminal raw. All text
// goes through safe, all JSON through line.

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stagedoor/jobs"
	"golang.org/x/term"
	eastasian "golang.org/x/text/width"
)

// safe is s with everything that is not printable written as Go escapes it: control
// characters and escape sequences, what changes the direction of writing, what has no width,
// and bytes that are no UTF-8.
func safe(s string) string {
	if !strings.ContainsFunc(s, hostile) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !hostile(r):
			b.WriteRune(r)
		default:
			b.WriteString(escaped(r))
		}
	}
	return b.String()
}

func hostile(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }

func escaped(r rune) string { return strings.Trim(fmt.Sprintf("%+q", r), "'") }

// safeLines is safe, but line breaks and tabs at the beginnings stay.
func safeLines(s, indent string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\r\n")
		text := strings.TrimLeft(line, "\t")
		b.WriteString(indent + strings.Repeat("    ", len(line)-len(text)) + safe(text) + "\n")
	}
	return b.String()
}

// line prints v as one line of JSON that is safe on a terminal too.
func (t *tool) line(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(t.out, plain(b.String()))
	return err
}

// plain escapes what is not printable in a line of JSON; such runes stand in strings only.
func plain(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// bytesOf are fields as JSON says them, as members of delayed do: as they are or, where
// something is no UTF-8, all names and values in base64.
type bytesOf struct {
	Fields map[string]string `json:"fields,omitempty"`
	Base64 map[string][]byte `json:"fields_base64,omitempty"`
}

func fieldsOf(m jobs.Fields) bytesOf {
	for name, value := range m {
		if utf8.ValidString(name) && utf8.ValidString(value) {
			continue
		}
		all := make(map[string][]byte, len(m))
		for name, value := range m {
			all[base64.StdEncoding.EncodeToString([]byte(name))] = []byte(value)
		}
		return bytesOf{Base64: all}
	}
	return bytesOf{Fields: m}
}

// width is the terminal's; 0 where w is none.
func width(w any) int {
	columns, _ := size(w)
	return columns
}

// height is the terminal's; 0 where w is none.
func height(w any) int {
	_, rows := size(w)
	return rows
}

func size(w any) (columns, rows int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, 0
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		return 80, 24
	}
	return columns, rows
}

// fitting is so much of a text as a terminal of so many rows shows without scrolling.
func fitting(text string, rows int) string {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	shown := max(rows-2, 1) // below it are what says that there is more, and the cursor
	if len(lines) < rows {
		return text
	}
	return strings.Join(lines[:shown], "") + fmt.Sprintf("… %d more lines\n", len(lines)-shown)
}

// A table is printed when it is whole; on a terminal its lines are cut to its width. Where
// that would leave nothing of the last column, which says most, rows are folded instead.
type table struct {
	rows [][]string
}

func (tab *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = safe(c)
	}
	tab.rows = append(tab.rows, cells)
}

func (tab *table) print(w io.Writer, limit int) error {
	var widths []int
	for _, row := range tab.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns(c))
		}
	}
	before := 0 // the last column
	for _, n := range widths[:max(len(widths)-1, 0)] {
		before += n + 2
	}
	const least = 12
	if limit > 0 && before+least > limit {
		return tab.folded(w, limit)
	}
	var b strings.Builder
	for _, row := range tab.rows {
		var line strings.Builder
		for i, c := range row {
			line.WriteString(c)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-columns(c)+2))
			}
		}
		b.WriteString(cut(strings.TrimRight(line.String(), " "), limit) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// folded prints each row on as many lines as it takes, all but the first indented.
func (tab *table) folded(w io.Writer, limit int) error {
	var b strings.Builder
	for _, row := range tab.rows {
		line := ""
		for i, c := range row {
			switch {
			case i == 0:
				line = c
			case c == "":
			case columns(line)+2+columns(c) <= limit:
				line += "  " + c
			default:
				b.WriteString(cut(line, limit) + "\n")
				line = "  " + c
			}
		}
		b.WriteString(cut(line, limit) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cut is s, in at most limit columns; 0: all of it.
func cut(s string, limit int) string {
	if limit <= 0 || columns(s) <= limit {
		return s
	}
	n := 0
	for i, r := range s {
		if n += column(r); n > limit-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// columns is how many columns a terminal gives to what is safe.
func columns(s string) (n int) {
	for _, r := range s {
		n += column(r)
	}
	return n
}

// column is 2 for the wide characters of Unicode's annex 11 (Chinese, Japanese, Korean, emoji), and 0 for what is written
// over the one before.
func column(r rune) int {
	switch eastasian.LookupRune(r).Kind() {
	case eastasian.EastAsianWide, eastasian.EastAsianFullwidth:
		return 2
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	return 1
}

// firstLine is what fits into a table.
func firstLine(s string) string {
	first, rest, _ := strings.Cut(s, "\n")
	if strings.TrimSpace(rest) != "" {
		first += " …"
	}
	return first
}
