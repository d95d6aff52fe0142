package dashboard

// Whatever changes something is asked for first: a page says what would happen, and its button is the only form that is
// sent to "act". That goes on to a page that says what has happened, so that reading it again repeats nothing.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
)

// A question is asked before something is done.
type question struct {
	Ask, Button, Note string
	Bad               bool // it cannot be undone
	Letters           []jobs.DeadLetter
	Gone              int // of the chosen letters
	NoJobs            int // of the chosen letters: they cannot be replayed
	More              int // letters that are not listed
	Changes           []change
	Keep              []kept // what the button sends
	Back              string
}

type kept struct{ Name, Value string }

func (q *question) keep(name string, values ...string) {
	for _, v := range values {
		q.Keep = append(q.Keep, kept{name, v})
	}
}

// tab is the list that it is about.
func (q *question) tab() string {
	list, _, _ := strings.Cut(q.Back, "?")
	if list == "letter" {
		list = "dead"
	}
	return list
}

// deeds are what can be done, by the name that forms have for it.
var deeds = map[string]struct {
	ask func(*dashboard, context.Context, url.Values) (question, error)
	act func(*dashboard, context.Context, url.Values) (string, error)
}{
	"replay":       {(*dashboard).askLetters, (*dashboard).replay},
	"discard":      {(*dashboard).askLetters, (*dashboard).discard},
	"correct":      {(*dashboard).askCorrect, (*dashboard).correct},
	"replay-all":   {(*dashboard).askAll, (*dashboard).replayAll},
	"cancel":       {(*dashboard).askDelayed, (*dashboard).cancel},
	"run-now":      {(*dashboard).askDelayed, (*dashboard).runNow},
	"run-schedule": {(*dashboard).askSchedule, (*dashboard).runSchedule},
}

var errNoDeed = refusal{400, "It is not said what is to be done."}

func (d *dashboard) confirm(ctx context.Context, form url.Values) (page, error) {
	if d.o.ReadOnly {
		return page{}, errReadOnly
	}
	deed, ok := deeds[form.Get("do")]
	if !ok {
		return page{}, errNoDeed
	}
	q, err := deed.ask(d, ctx, form)
	if err != nil {
		return page{}, err
	}
	q.keep("do", form.Get("do"))
	return page{Name: "confirm", Tab: q.tab(), Title: q.Button, Data: q}, nil
}

func (d *dashboard) act(ctx context.Context, form url.Values) (page, error) {
	deed, ok := deeds[form.Get("do")]
	if !ok {
		return page{}, errNoDeed
	}
	to, err := deed.act(d, ctx, form)
	return page{Location: to}, err
}

// done is where it goes on: the list that a person came from, with what was done.
func done(list, what string, n, gone int) string {
	more := []string{"said", what, "n", strconv.Itoa(n)}
	if gone > 0 {
		more = append(more, "gone", strconv.Itoa(gone))
	}
	u, _ := url.Parse(list)
	q := u.Query()
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return u.Path + "?" + q.Encode()
}

// said is what a link says was done. Its words are ours: a foreign link can at most lie about numbers.
func said(form url.Values) string {
	n, err := strconv.Atoi(form.Get("n"))
	if err != nil {
		return ""
	}
	text := map[string]string{
		"replayed":  count(n, "dead letter is", "dead letters are") + " back on the stream.",
		"discarded": count(n, "dead letter is", "dead letters are") + " deleted.",
		"cancelled": "The job is cancelled.",
		"ready":     "The job is ready.",
		"enqueued":  "The schedule's job is ready.",
	}[form.Get("said")]
	if gone, err := strconv.Atoi(form.Get("gone")); err == nil && text != "" {
		text += " " + number(gone) + " had gone before: somebody else was quicker."
	}
	return text
}

// listed is how many letters a question shows.
const listed = 20

func (d *dashboard) askLetters(ctx context.Context, form url.Values) (question, error) {
	entries := form["entry"]
	if len(entries) == 0 {
		return question{}, refusal{400, "No dead letter was selected."}
	}
	q := question{Back: readChoice(form).Link("dead")}
	n := 0
	for _, entry := range entries {
		l, err := d.get(ctx, entry)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			q.Gone++
			continue
		case err != nil:
			return q, err
		case !replayable(l) && form.Get("do") == "replay":
			q.NoJobs++
			continue
		}
		n++
		q.keep("entry", entry)
		q.list(l)
	}
	if n == 0 && q.NoJobs > 0 {
		return q, refusal{409, "What was selected could not be read as a job, and cannot be replayed."}
	}
	if n == 0 {
		return q, refusal{404, "What was selected is gone: somebody else was quicker."}
	}
	what := count(n, "dead letter", "dead letters")
	q.Ask, q.Button = "Replay "+what+"?", "Replay "+what
	q.Note = "Back on the stream with the original fields, under the same ID, with no attempts made. Handlers are " +
		"idempotent, so what was done before does no harm."
	if form.Get("do") == "discard" {
		q.Ask, q.Button, q.Bad = "Discard "+what+"?", "Discard "+what, true
		q.Note = "Deleted for good. The audit trail keeps who did it, not what the job held."
	}
	q.choice(form)
	return q, nil
}

