package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// payrail is a fake of the payment provider: GET /payments?day=2026-03-28 answers with the payments of a day (UTC) in
// pages. It can be told to fail.
type payrail struct {
	outage
	url      string
	pageSize int

	mu       sync.Mutex
	payments []payment
	asked    []string // the days of the requests, in order
}

// startPayrail serves a fake Payrail until stop is called.
func startPayrail(pageSize int) (p *payrail, stop func(), err error) {
	p = &payrail{pageSize: pageSize}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /payments", p.list)
	mux.HandleFunc("POST /fail", p.serveSwitch)
	p.url, stop, err = serveLocal(mux)
	return p, stop, err
}

// add puts a payment on Payrail's books.
func (p *payrail) add(paid payment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.payments = append(p.payments, paid)
}

func (p *payrail) list(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	day, from := r.FormValue("day"), r.FormValue("page")
	p.asked = append(p.asked, day)
	if p.strikes() {
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	start, _ := strconv.Atoi(from)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(p.page(day, start))
}

// page returns the payments of a day from the given one on.
func (p *payrail) page(day string, start int) paymentPage {
	var ofDay []payment
	for _, paid := range p.payments {
		if paid.CapturedAt.UTC().Format(time.DateOnly) == day {
			ofDay = append(ofDay, paid)
		}
	}
	start = min(max(start, 0), len(ofDay))
	end := min(start+p.pageSize, len(ofDay))
	page := paymentPage{Payments: ofDay[start:end]}
	if end < len(ofDay) {
		page.Next = strconv.Itoa(end)
	}
	return page
}
