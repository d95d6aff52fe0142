package dashboard

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stagedoor/jobs"
)

// perPage is how many rows a page of a list has.
const perPage = 50

// dead is a page of the dead letters, newest first.
type dead struct {
	Choice  choice
	Letters []jobs.DeadLetter
	Total   int64
	Kinds   []string // known ones, to choose from
	Next    string   // the page after this one; empty: there is none
}

// choice is a filter as it stands in a link.
type choice struct{ ID, Kind, Error, Since, Before string }

func readChoice(form url.Values) choice {
	return choice{form.Get("id"), form.Get("kind"), form.Get("error"), form.Get("since"), form.Get("before")}
}

// Any reports whether it chooses at all.
func (c choice) Any() bool { return c.ID+c.Kind+c.Error+c.Since != "" }

// Link is a page with this choice, and more of a query.
func (c choice) Link(page string, more ...string) string {
	return path(page, append([]string{"id", c.ID, "kind", c.Kind, "error", c.Error, "since", c.Since}, more...)...)
}

// A span is what Since may be.
type span struct{ Value, Name string }

// Spans are those to choose from.
func (c choice) Spans() []span {
	return []span{{"", "any time"}, {"1h", "the last hour"}, {"24h", "the last 24 hours"}, {"168h", "the last 7 days"}}
}

func (c choice) filter() (jobs.Filter, error) {
	f := jobs.Filter{ID: c.ID, Kind: c.Kind, Error: c.Error, Before: c.Before}
	if c.Since != "" {
		d, err := time.ParseDuration(c.Since)
		if err != nil || d < 0 {
			return f, refusal{400, "Since is a duration, as in 24h."}
		}
		f.Since = time.Now().Add(-d).Truncate(time.Millisecond) // as exact as when a letter died
	}
	if c.Before != "" && !isEntry(c.Before) {
		return f, refusal{400, "There is no such page of the list."}
	}
	return f, nil
}

// isEntry reports whether a name may be a stream ID.
func isEntry(s string) bool {
	ms, seq, ok := strings.Cut(s, "-")
	fits := func(s string) bool {
		_, err := strconv.ParseUint(s, 10, 64)
		return err == nil && len(s) <= 20
	}
	return ok && fits(ms) && fits(seq)
}

func (d *dashboard) dead(ctx context.Context, form url.Values) (page, error) {
	v := dead{Choice: readChoice(form)}
	f, err := v.Choice.filter()
	if err != nil {
		return page{}, err
	}
	f.Limit = perPage + 1
	for letter, err := range d.client.DeadLetters().Newest(ctx, f) {
		if err != nil {
			return page{}, err
		}
		v.Letters = append(v.Letters, letter)
	}
	if len(v.Letters) > perPage {
		v.Letters = v.Letters[:perPage]
		v.Next = v.Choice.Link("dead", "before", v.Letters[perPage-1].Entry)
	}
	stats, err := d.client.Stats(ctx)
	if err != nil {
		return page{}, err
	}
	v.Total, v.Kinds = stats.Dead, d.knownKinds(ctx, v.Letters)
	live := !v.Choice.Any()
	return page{Name: "dead", Tab: "dead", Title: "Dead letters", Data: v, Live: live, Said: said(form)}, nil
}

// knownKinds are the kinds that are worked on, and those on this page.
func (d *dashboard) knownKinds(ctx context.Context, letters []jobs.DeadLetter) (kinds []string) {
	workers, _ := d.client.Workers(ctx) // they are only offered
	for _, w := range workers {
		kinds = append(kinds, w.Kinds...)
	}
	for _, letter := range letters {
		kinds = append(kinds, letter.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}
