package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// A bar says on a terminal how far a long action has come. Anywhere else it says nothing.
type bar struct {
	out   io.Writer // nil: no terminal
	verb  string
	total int // 0: not known
	began time.Time
	last  time.Time
	shown bool
}

func (t *tool) progress(verb string, total int) *bar {
	b := &bar{verb: verb, total: total, began: time.Now(), last: time.Now()}
	if width(t.err) > 0 && (total > 0 || width(t.out) == 0) {
		b.out = t.err
	}
	return b
}

// at shows that n are done, now and then.
func (b *bar) at(n int) {
	const first, then = 400 * time.Millisecond, 100 * time.Millisecond
	if b.out == nil || time.Since(b.began) < first || time.Since(b.last) < then {
		return
	}
	b.last, b.shown = time.Now(), true
	if b.total == 0 {
		fmt.Fprintf(b.out, "\r%s %d\x1b[K", b.verb, n)
		return
	}
	left := time.Duration(0)
	if n > 0 {
		left = time.Since(b.began) * time.Duration(b.total-n) / time.Duration(n)
	}
	text := fmt.Sprintf("%s %d of %d, %s left", b.verb, n, b.total, age(left))
	room := width(b.out) - 1 // a line that is full may break
	if wide := min(30, room-len("[] "+text)); wide >= 5 {
		full := wide * n / b.total
		text = "[" + strings.Repeat("#", full) + strings.Repeat(".", wide-full) + "] " + text
	}
	fmt.Fprintf(b.out, "\r%s\x1b[K", cut(text, max(room, 1)))
}

// end takes the bar away.
func (b *bar) end() {
	if b.shown {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
	b.out, b.shown = nil, false
}

// ask asks whether to do what cannot be undone. Without a terminal to ask on, only --yes is
// an answer.
func (t *tool) ask(ctx context.Context, question string) error {
	if t.yes {
		return nil
	}
	if width(t.in) == 0 || width(t.err) == 0 {
		return usage("%s Without a terminal to ask on, this needs --yes", question)
	}
	fmt.Fprintf(t.err, "%s [y/N] ", safe(question))
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(t.in).ReadString('\n') // no answer is no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answer:
		if a == "y" || a == "yes" {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(t.err)
	}
	fmt.Fprintln(t.err, "Nothing was done.")
	return errSaid
}
