package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/jobstest"
)

// newWorker is the shop's worker, as main wires it, on a queue whose clock the test moves.
func newWorker(t *testing.T, f *fixture) *jobstest.Queue {
	t.Helper()
	q := jobstest.New(t, jobs.Config{})
	register(q.Runner(), f.boxOffice)
	return q
}

func TestRenderDiesOnItsLabelAndIsReplayed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := newWorker(t, f)
	f.order1(t, "14-C")
	q.Enqueue(renderTickets.Job(order1))
	q.Advance(3 * time.Second) // the one retry comes within a second

	dead := q.Dead()
	if len(dead) != 1 {
		t.Fatalf("dead letters: %v, want one", dead)
	}
	if d := dead[0]; d.Attempts != 2 || d.Error != "SeatLabelInvalid: '14-C' is not a row letter and a seat number" ||
		d.Fields["order_id"] != "1" || !strings.Contains(d.Traceback, "File stagedoor/pdf.go, line ") {
		t.Errorf("dead letter: %+v", d)
	}

	if err := f.relabel(t.Context(), "14-C", "14C"); err != nil {
		t.Fatal(err)
	}
	filter := jobs.Filter{Kind: renderTickets.Name()}
	if n, err := q.Client().DeadLetters().ReplayAll(t.Context(), filter, jobs.ReplayOptions{}); n != 1 || err != nil {
		t.Fatalf("replay: %d, %v", n, err)
	}
	q.Drain()
	if done := count(q.Done()); done["render_tickets"] != 1 || len(q.Dead()) != 0 {
		t.Errorf("after the replay: done %v, dead %v", done, q.Dead())
	}
	if n := one[int](t, f, `SELECT count(*) FROM tickets`); n != 1 {
		t.Errorf("%d PDFs are stored, want 1", n)
	}
}

func TestMailIsSentOnceThroughAnOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := newWorker(t, f)
	f.order1(t, "1A")
	f.mailer.failNext(2)
	job := sendTickets.Job(order1)
	q.Enqueue(job)
	q.Advance(10 * time.Second) // backoffs of at most 1 s and 2 s

	sent, calls := f.mailer.mails()
	want := []mailCall{{job.ID, 503}, {job.ID, 503}, {job.ID, 202}}
	if diff := cmp.Diff(want, calls); diff != "" || len(sent) != 1 {
		t.Errorf("%d mails, by calls (-want +got):\n%s", len(sent), diff)
	}
	if done := count(q.Done()); done["send_tickets"] != 1 {
		t.Errorf("done: %v", done)
	}
}

func TestMailGivesUpAfterFiveRetries(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := newWorker(t, f)
	f.order1(t, "1A")
	f.mailer.failNext(100)
	q.Enqueue(sendTickets.Job(order1))
	q.Advance(2 * time.Minute) // backoffs of at most 1, 2, 4, 8 and 16 s

	if dead := q.Dead(); len(dead) != 1 || dead[0].Attempts != 6 ||
		dead[0].Error != "mail provider answered 503 Service Unavailable" {
		t.Errorf("dead letters: %+v, want one of 6 attempts", dead)
	}
}

func TestMailToNobodyIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := newWorker(t, f)
	f.order1(t, "1A")
	f.exec(t, `UPDATE orders SET email = 'nobody'`)
	q.Enqueue(sendTickets.Job(order1))
	q.Drain()

	if dead := q.Dead(); len(dead) != 1 || dead[0].Attempts != 1 {
		t.Errorf("dead letters: %+v, want one of 1 attempt", dead)
	}
}

func TestReconciliationIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := newWorker(t, f)
	f.payrail.failNext(1)
	q.Enqueue(reconcilePayments.Job(jobs.None{}))
	q.Advance(3 * time.Second)

	if dead := q.Dead(); len(dead) != 1 || dead[0].Attempts != 1 || len(f.payrail.asked) != 1 {
		t.Errorf("dead letters: %+v after %d requests, want one of 1 attempt", dead, len(f.payrail.asked))
	}
}

func TestADayOfSchedules(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := newWorker(t, f)
	q.Drain()
	f.ada(t, -time.Second, "1A")
	f.exec(t, `INSERT INTO idempotency_keys (key, created_at) VALUES ('old', now() - interval '25 hours')`)
	f.exec(t, `INSERT INTO jobs.outbox (kind, published_at) VALUES ('old', now() - interval '8 days')`)

	start := q.Now()
	q.Advance(24 * time.Hour)

	want := map[string]int{"expire_holds": 1440, "purge_idempotency_keys": 24, "reconcile_payments": 1, "purge_outbox": 1}
	if diff := cmp.Diff(want, count(q.Done())); diff != "" || len(q.Dead()) != 0 {
		t.Errorf("done in a day (-want +got):\n%s\ndead: %v", diff, q.Dead())
	}
	for _, table := range []string{"holds", "idempotency_keys", "jobs.outbox"} {
		if n := one[int](t, f, `SELECT count(*) FROM `+table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
	clocks := make(map[string]string) // of the last tick
	for _, job := range q.Done() {
		clocks[job.Kind] = job.Tick.UTC().Format("15:04")
	}
	if clocks["reconcile_payments"] != "03:00" || clocks["purge_outbox"] != "03:30" {
		t.Errorf("ticks at %v", clocks)
	}
	threeOClock := jobs.Daily(3, 0).Next(start)
	var days []string
	for back := reconciledDays; back > 0; back-- {
		days = append(days, threeOClock.AddDate(0, 0, -back).Format(time.DateOnly))
	}
	if diff := cmp.Diff(days, f.payrail.asked); diff != "" {
		t.Errorf("days asked for at 03:00 (-want +got):\n%s", diff)
	}
}

func TestReminderComesADayBeforeTheEvent(t *testing.T) {
	t.Parallel()
	f, q := newFixture(t), jobstest.New(t, jobs.Config{})
	jobs.Handle(q.Runner(), renderTickets, f.renderTickets)
	jobs.Handle(q.Runner(), sendTickets, f.sendTickets)
	jobs.Handle(q.Runner(), sendReminder, f.sendReminder)
	f.exec(t, `UPDATE events SET starts_at = $1`, q.Now().Add(26*time.Hour))
	if _, err := f.checkout(t.Context(), f.ada(t, time.Hour, "1A")); err != nil {
		t.Fatal(err)
	}
	f.carry(t, q)

	q.Advance(2*time.Hour - time.Second)
	if done := count(q.Done()); done["send_reminder"] != 0 {
		t.Errorf("a second before: %v", done)
	}
	q.Advance(2 * time.Second)
	if done := count(q.Done()); done["send_reminder"] != 1 {
		t.Errorf("a second after: %v", done)
	}
	reminders := 0
	sent, _ := f.mailer.mails()
	for _, letter := range sent {
		if strings.HasPrefix(letter.Subject, "Soon: ") {
			reminders++
		}
	}
	if reminders != 1 {
		t.Errorf("sent: %v", sent)
	}
}

// count counts jobs by kind.
func count(js []jobs.Job) map[string]int {
	kinds := make(map[string]int)
	for _, job := range js {
		kinds[job.Kind]++
	}
	return kinds
}
