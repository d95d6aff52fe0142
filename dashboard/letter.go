package dashboard

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stagedoor/jobs"
)

// letter is all of one dead letter.
type letter struct {
	jobs.DeadLetter
	Values  []value // its fields, by name
	Added   value   // one more field, as it was typed
	History []jobs.Action
	Trouble string // why there is no history
}

// Editable reports whether a form may correct something of it.
func (l letter) Editable() bool { return replayable(l.DeadLetter) }

// replayable reports whether a letter was ever a job: without a kind it is none, and no correction gives it one.
func replayable(l jobs.DeadLetter) bool { return l.Raw == "" && l.Kind != "" }

// A value is a job's field as a page shows it.
type value struct {
	Name, Value string
	All         string // link to the whole of it
	Typed       string // what a form holds of it
}

// Short reports whether the page shows all of it.
func (v value) Short() bool { return len(v.Value) <= maxShown }

// Plain reports whether it is shown as it is.
func (v value) Plain() bool { return plain(v.Name) && plain(v.Value) }

// Editable reports whether a form gives it back as it was: a browser changes bytes that are no text, and line ends.
func (v value) Editable() bool { return v.Short() && v.Plain() }

// Long reports whether a form wants more than a line for it.
func (v value) Long() bool { return len(v.Typed) > 80 || strings.Contains(v.Typed, "\n") }

func (d *dashboard) letter(ctx context.Context, form url.Values) (page, error) {
	entry := form.Get("entry")
	found, err := d.get(ctx, entry)
	if errors.Is(err, jobs.ErrNotFound) {
		return d.goneLetter(ctx, entry)
	}
	if err != nil {
		return page{}, err
	}
	l := letter{DeadLetter: found, Values: valuesOf(found)}
	for a, err := range d.client.Audit(ctx, jobs.Filter{ID: found.ID, Kind: found.Kind, Limit: 20}) {
		if err != nil {
			l.Trouble = err.Error()
			break
		}
		l.History = append(l.History, a)
	}
	return page{Name: "letter", Tab: "dead", Title: "Dead letter " + entry, Data: l}, nil
}

// retyped is a letter for a person who was asked whether to replay it corrected, and would not yet. Only their own form
// leads here: a link to a letter would show what somebody else typed as if the letter held it.
func (d *dashboard) retyped(ctx context.Context, form url.Values) (page, error) {
	p, err := d.letter(ctx, form)
	if l, ok := p.Data.(letter); ok {
		l.retype(form)
		p.Data = l
	}
	return p, err
}

// retype puts into the form what the person had typed.
func (l *letter) retype(form url.Values) {
	typed := map[string]string{}
	for key := range form {
		if name, ok := cutSet(key); ok {
			typed[name] = lines(form.Get(key))
		}
	}
	for i, v := range l.Values {
		if now, ok := typed[v.Name]; ok && v.Editable() {
			l.Values[i].Typed = now
			delete(typed, v.Name)
		}
	}
	for name, now := range typed { // one: the form has room for no more
		l.Added = value{Name: name, Typed: now}
	}
}

func (d *dashboard) get(ctx context.Context, entry string) (jobs.DeadLetter, error) {
	if !isEntry(entry) {
		return jobs.DeadLetter{}, refusal{404, "There is no such dead letter."}
	}
	return d.client.DeadLetters().Get(ctx, entry)
}

func valuesOf(l jobs.DeadLetter) []value {
	var list []value
	for _, name := range slices.Sorted(maps.Keys(l.Fields)) {
		link := "value?" + url.Values{"entry": {l.Entry}, "name": {name}}.Encode()
		list = append(list, value{Name: name, Value: l.Fields[name], All: link, Typed: l.Fields[name]})
	}
	return list
}

// goneLetter says what was done to a letter that is not there any more.
func (d *dashboard) goneLetter(ctx context.Context, entry string) (page, error) {
	p := page{Name: "letter", Tab: "dead", Title: "Not here any more", Status: 404}
	var l letter
	ms, _, _ := strings.Cut(entry, "-")
	died, _ := time.ParseDuration(ms + "ms")
	for a, err := range d.client.Audit(ctx, jobs.Filter{Entry: entry, Since: time.UnixMilli(died.Milliseconds())}) {
		if err != nil {
			l.Trouble = err.Error()
			break
		}
		l.History = append(l.History, a)
	}
	p.Data = l
	return p, nil
}

// value is the whole of a field, as it is.
func (d *dashboard) value(ctx context.Context, form url.Values) (page, error) {
	if form.Get("due") != "" {
		return d.delayedValue(ctx, form)
	}
	l, err := d.get(ctx, form.Get("entry"))
	if err != nil {
		return page{}, err
	}
	if form.Has("raw") {
		return page{Text: &l.Raw}, nil
	}
	return field(l.Fields, form.Get("name"))
}

func field(fields jobs.Fields, name string) (page, error) {
	text, ok := fields[name]
	if !ok {
		return page{}, refusal{404, "There is no such field."}
	}
	return page{Text: &text}, nil
}

// A change is a field that a person corrects.
type change struct{ Name, Was, Value string }

// corrections are the fields that a form returned otherwise than it was given them: each is "set:" and its name, and
// "add" and "added" are one more.
func corrections(form url.Values, l jobs.DeadLetter) []change {
	var list []change
	for _, v := range valuesOf(l) {
		key := "set:" + v.Name
		if !form.Has(key) || !v.Editable() {
			continue
		}
		if now := lines(form.Get(key)); now != v.Value {
			list = append(list, change{v.Name, v.Value, now})
		}
	}
	if name := form.Get("add"); name != "" {
		list = append(list, change{name, l.Fields[name], lines(form.Get("added"))})
	}
	return list
}

// lines undoes what browsers do to line ends.
func lines(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
