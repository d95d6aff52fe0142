package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/stagedoor/jobs"
)

// A Convert makes a job of a task: its kind and its arguments. When it runs, and its ID, are
// the bridge's business. A task that it refuses stays in asynq, and is reported.
type Convert func(*asynq.TaskInfo) (jobs.Job, error)

// Typed reads the payload as JSON into the arguments of a kind.
func Typed[A any](kind jobs.Kind[A]) Convert {
	return func(t *asynq.TaskInfo) (jobs.Job, error) {
		var args A
		if err := json.Unmarshal(t.Payload, &args); err != nil {
			return jobs.Job{}, err
		}
		return traced(kind.Job(args), t), nil
	}
}

// Flat takes a payload that is a JSON object apart: strings and numbers become fields as they
// are, what is nested a field of JSON, and what is null none.
func Flat(kind string) Convert {
	return func(t *asynq.TaskInfo) (jobs.Job, error) {
		fields, err := flat(t.Payload)
		return traced(jobs.Job{Kind: kind, Fields: fields}, t), err
	}
}

// reserved are the names that no argument may have; the README's section on the wire has them.
var reserved = []string{"kind", "job_id", "outbox_id", "attempts", "request_id", "trace", "scheduled_at",
	"last_error", "unknown_since", "error", "traceback", "raw"}

func flat(payload []byte) (jobs.Fields, error) {
	fields := jobs.Fields{}
	if len(bytes.TrimSpace(payload)) == 0 {
		return fields, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(payload, &object); err != nil {
		return nil, err
	}
	if len(object) > 900 {
		return nil, errors.New("too many fields")
	}
	for name, value := range object {
		if name == "" || slices.Contains(reserved, name) {
			return nil, fmt.Errorf("the field name %q is reserved: write a Convert that names it differently", name)
		}
		var text string
		switch {
		case string(value) == "null":
			continue
		case value[0] == '"':
			if err := json.Unmarshal(value, &text); err != nil {
				return nil, err
			}
		default:
			text = string(value)
		}
		fields[name] = text
	}
	return fields, nil
}

// traced keeps the trace that asynq's headers may carry.
func traced(j jobs.Job, t *asynq.TaskInfo) jobs.Job {
	j.Trace = t.Headers["traceparent"]
	return j
}