func (q *question) list(l jobs.DeadLetter) {
	if len(q.Letters) < listed {
		q.Letters = append(q.Letters, l)
		return
	}
	q.More++
}

// choice keeps the filter of the list to go back to.
func (q *question) choice(form url.Values) {
	for _, name := range []string{"id", "kind", "error", "since"} {
		if v := form.Get(name); v != "" {
			q.keep(name, v)
		}
	}
}

func (d *dashboard) replay(ctx context.Context, form url.Values) (string, error) {
	return each(form, "replayed", func(entry string) error {
		return d.client.DeadLetters().Replay(ctx, entry, jobs.ReplayOptions{})
	})
}

func (d *dashboard) discard(ctx context.Context, form url.Values) (string, error) {
	return each(form, "discarded", func(entry string) error {
		return d.client.DeadLetters().Discard(ctx, entry)
	})
}

// each does something to every chosen letter, and goes on past those that refuse, but not where Redis does.
func each(form url.Values, what string, do func(entry string) error) (string, error) {
	entries := slices.Compact(slices.Sorted(slices.Values(form["entry"])))
	if slices.ContainsFunc(entries, func(e string) bool { return !isEntry(e) }) || len(entries) == 0 {
		return "", refusal{400, "No dead letter was selected."}
	}
	n, gone := 0, 0
	var first error
	for _, entry := range entries {
		switch err := do(entry); {
		case err == nil:
			n++
		case errors.Is(err, jobs.ErrNotFound):
			gone++
		case ofRedis(err):
			return "", halfway(n, what, err)
		case first == nil:
			first = err
		}
	}
	if first != nil {
		return "", halfway(n, what+"; "+number(len(entries)-n-gone)+" could not be", first)
	}
	return done(readChoice(form).Link("dead"), what, n, gone), nil
}

// halfway is an error that says how far it came.
func halfway(n int, what string, err error) error {
	came := count(n, "dead letter was", "dead letters were") + " " + what
	if ofRedis(err) {
		return fmt.Errorf("%s, and then: %w", came, err)
	}
	return refusal{409, came + ": " + err.Error()}
}

// ofRedis reports whether an error is Redis's or the way's to it, and not about one job: so is all that comes after.
func ofRedis(err error) bool {
	_, refused := errors.AsType[redis.Error](err)
	_, network := errors.AsType[net.Error](err)
	return refused || network || errors.Is(err, jobs.ErrUncertain) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, redis.ErrClosed)
}

func (d *dashboard) askCorrect(ctx context.Context, form url.Values) (question, error) {
	l, err := d.get(ctx, form.Get("entry"))
	if err != nil {
		return question{}, err
	}
	q := question{
		Ask: "Correct and replay this dead letter?", Button: "Correct and replay",
		Letters: []jobs.DeadLetter{l}, Changes: corrections(form, l), Back: path("letter", "entry", l.Entry),
	}
	if len(q.Changes) == 0 {
		return q, refusal{400, "Nothing was changed. The letter can be replayed as it is."}
	}
	q.Note = "Back on the stream with these corrections, under the same ID, with no attempts made. The audit trail keeps " +
		"the names of the fields, not their values."
	q.keep("entry", l.Entry)
	for _, c := range q.Changes {
		q.keep("set:"+c.Name, c.Value)
	}
	return q, nil
}

func (d *dashboard) correct(ctx context.Context, form url.Values) (string, error) {
	set := jobs.Fields{}
	for key, values := range form {
		if name, ok := cutSet(key); ok {
			set[name] = lines(values[0])
		}
	}
	if len(set) == 0 {
		return "", refusal{400, "Nothing was changed."}
	}
	return each(url.Values{"entry": {form.Get("entry")}}, "replayed", func(entry string) error {
		return d.client.DeadLetters().Replay(ctx, entry, jobs.ReplayOptions{Set: set})
	})
}

func cutSet(key string) (string, bool) {
	const lead = "set:"
	if len(key) < len(lead) || key[:len(lead)] != lead {
		return "", false
	}
	return key[len(lead):], true
}

