package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs"
)

var order1 = orderArgs{OrderID: 1}

func TestSendTickets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.order1(t, "1A", "2A")

	twice(t, f, withJob(t, jobs.Job{ID: "88210", Kind: sendTickets.Name()}), f.sendTickets, order1)

	sent, calls := f.mailer.mails()
	letter := sent["88210"]
	if len(sent) != 1 || letter.To != "ada@example.org" || !strings.Contains(letter.Text, "2 seats") {
		t.Errorf("sent: %v, want one mail to ada about 2 seats", sent)
	}
	if len(calls) != 2 || calls[0] != calls[1] {
		t.Errorf("calls: %v, want two equal ones", calls)
	}
}

func TestSendTicketsNeedsAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.order1(t, "1A")
	if err := f.sendTickets(t.Context(), order1); !errors.Is(err, errNoJob) {
		t.Errorf("outside of a job: %v, want %v", err, errNoJob)
	}
	if _, calls := f.mailer.mails(); len(calls) != 0 {
		t.Errorf("the provider was called: %v", calls)
	}
}

func TestRenderTickets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.order1(t, "1A", "2A")

	twice(t, f, t.Context(), f.renderTickets, order1)

	pdf := one[[]byte](t, f, `SELECT pdf FROM tickets WHERE order_id = 1`)
	if !bytes.HasPrefix(pdf, []byte("%PDF-1.")) || !bytes.HasSuffix(pdf, []byte("%%EOF\n")) {
		t.Errorf("no PDF: %.20q … %q", pdf, pdf[max(0, len(pdf)-10):])
	}
	if n := bytes.Count(pdf, []byte("/Type /Page\n")); n != 2 {
		t.Errorf("%d pages, want one for each of the 2 seats", n)
	}
}

func TestRenderTicketsRefusesALabel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.order1(t, "1A", "14-C")

	err := f.renderTickets(t.Context(), order1)
	const want = "SeatLabelInvalid: '14-C' is not a row letter and a seat number"
	if invalid, ok := errors.AsType[SeatLabelInvalid](err); !ok || invalid.Label != "14-C" || err.Error() != want {
		t.Errorf("error: %v, want %s", err, want)
	}
	if line := errors.Unwrap(err); line == nil || !strings.HasPrefix(line.Error(), "File stagedoor/pdf.go, line ") ||
		!strings.HasSuffix(line.Error(), ".barcodeFor") {
		t.Errorf("the error comes from %v, want a line of barcodeFor", line)
	}
	if n := one[int](t, f, `SELECT count(*) FROM tickets`); n != 0 {
		t.Errorf("%d tickets are stored", n)
	}

	if err := f.relabel(t.Context(), "14-C", "14C"); err != nil {
		t.Fatal(err)
	}
	twice(t, f, t.Context(), f.renderTickets, order1)
	if n := one[int](t, f, `SELECT count(*) FROM tickets`); n != 1 {
		t.Errorf("%d tickets are stored after the correction, want 1", n)
	}
}

func TestRenderTicketsFollowsTheSeatMap(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.order1(t, "1A")
	read := func() []byte {
		if err := f.renderTickets(t.Context(), order1); err != nil {
			t.Fatal(err)
		}
		return one[[]byte](t, f, `SELECT pdf FROM tickets`)
	}
	before := read()
	if err := f.relabel(t.Context(), "1A", "21A"); err != nil {
		t.Fatal(err)
	}
	if after := read(); bytes.Equal(before, after) {
		t.Error("a new label gives the old PDF")
	}
}

func TestTicketsOfNoOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := withJob(t, jobs.Job{ID: "1"})
	if err := f.renderTickets(ctx, orderArgs{OrderID: 9}); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("render: %v", err)
	}
	if err := f.sendTickets(ctx, orderArgs{OrderID: 9}); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("send: %v", err)
	}
}

func TestSeatLabels(t *testing.T) {
	t.Parallel()
	for label, valid := range map[string]bool{
		"14C": true, "1A": true, "999Z": true,
		"14-C": false, "C14": false, "014C": false, "14c": false, "1000A": false, "14C\n": false, "": false, "14Ä": false,
	} {
		code, err := barcodeFor(4471, label)
		if (err == nil) != valid {
			t.Errorf("%q: %v, valid is %t", label, err, valid)
		}
		if err == nil && code.Content() != "4471-"+label {
			t.Errorf("%q is encoded as %q", label, code.Content())
		}
	}
}

func TestTicketsPDFIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	o := order{
		ID: 4471, Email: "ada@example.org", Event: "Größe & Ärger", Labels: []string{"14C", "15C"},
		StartsAt: time.Date(2026, 4, 28, 19, 30, 0, 0, time.UTC), PlacedAt: time.Date(2026, 3, 28, 21, 14, 0, 0, time.UTC),
	}
	first, err := ticketsPDF(o)
	if err != nil {
		t.Fatal(err)
	}
	if dates := bytes.Count(first, []byte("D:20260328211400")); dates != 2 {
		t.Errorf("the PDF bears the order's date %d times, want 2", dates)
	}
	o.PlacedAt = o.PlacedAt.In(time.FixedZone("", 3600)) // the same instant, as another machine reads it
	for range 5 {
		again, err := ticketsPDF(o)
		if err != nil || !bytes.Equal(first, again) {
			t.Fatalf("another PDF of the same order: %v", err)
		}
	}
}
