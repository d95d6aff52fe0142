// Package pipe gives an in-memory connection a buffer. net.Pipe has none, and so a client
// that writes a long pipeline and a server that answers its beginning would wait for each
// other: no network does that to them.
package pipe

import (
	"net"
	"sync"
	"time"
)

// Buffered returns a connection whose writes never wait for the other end to read. Closing
// it drops what was not read.
func Buffered(c net.Conn) net.Conn {
	b := &buffered{Conn: c}
	b.news = sync.NewCond(&b.mu)
	go b.forward()
	return b
}

type buffered struct {
	net.Conn
	mu      sync.Mutex
	news    *sync.Cond
	waiting []byte
	err     error // why nothing more can be written
}

func (b *buffered) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	b.waiting = append(b.waiting, p...)
	b.news.Signal()
	return len(p), nil
}

// forward writes to the other end until the connection is closed, on either side.
func (b *buffered) forward() {
	for {
		p, ok := b.next()
		if !ok {
			return
		}
		if _, err := b.Conn.Write(p); err != nil {
			b.fail(err)
		}
	}
}

// next waits for something to forward.
func (b *buffered) next() ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) == 0 && b.err == nil {
		b.news.Wait()
	}
	p := b.waiting
	b.waiting = nil
	return p, b.err == nil
}

func (b *buffered) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	b.news.Signal()
}

func (b *buffered) Close() error {
	b.fail(net.ErrClosed)
	return b.Conn.Close()
}

// SetWriteDeadline has no effect, since no write waits.
func (b *buffered) SetWriteDeadline(time.Time) error { return nil }

func (b *buffered) SetDeadline(t time.Time) error { return b.SetReadDeadline(t) }
