package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stagedoor/jobs"
)

// demoSandbox is where the demo keeps its things. It stays afterwards, to be looked at, until the next demo.
const demoSandbox = "stagedoor_demo"

// demo tells the story of order 4471: its mail meets an outage that passes, its render a label that does not.
type demo struct {
	*shop
	out     io.Writer
	orderID int64
	ran     tally
}

// tellStory plays the story with a real worker, and returns an error where it did not come out as told.
func tellStory(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 25*time.Second)
	defer cancel()
	s, err := open(ctx, demoSandbox)
	if err != nil {
		return err
	}
	defer s.close()
	if _, err := seed(ctx, s.office.db); err != nil {
		return err
	}
	d := &demo{shop: s, out: out}
	config := jobs.Config{
		Logger:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Middleware: []jobs.Middleware{d.ran.count},
	}
	ctx, stop := context.WithCancelCause(ctx)
	working, drain := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := s.run(working, config)
		ended <- err
		stop(fmt.Errorf("the worker ended: %w", err))
	}()
	err = d.tell(ctx)
	drain()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	return d.count(context.WithoutCancel(ctx))
}

func (d *demo) tell(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{
		d.checkout, d.expire, d.mailed, d.died, d.replayed,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) say(chapter, format string, args ...any) {
	fmt.Fprintf(d.out, "%-9s %s\n", chapter, fmt.Sprintf(format, args...))
}

// checkout sells two seats while the mail provider is out for two requests.
func (d *demo) checkout(ctx context.Context) (err error) {
	d.mailer.failNext(2)
	if d.orderID, err = d.sell(ctx, "14-C", "15C"); err != nil {
		return err
	}
	d.say("checkout", "order %d for the seats 14-C and 15C; its render, mail and reminder are in the same transaction", d.orderID)
	return nil
}

// expire lets a hold run out that another buyer never used.
func (d *demo) expire(ctx context.Context) error {
	seats, err := d.office.seatIDs(ctx, "1A")
	if err != nil {
		return err
	}
	if err := d.office.hold(ctx, "bob@example.org", seats, -time.Second); err != nil {
		return err
	}
	if err := d.client.Enqueue(ctx, expireHolds.Job(jobs.None{})); err != nil {
		return err
	}
	free := `SELECT status = 'available' AND NOT EXISTS (SELECT 1 FROM holds) FROM seats WHERE label = '1A'`
	if err := d.until(ctx, "the expired hold to go", d.holds(free)); err != nil {
		return err
	}
	d.say("holds", "an expired hold is deleted, seat 1A is available again")
	return nil
}

// mailed waits for the mail to be sent and looks at what it took.
func (d *demo) mailed(ctx context.Context) error {
	err := d.until(ctx, "the mail", func(context.Context) (bool, error) {
		sent, _ := d.mailer.mails()
		return len(sent) > 0, nil
	})
	if err != nil {
		return err
	}
	sent, calls := d.mailer.mails()
	if got, want := fmt.Sprint(statuses(calls), len(sent)), "[503 503 202] 1"; got != want {
		return fmt.Errorf("the mail provider's answers and mails are %s, not %s", got, want)
	}
	for key, letter := range sent {
		d.say("mail", "503, 503, then taken: one mail to %s, idempotency key %s", letter.To, key)
	}
	return nil
}

func statuses(calls []mailCall) (all []int) {
	for _, call := range calls {
		all = append(all, call.Status)
	}
	return all
}

// died waits for the render to be dead-lettered and shows the letter as redis-cli would.
func (d *demo) died(ctx context.Context) error {
	var dead jobs.DeadLetter
	err := d.until(ctx, "the render to be dead-lettered", func(ctx context.Context) (bool, error) {
		for letter, err := range d.client.DeadLetters().List(ctx, jobs.Filter{Kind: renderTickets.Name()}) {
			dead = letter
			return true, err
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	got := fmt.Sprintln(dead.Fields["order_id"], dead.Attempts, dead.Error, dead.RequestID, dead.Trace)
	want := fmt.Sprintln(d.orderID, 2, SeatLabelInvalid{Label: "14-C"}, "7f3a9c2e", "4bf92f35")
	if got != want {
		return fmt.Errorf("the dead letter says\n%snot\n%s", got, want)
	}
	d.say("render", "dead after its one retry; XRANGE %s:jobs:dead - + COUNT 1", demoSandbox)
	return d.printFirstDead(ctx)
}

// printFirstDead asks with a bare command, which keeps the fields in the order in which they lie in the stream.
func (d *demo) printFirstDead(ctx context.Context) error {
	reply, err := d.rdb.Do(ctx, "XRANGE", demoSandbox+":jobs:dead", "-", "+", "COUNT", 1).Slice()
	if err != nil {
		return err
	}
	entry, ok := reply[0].([]any)
	if !ok {
		return fmt.Errorf("XRANGE answered %T", reply[0])
	}
	fmt.Fprintf(d.out, "1) 1) %q\n", entry[0])
	lead := "   2) "
	fields, _ := entry[1].([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		name, value := fmt.Sprint(fields[i]), fmt.Sprint(fields[i+1])
		fmt.Fprintf(d.out, "%s%2d) %-16s%2d) %s\n", lead, i+1, strconv.Quote(name), i+2, strconv.Quote(value))
		lead = "      "
	}
	return nil
}

// replayed corrects the label, which is a data fix, and then runs the dead again.
func (d *demo) replayed(ctx context.Context) error {
	if err := d.office.relabel(ctx, "14-C", "14C"); err != nil {
		return err
	}
	d.say("label", "14-C is corrected to 14C in the seat map")
	hands := jobs.WithActor(ctx, "demo") // in the audit trail
	n, err := d.client.DeadLetters().ReplayAll(hands, jobs.Filter{Kind: renderTickets.Name()}, jobs.ReplayOptions{})
	if err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("%d dead letters replayed, not 1", n)
	}
	d.say("replay", "1 dead letter of the kind %s is back on the stream", renderTickets.Name())
	if err := d.until(ctx, "the PDF", d.holds(`SELECT EXISTS (SELECT 1 FROM tickets)`)); err != nil {
		return err
	}
	var size int
	if err := d.office.db.QueryRow(ctx, `SELECT length(pdf) FROM tickets`).Scan(&size); err != nil {
		return err
	}
	d.say("tickets", "the PDF of order %d is stored, %d bytes", d.orderID, size)
	return nil
}

// count adds up what became of the jobs, once the worker has drained.
func (d *demo) count(ctx context.Context) error {
	stats, err := d.client.Stats(ctx)
	if err != nil {
		return err
	}
	const enqueued = 4
	done, ticks := d.ran.done.Load(), d.ran.ticks.Load()
	d.say("counts", "%d enqueued = %d done + %d dead + %d delayed; beside them %d ticks of schedules",
		enqueued, done, stats.Dead, stats.Delayed, ticks)
	if done != 3 || stats.Dead != 0 || stats.Delayed != 1 {
		return errors.New("the counts should be 3 done, 0 dead, and 1 delayed, the reminder")
	}
	return nil
}

// holds is a condition for until: a query whose one value is true.
func (d *demo) holds(query string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (ok bool, err error) {
		err = d.office.db.QueryRow(ctx, query).Scan(&ok)
		return ok, err
	}
}

// until asks again and again until the condition holds or the story's time is over.
func (d *demo) until(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	for {
		ok, err := holds(ctx)
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tally is a middleware that counts the jobs that were done.
type tally struct{ done, ticks atomic.Int64 }

func (t *tally) count(next jobs.Handler) jobs.Handler {
	return func(ctx context.Context, job jobs.Job) error {
		err := next(ctx, job)
		switch {
		case err != nil:
		case job.Tick.IsZero():
			t.done.Add(1)
		default:
			t.ticks.Add(1)
		}
		return err
	}
}
