package dashboard

// How values are written for people. Jobs hold bytes that anybody may have sent: html/template keeps them from being
// markup, and what is in here keeps them from being invisible or from turning the text around them.

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxShown is how many bytes of a value a page shows; the rest is a link away.
const maxShown = 2000

// visible writes what cannot be seen as Go would: bytes that are no UTF-8, control characters but newline and tab, the
// marks that change a text's direction, and what has no width, but where it joins an emoji or the letters of a script.
func visible(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !hidden(r) || joins(s, i):
			b.WriteString(s[i : i+n])
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}

// plain reports whether a text is seen as it is.
func plain(s string) bool {
	for i, r := range s {
		if hidden(r) && !joins(s, i) {
			return false
		}
	}
	return utf8.ValidString(s)
}

func hidden(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == 0x2028 || r == 0x2029)
}

// joins reports whether a joiner or non-joiner is at i and does its work there: of 👩‍🚀 it makes one sign, and Persian and
// Hindi are written with it. Beside ASCII, which has nothing to join, it only hides.
func joins(s string, i int) bool {
	const nonJoiner, joiner = 0x200c, 0x200d
	r, n := utf8.DecodeRuneInString(s[i:])
	if r != nonJoiner && r != joiner {
		return false
	}
	before, _ := utf8.DecodeLastRuneInString(s[:i])
	after, _ := utf8.DecodeRuneInString(s[i+n:])
	return joined(before) && joined(after)
}

func joined(r rune) bool {
	return r > unicode.MaxASCII && r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsSymbol(r))
}

// cut is the beginning of a value that is too long for a page.
func cut(s string) string { return visible(prefix(s, maxShown)) }

// brief is a value in one line of a list.
func brief(s string, n int) string {
	short := prefix(s, n)
	text := strings.Join(strings.Fields(visible(short)), " ")
	if len(short) < len(s) {
		text += "…"
	}
	return text
}

// prefix is at most n bytes, cut between characters.
func prefix(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for back := 1; back < utf8.UTFMax; back++ {
		if utf8.RuneStart(s[n]) {
			break
		}
		n--
	}
	return s[:n]
}

// path is a relative link: a page's name, and names and values of its query; empty values are left out.
func path(page string, query ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			q.Add(query[i], query[i+1])
		}
	}
	if len(q) == 0 {
		return page
	}
	return page + "?" + q.Encode()
}

// number writes 1234567 as 1,234,567.
func number(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count writes 1 dead letter, 2 dead letters.
func count(n any, one, more string) string {
	if fmt.Sprint(n) == "1" {
		return "1 " + one
	}
	return number(n) + " " + more
}

func size(s string) string { return count(len(s), "byte", "bytes") }

func percent(part, whole int64) string {
	switch {
	case whole == 0 || part == 0:
		return "0 %"
	case part*100 < whole:
		return "< 1 %"
	}
	return strconv.FormatInt(part*100/whole, 10) + " %"
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// ago says how long before now, or how long until then.
func ago(now, t time.Time) string {
	switch d := now.Sub(t); {
	case d <= -time.Second:
		return "in " + age(-d)
	case d < time.Second:
		return "now"
	default:
		return age(d) + " ago"
	}
}

// age writes a duration in its two largest units.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return strconv.FormatInt(max(0, d.Milliseconds()), 10) + " ms"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < 10*time.Minute:
		return two(d, time.Minute, "min", time.Second, "s")
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < day:
		return two(d, time.Hour, "h", time.Minute, "min")
	}
	return two(d, day, "d", time.Hour, "h")
}

func two(d, large time.Duration, name string, small time.Duration, rest string) string {
	s := fmt.Sprintf("%d %s", d/large, name)
	if r := d % large / small; r > 0 {
		s += fmt.Sprintf(" %d %s", r, rest)
	}
	return s
}
