package servers

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// wire is a client that says and hears bare RESP.
type wire struct {
	t    *testing.T
	conn *net.TCPConn
	in   *bufio.Reader
}

func dial(t *testing.T, addr string) *wire {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return &wire{t, c.(*net.TCPConn), bufio.NewReader(c)}
}

// say sends commands, whose words hold no spaces, in one piece.
func (w *wire) say(commands ...string) {
	w.t.Helper()
	var b strings.Builder
	for _, c := range commands {
		words := strings.Fields(c)
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
		}
	}
	w.raw(b.String())
}

func (w *wire) raw(b string) {
	w.t.Helper()
	_, err := io.WriteString(w.conn, b)
	must(w.t, err)
}

// hear reads n replies.
func (w *wire) hear(n int) []frame {
	w.t.Helper()
	var replies []frame
	for range n {
		f, err := readReply(w.in)
		must(w.t, err)
		replies = append(replies, f)
	}
	return replies
}

// ended fails the test unless the connection is closed in order, with nothing more to hear.
func (w *wire) ended() {
	w.t.Helper()
	if f, err := readReply(w.in); err != io.EOF {
		w.t.Errorf("got %q, %v, want the connection's end", f, err)
	}
}

func (f frame) String() string { return string(f.raw) }
