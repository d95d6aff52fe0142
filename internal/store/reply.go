package store

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// onceRaw is a command whose reply comes as Redis wrote it.
type onceRaw struct{ *redis.RawCmd }

func (onceRaw) NoRetry() bool { return true }

// replyError is an error that Redis itself has answered.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// readEntries reads the reply to XREADGROUP on one stream. go-redis would make 26
// allocations of an entry, and more work than all that a worker does with it.
func readEntries(raw []byte) ([]Entry, error) {
	r := reader{rest: raw}
	all := r.streams()
	if r.err == nil && len(r.rest) > 0 {
		r.fail("something behind its end")
	}
	if r.err != nil {
		return nil, r.err
	}
	return all, nil
}

// reader reads RESP2 and RESP3: a map of streams is one, and an array of pairs, or of
// names and streams in turn, is the other.
type reader struct {
	rest  []byte
	err   error
	parts []part // of the present entry: its ID, and names and values in turn
}

// part is a string's place in its entry.
type part struct{ from, to int }

func (p part) of(text string) string { return text[p.from:p.to] }

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("an unexpected reply: %s", what)
	}
	r.rest = nil
}

// header reads a line: its type, and the number that it bears, -1 for null.
func (r *reader) header() (kind byte, n int) {
	const longest = len("*999999999")
	line := r.rest[:min(len(r.rest), longest+2)]
	for i := 1; i < len(line); i++ {
		switch c := line[i]; {
		case '0' <= c && c <= '9':
			n = 10*n + int(c-'0')
			continue
		case c == '\r' && i > 1 && i+1 < len(line) && line[i+1] == '\n' && (line[0] == '$' || line[0] == '*' || line[0] == '%'):
			r.rest = r.rest[i+2:]
			return line[0], n
		}
		break
	}
	return r.rare()
}

// rare is header for what is no plain count.
func (r *reader) rare() (kind byte, n int) {
	line, ok := r.line()
	if !ok {
		return 0, 0
	}
	switch kind = line[0]; kind {
	case '-':
		r.err, r.rest = replyError(line[1:]), nil
	case '_':
		n = -1
	case '*', '%', '$':
		var err error
		if n, err = strconv.Atoi(string(line[1:])); err != nil {
			r.fail(strconv.Quote(string(line)))
		}
	default:
		r.fail(strconv.Quote(string(line)))
	}
	return kind, n
}

func (r *reader) line() ([]byte, bool) {
	line, rest, ok := bytes.Cut(r.rest, []byte("\r\n"))
	if r.rest = rest; !ok && r.err == nil {
		r.err = errors.New("a reply that breaks off")
	}
	return line, ok && len(line) > 0
}

// skip reads a string, and returns how long it is.
func (r *reader) skip() int {
	kind, n := r.header()
	if r.err != nil || kind != '$' || n < 0 || n > len(r.rest)-2 {
		r.fail("no string where one should be")
		return 0
	}
	r.rest = r.rest[n+2:]
	return n
}

func (r *reader) streams() []Entry {
	kind, n := r.header()
	if r.err != nil || n <= 0 {
		return nil
	}
	if kind == '*' && len(r.rest) > 0 && r.rest[0] == '*' {
		r.header() // the pair
	}
	r.skip() // the stream's name
	_, n = r.header()
	if n > len(r.rest) {
		r.fail("more entries than it has bytes")
	}
	if r.err != nil {
		return nil
	}
	all := make([]Entry, 0, max(n, 0))
	for range n {
		all = append(all, r.entry())
	}
	return all
}

// entry copies what it keeps, in one piece: a job that takes long must not hold on to the
// whole reply.
func (r *reader) entry() Entry {
	r.header()
	begin := r.rest
	r.parts = r.parts[:0]
	r.part(begin)
	_, n := r.header()
	for i := 0; i < n && r.err == nil; i++ {
		r.part(begin)
	}
	if r.err != nil {
		return Entry{}
	}
	text := string(begin[:len(begin)-len(r.rest)])
	e := Entry{ID: r.parts[0].of(text), Fields: make(map[string]string, max(n, 0)/2)}
	for pairs := r.parts[1:]; len(pairs) > 1; pairs = pairs[2:] {
		e.Fields[pairs[0].of(text)] = pairs[1].of(text)
	}
	return e
}

// part notes the place of a string in its entry, which begins at begin.
func (r *reader) part(begin []byte) {
	n := r.skip()
	end := len(begin) - len(r.rest) - len("\r\n")
	r.parts = append(r.parts, part{end - n, end})
}
