package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/handoff"
	"github.com/stagedoor/jobs/internal/record"
	"github.com/stagedoor/jobs/internal/store"
)

// columns are the rows of an Enqueue, as one statement takes them.
type columns struct {
	id, kind, fields, requestID, trace, tick []string
	how, micros                              []int64
}

func newColumns(n int) *columns {
	texts, numbers := make([]string, 6*n), make([]int64, 2*n)
	text := func(i int) []string { return texts[i*n : i*n : (i+1)*n] }
	return &columns{text(0), text(1), text(2), text(3), text(4), text(5), numbers[0:0:n], numbers[n:n]}
}

// What how says of micros.
const (
	atOnce int64 = iota
	afterWait
	atTime
)

// mostFields is how many bytes the arguments may have as JSON. The table refuses more, and is not to be asked.
const mostFields = 64 << 20

// add appends a job, or says why it cannot be.
func (c *columns) add(ctx context.Context, j jobs.Job, annotate func(context.Context, *jobs.Job)) error {
	item, err := handoff.Item(ctx, j, annotate)
	if err != nil {
		return err
	}
	m := fields.Map(item.Entry)
	id := m["job_id"]
	if u, err := uuid.Parse(id); err != nil || u.String() != id {
		return fmt.Errorf("the ID %q is no UUID, as Kind.Job makes one", record.Bounded(id, 64))
	}
	how, micros, err := timing(item)
	if err != nil {
		return err
	}
	own := record.Arguments(m)
	requestID, trace := column(m, own, "request_id"), column(m, own, "trace")
	text := fields.Member(own)
	if len(text) > mostFields {
		return fmt.Errorf("its fields are %d bytes as JSON, and %d are permitted", len(text), mostFields)
	}
	c.id, c.kind, c.tick = append(c.id, id), append(c.kind, m["kind"]), append(c.tick, m["scheduled_at"])
	c.requestID, c.trace, c.fields = append(c.requestID, requestID), append(c.trace, trace), append(c.fields, text)
	c.how, c.micros = append(c.how, how), append(c.micros, micros)
	return nil
}

// arguments are what the statement of that many rows takes; nothing of them is prepared. Arrays go as their text, which
// pgx would make with an allocation or two for each element.
func (c *columns) arguments() []any {
	if len(c.id) == 1 {
		return []any{pgx.QueryExecModeExec, c.id[0], c.kind[0], c.fields[0], c.requestID[0], c.trace[0], c.tick[0], c.how[0], c.micros[0]}
	}
	args := make([]any, 0, 9)
	args = append(args, pgx.QueryExecModeExec)
	for _, column := range [][]string{c.id, c.kind, c.fields, c.requestID, c.trace, c.tick} {
		args = append(args, texts(column))
	}
	return append(args, numbers(c.how), numbers(c.micros))
}

// texts is an array as PostgreSQL reads it, each element in quotes.
func texts(column []string) string {
	size := 2
	for _, s := range column {
		size += len(s) + len(`"",`) + strings.Count(s, `"`) + strings.Count(s, `\`)
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteByte('{')
	for i, s := range column {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		_, _ = inQuotes.WriteString(&b, s) // a Builder takes all
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

var inQuotes = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

func numbers(column []int64) string {
	b := []byte{'{'}
	for i, n := range column {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, '}'))
}

// timing is when an item is due, in microseconds rounded up: a job is never early.
func timing(item store.Item) (how, micros int64, err error) {
	switch year := item.At.UTC().Year(); {
	case item.In > 0:
		return afterWait, (item.In - 1).Microseconds() + 1, nil
	case item.At.IsZero():
		return atOnce, 0, nil
	case year < 1 || year > 9999:
		return 0, 0, fmt.Errorf("a time in the year %d was given to At", year)
	}
	return atTime, item.At.Add(time.Microsecond - 1).UnixMicro(), nil
}

// column is what the column of a field holds. What PostgreSQL does not take for text travels among the arguments.
func column(m, own map[string]string, name string) string {
	value := m[name]
	if isText(value) {
		return value
	}
	own[name] = value
	return ""
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// A row is a job as it lies in the table.
type row struct {
	ctid                               string
	seq                                int64
	id, kind, fields, requestID, trace string
	tick, due                          *int64 // since the epoch: seconds, microseconds
}

// item is the job as the store takes it, or why the row is none: other programs write rows too.
func (r *row) item() (store.Item, error) {
	if err := record.CheckKind(r.kind); err != nil {
		return store.Item{}, err
	}
	m, err := arguments(r.fields)
	if err != nil {
		return store.Item{}, err
	}
	requestID, trace := or(r.requestID, m["request_id"]), or(r.trace, m["trace"])
	delete(m, "request_id")
	delete(m, "trace")
	if err := record.Check(m, len(m)); err != nil {
		return store.Item{}, err
	}
	set(m, "request_id", requestID)
	set(m, "trace", trace)
	m["kind"], m["outbox_id"], m["attempts"] = r.kind, r.id, "0"
	if r.tick != nil {
		m["scheduled_at"] = time.Unix(*r.tick, 0).UTC().Format(time.RFC3339)
	}
	item := store.Item{Entry: fields.Flatten(m)}
	if r.due != nil {
		item.At = time.UnixMicro(*r.due)
	}
	return item, record.Check(nil, len(m))
}

func set(m map[string]string, name, value string) {
	if value != "" {
		m[name] = value
	}
}

// letter is a row that is no job, as a dead letter. The row stays as it is until it is purged.
func (r *row) letter(why error) map[string]string {
	const mostRaw, mostError = 1 << 20, 8 << 10
	m := map[string]string{
		"outbox_id": r.id, "attempts": "0", "raw": record.Bounded(r.fields, mostRaw),
		"error":     record.Bounded(fmt.Sprintf("undecodable: row %d of the outbox: %s", r.seq, why), mostError),
		"traceback": "",
	}
	set(m, "kind", r.kind)
	set(m, "request_id", r.requestID)
	set(m, "trace", r.trace)
	return m
}

// arguments reads the column fields: what lies in delayed, too, or any other object. Of that, what is no string is taken
// as the JSON that it is, and null is left out: json_build_object('order_id', 4471) gives a number.
func arguments(text string) (map[string]string, error) {
	m, err := fields.ParseMember(text)
	if _, ok := errors.AsType[*fields.FieldError](err); !ok {
		return m, err
	}
	var loose map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &loose) != nil || loose["fields_base64"] != nil {
		return nil, err
	}
	m = make(map[string]string, len(loose))
	for name, value := range loose {
		switch value[0] {
		case 'n':
		case '"':
			one, err := fields.ParseMember(`{"":` + string(value) + `}`) // not as json does, which replaces what is no UTF-8
			if err != nil {
				return nil, err
			}
			m[name] = one[""]
		default:
			m[name] = string(value)
		}
	}
	return m, nil
}
