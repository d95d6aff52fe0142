package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/stagedoor/jobs"
)

// mail is one message as the provider's API takes it.
type mail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// mailClient sends mail through a provider's HTTP API. It does not retry: that is the queue's business.
type mailClient struct {
	url  string
	http *http.Client
}

var errNoJob = errors.New("no job in the context: its ID is the mail's idempotency key")

// send hands one mail of the job in ctx to the provider, with the job's ID as idempotency key: it is the same across
// retries, crashes and replays, so the provider sends the mail once. What the provider refuses for its content is
// permanent.
func (c mailClient) send(ctx context.Context, m mail) error {
	job, ok := jobs.FromContext(ctx)
	if !ok || job.ID == "" {
		return errNoJob
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/messages", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", job.ID)
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("mail provider: %w", err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode == http.StatusBadRequest, resp.StatusCode == http.StatusUnprocessableEntity:
		return jobs.Permanent(fmt.Errorf("mail provider answered %s", resp.Status))
	default:
		return fmt.Errorf("mail provider answered %s", resp.Status)
	}
}
