package servers

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

var replies = []struct{ name, raw string }{
	{"string", "+OK\r\n"},
	{"error", "-OOM command not allowed\r\n"},
	{"integer", ":-12\r\n"},
	{"bulk string", "$5\r\nhello\r\n"},
	{"bulk string with line ends", "$6\r\n\r\n+O\r\n\r\n"},
	{"empty bulk string", "$0\r\n\r\n"},
	{"null bulk string", "$-1\r\n"},
	{"array", "*2\r\n:1\r\n$1\r\na\r\n"},
	{"empty array", "*0\r\n"},
	{"null array", "*-1\r\n"},
	{"nested arrays", "*2\r\n*1\r\n*2\r\n:1\r\n:2\r\n*0\r\n"},
	{"null", "_\r\n"},
	{"boolean", "#t\r\n"},
	{"double", ",-1.5e3\r\n"},
	{"infinity", ",inf\r\n"},
	{"big number", "(3492890328409238509324850943850943825024385\r\n"},
	{"bulk error", "!5\r\nERR x\r\n"},
	{"verbatim string", "=7\r\ntxt:a\r\n\r\n"},
	{"map", "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n"},
	{"empty map", "%0\r\n"},
	{"map of maps", "%1\r\n%1\r\n+a\r\n+b\r\n%1\r\n+c\r\n_\r\n"},
	{"set", "~2\r\n+a\r\n+b\r\n"},
	{"attributes and a reply", "|1\r\n+ttl\r\n:5\r\n*1\r\n+a\r\n"},
	{"attributes inside", "*2\r\n:1\r\n|1\r\n+ttl\r\n:5\r\n:2\r\n"},
	{"push", ">2\r\n+message\r\n*1\r\n:1\r\n"},
}

func TestReadReply(t *testing.T) {
	t.Parallel()
	for _, c := range replies {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := bufio.NewReader(iotest.OneByteReader(strings.NewReader(c.raw + "+next\r\n")))
			for _, want := range []string{c.raw, "+next\r\n"} {
				f, err := readReply(in)
				if string(f.raw) != want || err != nil || f.push != (want[0] == '>') {
					t.Errorf("got %q, push %v, %v; want %q", f.raw, f.push, err, want)
				}
			}
			if _, err := readReply(in); err != io.EOF {
				t.Errorf("after the last reply: %v", err)
			}
			for n := 1; n < len(c.raw); n++ {
				if f, err := readReply(bufio.NewReader(strings.NewReader(c.raw[:n]))); err != io.ErrUnexpectedEOF {
					t.Errorf("after %d bytes: %q, %v", n, f.raw, err)
				}
			}
		})
	}
}

func TestReadCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, raw string
		words     []string
	}{
		{"array", "*2\r\n$3\r\nGET\r\n$1\r\na\r\n", []string{"GET", "a"}},
		{"line ends and emptiness", "*3\r\n$3\r\nSET\r\n$2\r\n\r\n\r\n$0\r\n\r\n", []string{"SET", "\r\n", ""}},
		{"inline", "SET  a b\r\n", []string{"SET", "a", "b"}},
		{"no command", "*0\r\n", nil},
		{"null array", "*-1\r\n", nil},
		{"empty line", "\r\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := bufio.NewReader(iotest.OneByteReader(strings.NewReader(c.raw + c.raw)))
			for range 2 {
				f, err := readCommand(in)
				if string(f.raw) != c.raw || err != nil || len(f.words)+len(c.words) > 0 && !reflect.DeepEqual(f.words, c.words) {
					t.Errorf("got %q, %q, %v; want %q, %q", f.raw, f.words, err, c.raw, c.words)
				}
			}
			if _, err := readCommand(in); err != io.EOF {
				t.Errorf("after the last command: %v", err)
			}
			for n := 1; n < len(c.raw); n++ {
				if f, err := readCommand(bufio.NewReader(strings.NewReader(c.raw[:n]))); err != io.ErrUnexpectedEOF {
					t.Errorf("after %d bytes: %q, %v", n, f.words, err)
				}
			}
		})
	}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	reply := func(r *bufio.Reader) error { _, err := readReply(r); return err }
	command := func(r *bufio.Reader) error { _, err := readCommand(r); return err }
	for _, c := range []struct {
		name, raw string
		read      func(*bufio.Reader) error
	}{
		{"unknown type", "?5\r\n", reply},
		{"no number", "$x\r\n", reply},
		{"negative number", "*-2\r\n", reply},
		{"enormous number", "$99999999999\r\nx", reply},
		{"no line end", "$1\r\nabc", reply},
		{"empty line", "\r\n", reply},
		{"an integer in a command", "*1\r\n:1\r\n", command},
		{"a bad length in a command", "*1\r\n$x\r\n", command},
		{"a bad count in a command", "*x\r\n", command},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := c.read(bufio.NewReader(strings.NewReader(c.raw))); !errors.Is(err, errMalformed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Whatever arrives: what is read is exactly what came first, and reading goes on behind it.
func FuzzReadReply(f *testing.F) {
	for _, c := range replies {
		f.Add([]byte(c.raw))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bufio.NewReader(bytes.NewReader(b))
		got, err := readReply(in)
		if err != nil {
			return
		}
		rest, err := io.ReadAll(in)
		if !bytes.Equal(append(got.raw, rest...), b) || err != nil {
			t.Errorf("read %q, left %q of %q (%v)", got.raw, rest, b, err)
		}
	})
}
