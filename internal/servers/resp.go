package servers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// errMalformed is wrapped when bytes are not RESP.
var errMalformed = errors.New("malformed RESP")

// maxLength bounds what one length in the stream may ask for, in bytes or elements.
const maxLength = 512 << 20

// frame is one whole command or reply as it lay on the wire.
type frame struct {
	raw   []byte
	words []string // of a command: its name and arguments; none if the server will not answer
	push  bool     // of a reply: it was not asked for (RESP3)
}

// readCommand reads one command: an array of bulk strings, or an inline one, words in a line.
func readCommand(r *bufio.Reader) (frame, error) {
	p := parser{in: r}
	line, err := p.line()
	if err != nil {
		return frame{}, err
	}
	if line[0] != '*' {
		return frame{raw: p.raw, words: strings.Fields(string(line))}, nil
	}
	n, err := length(line)
	if err != nil {
		return frame{}, err
	}
	var words []string
	for range n {
		word, err := p.word()
		if err != nil {
			return frame{}, err
		}
		words = append(words, word)
	}
	return frame{raw: p.raw, words: words}, nil
}

// readReply reads one whole reply of RESP2 or RESP3, however deeply nested, with the attributes in front of it.
func readReply(r *bufio.Reader) (frame, error) {
	p := parser{in: r}
	first := byte(0)
	for left := 1; left > 0; { // values still to be read
		line, err := p.line()
		if err != nil {
			return frame{}, err
		}
		if first == 0 {
			first = line[0]
		}
		more, err := p.value(line)
		if err != nil {
			return frame{}, err
		}
		left += more - 1
	}
	return frame{raw: p.raw, push: first == '>'}, nil
}

// parser reads from in and keeps what it has read.
type parser struct {
	in  *bufio.Reader
	raw []byte
}

// value reads the rest of the value that line begins, and returns how many further values belong to it.
func (p *parser) value(line []byte) (int, error) {
	switch line[0] {
	case '+', '-', ':', '_', '#', ',', '(': // string, error, integer, null, boolean, double, big number
		return 0, nil
	case '$', '=', '!': // bulk string, verbatim string, bulk error
		n, err := length(line)
		if err != nil || n < 0 {
			return 0, err
		}
		_, err = p.bytes(n)
		return 0, err
	case '*', '~', '>': // array, set, push
		n, err := length(line)
		return max(n, 0), err
	case '%': // map
		n, err := length(line)
		return 2 * max(n, 0), err
	case '|': // attributes: a map, and then the value that they belong to
		n, err := length(line)
		return 2*max(n, 0) + 1, err
	}
	return 0, fmt.Errorf("%w: type %q", errMalformed, line[0])
}

// word reads a bulk string of a command.
func (p *parser) word() (string, error) {
	line, err := p.line()
	if err != nil {
		return "", inside(err)
	}
	if line[0] != '$' {
		return "", fmt.Errorf("%w: type %q in a command", errMalformed, line[0])
	}
	n, err := length(line)
	if err != nil {
		return "", err
	}
	b, err := p.bytes(max(n, 0))
	return string(b), err
}

// line reads a line and returns it, with the line's end, which makes it never empty.
func (p *parser) line() ([]byte, error) {
	b, err := p.in.ReadBytes('\n')
	started := len(p.raw)+len(b) > 0
	p.raw = append(p.raw, b...)
	if err != nil && started {
		return nil, inside(err)
	}
	return b, err
}

// bytes reads n bytes and the line end after them.
func (p *parser) bytes(n int) ([]byte, error) {
	start := len(p.raw)
	var b bytes.Buffer // grows with what arrives, not with what a length claims
	if _, err := io.CopyN(&b, p.in, int64(n)+2); err != nil {
		return nil, inside(err)
	}
	p.raw = append(p.raw, b.Bytes()...)
	if !bytes.HasSuffix(p.raw, []byte("\r\n")) {
		return nil, fmt.Errorf("%w: no line end after %d bytes", errMalformed, n)
	}
	return p.raw[start : start+n], nil
}

// length is the number in a line such as "$5", -1 for null.
func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimRight(line[1:], "\r\n")))
	if err != nil || n < -1 || n > maxLength {
		return 0, fmt.Errorf("%w: length %q", errMalformed, line)
	}
	return n, nil
}

// inside is what an error means in the middle of a frame.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
