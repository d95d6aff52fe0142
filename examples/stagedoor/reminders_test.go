package main

import (
	"strings"
	"testing"

	"github.com/stagedoor/jobs"
)

func TestSendReminder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.order1(t, "1A")

	twice(t, f, withJob(t, jobs.Job{ID: "88212", Kind: sendReminder.Name()}), f.sendReminder, order1)

	sent, _ := f.mailer.mails()
	if letter := sent["88212"]; len(sent) != 1 || !strings.HasPrefix(letter.Subject, "Soon: ") {
		t.Errorf("sent: %v, want one reminder", sent)
	}
}

func TestSendReminderOfThePast(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.order1(t, "1A")
	f.exec(t, `UPDATE events SET starts_at = now() - interval '1 minute'`)

	twice(t, f, withJob(t, jobs.Job{ID: "88212", Kind: sendReminder.Name()}), f.sendReminder, order1)

	if sent, _ := f.mailer.mails(); len(sent) != 0 {
		t.Errorf("sent: %v, want nothing", sent)
	}
}