// askAll counts what a filter chooses. The newest of that bounds the replay, and so does the moment since when, which a
// duration would move on with the clock: it does what was shown.
func (d *dashboard) askAll(ctx context.Context, form url.Values) (question, error) {
	c := readChoice(form)
	c.Before = ""
	f, err := c.filter()
	if err != nil {
		return question{}, err
	}
	q := question{Back: c.Link("dead")}
	var newest time.Time
	for l, err := range d.client.DeadLetters().Newest(ctx, f) {
		if err != nil {
			return q, err
		}
		if newest.IsZero() {
			newest = l.Died
		}
		q.list(l)
	}
	n := len(q.Letters) + q.More
	if n == 0 {
		return q, refusal{404, "No dead letter is chosen by this filter any more."}
	}
	what := count(n, "dead letter", "dead letters")
	if c.Kind != "" {
		what += " of the kind " + visible(brief(c.Kind, 100))
	}
	q.Ask, q.Button = "Replay "+what+"?", "Replay "+what
	q.Note = "All that the filter chooses and that died until now, back on the stream with their original fields. What " +
		"cannot be replayed stays."
	q.choice(form)
	if c.Since != "" {
		q.keep("from", strconv.FormatInt(f.Since.UnixMilli(), 10))
	}
	q.keep("until", strconv.FormatInt(newest.UnixMilli()+1, 10))
	return q, nil
}

// moment is a time as a question keeps it.
func moment(ms string) (time.Time, error) {
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}, refusal{400, "It is not said from when until when."}
	}
	return time.UnixMilli(n), nil
}

func (d *dashboard) replayAll(ctx context.Context, form url.Values) (string, error) {
	c := readChoice(form)
	c.Before = ""
	f, err := c.filter()
	if err != nil {
		return "", err
	}
	if f.Until, err = moment(form.Get("until")); err != nil {
		return "", err
	}
	if c.Since != "" {
		if f.Since, err = moment(form.Get("from")); err != nil {
			return "", err
		}
	}
	n, err := d.client.DeadLetters().ReplayAll(ctx, f, jobs.ReplayOptions{})
	if err != nil {
		return "", halfway(n, "replayed, not all", err)
	}
	return done(c.Link("dead"), "replayed", n, 0), nil
}

func (d *dashboard) askDelayed(_ context.Context, form url.Values) (question, error) {
	id := form.Get("id")
	if id == "" {
		return question{}, refusal{400, "A job without an ID cannot be named."}
	}
	job := "the job " + visible(brief(id, 200))
	if kind := form.Get("kind"); kind != "" {
		job += " (" + visible(brief(kind, 200)) + ")"
	}
	q := question{Back: path("delayed", "from", form.Get("from")), Ask: "Run " + job + " now?", Button: "Run now"}
	q.Note = "It is ready at once, whenever it was due."
	if form.Get("do") == "cancel" {
		q.Ask, q.Button, q.Bad = "Cancel "+job+"?", "Cancel the job", true
		q.Note = "It is deleted for good, and will never run."
	}
	q.Note += " Every delayed job with this ID is meant. All that is delayed is searched: with a million that takes seconds."
	q.keep("id", id)
	q.keep("from", form.Get("from"))
	return q, nil
}

func (d *dashboard) cancel(ctx context.Context, form url.Values) (string, error) {
	err := d.client.Delayed().Cancel(ctx, form.Get("id"))
	return done(path("delayed", "from", form.Get("from")), "cancelled", 1, 0), err
}

func (d *dashboard) runNow(ctx context.Context, form url.Values) (string, error) {
	err := d.client.Delayed().RunNow(ctx, form.Get("id"))
	return done(path("delayed", "from", form.Get("from")), "ready", 1, 0), err
}

func (d *dashboard) askSchedule(ctx context.Context, form url.Values) (question, error) {
	name := form.Get("name")
	all, err := d.client.Schedules(ctx)
	if err != nil {
		return question{}, err
	}
	if !slices.ContainsFunc(all, func(s jobs.ScheduleState) bool { return s.Name == name }) {
		return question{}, refusal{404, "No living worker has such a schedule."}
	}
	q := question{
		Ask: "Run the schedule " + visible(brief(name, 200)) + " now?", Button: "Run now", Back: "schedules",
		Note: "One job more, under an ID of its own. The ticks are left alone: the next one comes when it would have come.",
	}
	q.keep("name", name)
	return q, nil
}

func (d *dashboard) runSchedule(ctx context.Context, form url.Values) (string, error) {
	return done("schedules", "enqueued", 1, 0), d.client.RunSchedule(ctx, form.Get("name"))
}
