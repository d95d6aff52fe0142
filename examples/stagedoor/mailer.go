package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// mailer is a fake of the mail provider: POST /messages takes a mail and sends it once for each Idempotency-Key. It can
// be told to fail.
type mailer struct {
	outage
	url string

	mu    sync.Mutex
	sent  map[string]mail // by key
	calls []mailCall
}

// mailCall is one request to the provider and the status it was answered with.
type mailCall struct {
	Key    string
	Status int
}

// startMailer serves a fake mail provider until stop is called.
func startMailer() (m *mailer, stop func(), err error) {
	m = &mailer{sent: make(map[string]mail)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /messages", m.take)
	mux.HandleFunc("POST /fail", m.serveSwitch)
	m.url, stop, err = serveLocal(mux)
	return m, stop, err
}

func (m *mailer) take(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key, status := r.Header.Get("Idempotency-Key"), http.StatusAccepted
	var letter mail
	switch err := json.NewDecoder(r.Body).Decode(&letter); {
	case m.strikes():
		status = http.StatusServiceUnavailable
	case err != nil || key == "":
		status = http.StatusBadRequest
	case !strings.Contains(letter.To, "@"):
		status = http.StatusUnprocessableEntity
	default:
		if _, known := m.sent[key]; !known {
			m.sent[key] = letter
		}
	}
	m.calls = append(m.calls, mailCall{key, status})
	w.WriteHeader(status)
}

// mails returns what was sent, by idempotency key, and the calls that it took, in order.
func (m *mailer) mails() (sent map[string]mail, calls []mailCall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sent = make(map[string]mail, len(m.sent))
	for key, letter := range m.sent {
		sent[key] = letter
	}
	return sent, slices.Clone(m.calls)
}
