// Package dashboard is a page for people: what waits, runs and has died, who works on it, what others did by hand, and
// the buttons to do something about it. It is one handler and needs nothing from outside: no build step, no script of
// another origin, no JavaScript even, which only keeps it up to date.
//
//	mux.Handle("/jobs/", authenticated(dashboard.Handler(client, dashboard.Options{Actor: login})))
//
// It may stand under any path that ends in a slash, with http.StripPrefix or without, and behind a proxy that changes the
// path. It shows what customers' jobs hold, so it belongs behind the application's own authentication; where nobody says
// that there is one, every page says so.
package dashboard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/stagedoor/jobs"
)

// Options of a Handler; the zero value shows everything to everybody, and says so.
type Options struct {
	Title string // of every page; "": Jobs

	// ReadOnly is a page without buttons: whatever would change something is refused.
	ReadOnly bool

	// Actor says who sent a request, as the authentication in front knows it: the audit trail names them. With an Actor a
	// request by nobody ("") is refused, so that a path which the authentication forgot is not open.
	Actor func(*http.Request) string

	// Authenticated says that there is an authentication in front, where no Actor does. The pages then do not warn.
	Authenticated bool
}

func (o Options) open() bool { return o.Actor == nil && !o.Authenticated }

// Handler returns the page of a queue. It is safe for concurrent use and keeps nothing that is to be closed.
//
// Requests that change something are POST, and refused where another site sent them (net/http's CrossOriginProtection).
// While the page is open to everybody and listens on a loopback address, requests by another name than localhost are
// refused too: a foreign page can give itself a name that leads there.
func Handler(client *jobs.Client, o Options) http.Handler {
	if client == nil {
		panic("dashboard: Handler without a client")
	}
	if o.Title == "" {
		o.Title = "Jobs"
	}
	d := &dashboard{client: client, o: o}
	d.gets = map[string]view{
		"": d.overview, "dead": d.dead, "letter": d.letter, "value": d.value, "delayed": d.delayed, "job": d.job,
		"schedules": d.schedules, "workers": d.workers, "audit": d.audit, "confirm": d.confirm,
	}
	d.posts = map[string]view{"letter": d.retyped, "confirm": d.confirm, "act": d.act}
	return secured(http.NewCrossOriginProtection().Handler(d))
}

type dashboard struct {
	client      *jobs.Client
	o           Options
	gets, posts map[string]view
	health      health
}

// A view answers a request for one page; what a person does under ctx is theirs in the audit trail.
type view func(ctx context.Context, form url.Values) (page, error)

const (
	maxBody  = 4 << 20
	maxFetch = 20 * time.Second // to read a page's contents
)

// secured sets what every answer has: it runs no script but its own, stands in no frame, and is kept nowhere.
func secured(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		// Not no-referrer: with that, browsers send a form's origin as "null".
		h.Set("Referrer-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// ServeHTTP looks at the last part of the path only, and links are relative to it: so it may be mounted anywhere.
func (d *dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if serveAsset(w, r, name) {
		return
	}
	p, err := d.answer(w, r, name)
	if err != nil {
		p = failure(err)
	}
	d.write(w, p)
}

func (d *dashboard) answer(w http.ResponseWriter, r *http.Request, name string) (page, error) {
	ctx := r.Context()
	if d.o.open() && rebound(r) {
		return page{}, refusal{http.StatusMisdirectedRequest, "This page is open to everybody on this machine, so it " +
			"answers only to localhost. Put an authentication in front, and say so in dashboard.Options."}
	}
	if d.o.Actor != nil {
		who := d.o.Actor(r)
		if who == "" {
			return page{}, refusal{http.StatusForbidden, "Nobody is logged in."}
		}
		ctx = jobs.WithActor(ctx, who)
	}
	found, err := d.find(r.Method, name)
	if err != nil {
		return page{}, err
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		return page{}, badForm(err)
	}
	if name == "act" {
		// What was confirmed is done to its end, also when the browser is gone.
		return found(context.WithoutCancel(ctx), r.Form)
	}
	ctx, cancel := context.WithTimeout(ctx, maxFetch)
	defer cancel()
	return found(ctx, r.Form)
}

func (d *dashboard) find(method, name string) (view, error) {
	get, post := d.gets[name], d.posts[name]
	switch {
	case get == nil && post == nil:
		return nil, refusal{http.StatusNotFound, "There is no such page."}
	case (method == http.MethodGet || method == http.MethodHead) && get != nil:
		return get, nil
	case method != http.MethodPost || post == nil:
		return nil, refusal{http.StatusMethodNotAllowed, "This page does not answer to " + method + "."}
	case d.o.ReadOnly:
		return nil, errReadOnly
	}
	return post, nil
}

func badForm(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return refusal{http.StatusRequestEntityTooLarge, "That is too much for a form; jobs dead replay --set takes it."}
	}
	return refusal{http.StatusBadRequest, "The form cannot be read."}
}

// rebound reports whether a request came to a loopback address under a name that is not a loopback's.
func rebound(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	if at, err := netip.ParseAddrPort(local.String()); err != nil || !at.Addr().Unmap().IsLoopback() {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return false
	}
	at, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err != nil || !at.Unmap().IsLoopback()
}
