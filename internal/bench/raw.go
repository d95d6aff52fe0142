package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// The raw floor is the floor without a client library: RESP written and read by hand, and the next batch read in the
// round trip that settles the last one.
var rawEntry = entry{
	name:     "raw",
	about:    "by hand in bare RESP: pipelined XADD; XACK and XDEL of the last batch and XREADGROUP COUNT 100 in one trip",
	measures: "drain8 drain64 enqueue bulk pickup",
	bulk:     true,
	share:    1,
	open:     openRaw,
}

type raw struct {
	setup
	producer *wire
}

func openRaw(ctx context.Context, s setup) (peer, error) {
	w, err := dialWire(ctx, s)
	return &raw{s, w}, err
}

func (r *raw) enqueue(_ context.Context, _ time.Time, orders ...order) error {
	for _, of := range orders {
		r.producer.say(append([]string{"XADD", "jobs", "*"}, floorFields(of)...)...)
	}
	return r.producer.replies(len(orders))
}

func (r *raw) work(ctx context.Context, _ int, handle handler) error {
	w, err := dialWire(ctx, r.setup)
	if err != nil {
		return err
	}
	w.say("XGROUP", "CREATE", "jobs", "workers", "0", "MKSTREAM")
	if err := w.replies(1); err != nil {
		return err
	}
	var ids []string
	for ctx.Err() == nil {
		if ids, err = w.trip(ids); err != nil {
			return err
		}
		for range ids {
			if err := handle(0); err != nil {
				return err
			}
		}
	}
	return w.conn.Close()
}

func (r *raw) left(ctx context.Context, s server) (int64, error) {
	return s.(*redisServer).count(ctx, "XLEN jobs")
}

func (r *raw) close() error { return r.producer.conn.Close() }

// wire is a connection that speaks RESP.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	out  *bufio.Writer
}

func dialWire(ctx context.Context, s setup) (*wire, error) {
	conn, err := s.trips.dial(ctx, "tcp", s.redis)
	if err != nil {
		return nil, err
	}
	return &wire{conn, bufio.NewReaderSize(conn, 32<<10), bufio.NewWriterSize(conn, 32<<10)}, nil
}

func (w *wire) say(words ...string) {
	w.head('*', len(words))
	for _, word := range words {
		w.head('$', len(word))
		_, _ = w.out.WriteString(word) // Flush reports it
		_, _ = w.out.WriteString("\r\n")
	}
}

func (w *wire) head(sort byte, n int) {
	b := append(w.out.AvailableBuffer(), sort)
	b = append(strconv.AppendInt(b, int64(n), 10), '\r', '\n')
	_, _ = w.out.Write(b)
}

// trip settles a batch and reads the next, in one round trip. A batch of none is waited for.
func (w *wire) trip(ids []string) ([]string, error) {
	if len(ids) == 0 {
		w.say("XREADGROUP", "GROUP", "workers", "raw", "COUNT", "100", "BLOCK", "500", "STREAMS", "jobs", ">")
		if err := w.out.Flush(); err != nil {
			return nil, err
		}
		return w.entries(ids)
	}
	w.say(append([]string{"XACK", "jobs", "workers"}, ids...)...)
	w.say(append([]string{"XDEL", "jobs"}, ids...)...)
	w.say("XREADGROUP", "GROUP", "workers", "raw", "COUNT", "100", "STREAMS", "jobs", ">")
	if err := w.replies(2); err != nil {
		return nil, err
	}
	return w.entries(ids[:0])
}

// replies sends what was said and drops n replies.
func (w *wire) replies(n int) error {
	if err := w.out.Flush(); err != nil {
		return err
	}
	for range n {
		if _, err := w.skip(); err != nil {
			return err
		}
	}
	return nil
}

// entries reads the reply of XREADGROUP and keeps of it the entries' IDs.
func (w *wire) entries(ids []string) ([]string, error) {
	streams, _, err := w.line()
	if err != nil || streams < 1 {
		return ids, err
	}
	_, _, err = w.line() // a stream: its name and its entries
	_, err2 := w.skip()
	n, _, err3 := w.line()
	for range n {
		_, _, err4 := w.line() // an entry: its ID and its fields
		id, err5 := w.bulk()
		_, err6 := w.skip()
		if err := errors.Join(err4, err5, err6); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, errors.Join(err, err2, err3)
}

// line reads a reply's first line: what follows it, and its sort.
func (w *wire) line() (n int, sort byte, err error) {
	b, err := w.in.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	switch sort = b[0]; sort {
	case '-':
		return 0, sort, fmt.Errorf("redis: %s", b[1:len(b)-2])
	case '+':
		return 0, sort, nil
	}
	negative, n := b[1] == '-', 0
	for _, digit := range b[1 : len(b)-2] {
		if digit != '-' {
			n = 10*n + int(digit-'0')
		}
	}
	if negative {
		n = -n
	}
	return n, sort, nil
}

func (w *wire) bulk() (string, error) {
	n, _, err := w.line()
	if err != nil {
		return "", err
	}
	b := make([]byte, n+2)
	_, err = io.ReadFull(w.in, b)
	return string(b[:n]), err
}

// skip drops a reply, with all that is in it.
func (w *wire) skip() (n int, err error) {
	n, sort, err := w.line()
	switch {
	case err != nil || n < 0:
		return n, err
	case sort == '$':
		_, err = w.in.Discard(n + 2)
	case sort == '*':
		for i := 0; i < n && err == nil; i++ {
			_, err = w.skip()
		}
	}
	return n, err
}
