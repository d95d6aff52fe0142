package store

import (
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
	rest []byte
	err  error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("an unexpected reply: %s", what)
	}
	r.rest = nil
}

// header reads a line: its type, and the number that it bears, -1 for null.
func (r *reader) header() (kind byte, n int) {
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
	for i := 0; i+1 < len(r.rest); i++ {
		if r.rest[i] == '\r' && r.rest[i+1] == '\n' {
			line := r.rest[:i]
			r.rest = r.rest[i+2:]
			return line, len(line) > 0
		}
	}
	if r.err == nil {
		r.err = errors.New("a reply that breaks off")
	}
	r.rest = nil
	return nil, false
}

// bulk reads a string, as a part of the reply.
func (r *reader) bulk() []byte {
	kind, n := r.header()
	if r.err != nil || kind != '$' || n < 0 || n+2 > len(r.rest) {
		r.fail("no string where one should be")
		return nil
	}
	s := r.rest[:n]
	r.rest = r.rest[n+2:]
	return s
}

func (r *reader) streams() []Entry {
	kind, n := r.header()
	if r.err != nil || n <= 0 {
		return nil
	}
	if kind == '*' && len(r.rest) > 0 && r.rest[0] == '*' {
		r.header() // the pair
	}
	r.bulk() // the stream's name
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

// entry copies what it keeps: a job that takes long must not hold on to the whole reply.
func (r *reader) entry() Entry {
	r.header()
	begin := r.rest
	r.bulk() // the ID
	_, n := r.header()
	for range n {
		r.bulk()
	}
	if r.err != nil {
		return Entry{}
	}
	own := reader{rest: begin[:len(begin)-len(r.rest)]}
	return own.copied(string(own.rest), max(n, 0)/2)
}

// copied reads an entry again, as parts of text, which is the same bytes.
func (r *reader) copied(text string, n int) Entry {
	part := func() string {
		s := r.bulk()
		end := len(text) - len(r.rest) - 2
		return text[end-len(s) : end]
	}
	e := Entry{ID: part()}
	r.header()
	e.Fields = make(map[string]string, n)
	for range n {
		name := part()
		e.Fields[name] = part()
	}
	return e
}
