package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/jobstest"
)

func TestRenderIsReplayedOnceTheLabelIsCorrected(t *testing.T) {
	t.Parallel()
	q := jobstest.New(t, jobs.Config{})
	b := newBoxOffice()
	jobs.Handle(q.Runner(), renderTickets, b.render)

	q.Enqueue(renderTickets.Job(order{4471}))
	q.Drain()
	q.Advance(time.Second) // the one retry
	dead := q.Dead()
	if len(dead) != 1 || dead[0].Attempts != 2 || !strings.HasPrefix(dead[0].Error, "SeatLabelInvalid: '14-C'") {
		t.Fatalf("dead: %+v", dead)
	}

	b.relabel(4471, "14C")
	n, err := q.Client().DeadLetters().ReplayAll(t.Context(), jobs.Filter{Kind: "render_tickets"}, jobs.ReplayOptions{})
	if n != 1 || err != nil {
		t.Fatalf("%d replayed: %v", n, err)
	}
	q.Drain()
	if len(q.Dead()) != 0 || b.tickets[4471] == "" {
		t.Errorf("dead: %+v, tickets: %v", q.Dead(), b.tickets)
	}
}

func TestMailIsTriedAgainWhileTheProviderIsBusy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		busy int
		want jobstest.Outcome
	}{
		{0, jobstest.Done},
		{1, jobstest.Retried},
	} {
		b := newBoxOffice()
		b.busy = c.busy
		if got := jobstest.Run(t, sendTickets, b.mail, letter{4468, "ada@example.org"}); got.Outcome != c.want {
			t.Errorf("after %d refusals: %v", c.busy, got)
		}
	}
}

func TestMailIsTakenOnce(t *testing.T) {
	t.Parallel()
	b := newBoxOffice()
	b.busy = 0
	ada := letter{4468, "ada@example.org"}
	ctx := jobs.NewContext(t.Context(), sendTickets.Job(ada))
	for range 2 { // as after a crash between the mail and its record
		if err := b.mail(ctx, ada); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(b.sent); got != 1 {
		t.Errorf("the provider took %d letters", got)
	}
}

func TestReminderWaitsForItsDay(t *testing.T) {
	t.Parallel()
	q := jobstest.New(t, jobs.Config{})
	b := newBoxOffice()
	b.busy = 0
	jobs.Handle(q.Runner(), sendReminder, b.mail)

	q.Enqueue(sendReminder.Job(letter{4469, "bob@example.org"}).In(24 * time.Hour))
	q.Advance(24*time.Hour - time.Second)
	if len(b.sent) != 0 {
		t.Fatal("sent early")
	}
	q.Advance(2 * time.Second)
	want := []letter{{4469, "bob@example.org"}}
	if got := slices.Collect(maps.Values(b.sent)); !cmp.Equal(got, want) {
		t.Errorf("sent %v", got)
	}
}

func TestHoldsAreExpired(t *testing.T) {
	t.Parallel()
	b := newBoxOffice()
	b.holds = map[string]time.Time{"past": time.Now().Add(-time.Second), "to come": time.Now().Add(time.Hour)}
	for range 2 {
		if got := jobstest.Run(t, expireHolds, b.expire, jobs.None{}); got.Outcome != jobstest.Done {
			t.Errorf("expire_holds: %v", got)
		}
		if _, kept := b.holds["to come"]; !kept || len(b.holds) != 1 {
			t.Errorf("holds: %v", b.holds)
		}
	}
}
