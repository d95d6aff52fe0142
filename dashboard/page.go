package dashboard

// What the pages have in common: the frame around them, and what is said where there is nothing to show.

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/stagedoor/jobs"
)

//go:embed page
var files embed.FS

// page is an answer: one of a template, a text as it is, or a place to go on.
type page struct {
	Status   int    // 0: 200
	Name     string // of the template
	Tab      string // that is lit in the navigation
	Title    string
	Data     any
	Live     bool   // it is read again and again: not where something is searched for, which may take all there is
	Said     string // what was just done
	Text     *string
	Location string // relative
}

// frame is what the templates see.
type frame struct {
	page
	Options        Options
	Open, ReadOnly bool
	Tabs           []tab
	Now            time.Time
}

type tab struct{ Path, Name string }

var tabs = []tab{
	{"./", "Overview"}, {"dead", "Dead letters"}, {"delayed", "Delayed"}, {"schedules", "Schedules"},
	{"workers", "Workers"}, {"audit", "Audit"},
}

var templates = parseTemplates("overview", "dead", "letter", "delayed", "job", "schedules", "workers", "audit", "confirm", "message")

func parseTemplates(names ...string) map[string]*template.Template {
	all := make(map[string]*template.Template)
	for _, name := range names {
		t := template.New("frame.html").Funcs(functions)
		all[name] = template.Must(t.ParseFS(files, "page/frame.html", "page/parts.html", "page/"+name+".html"))
	}
	return all
}

var functions = template.FuncMap{
	"ago": ago, "age": age, "bytes": size, "count": count, "cut": cut, "line": func(s string) string { return brief(s, 160) },
	"num": number, "path": path, "stamp": stamp, "visible": visible, "asset": asset, "percent": percent,
}

func (d *dashboard) write(w http.ResponseWriter, p page) {
	switch {
	case p.Location != "":
		// Not http.Redirect: it would make the place absolute, by a path that may have been stripped.
		w.Header().Set("Location", p.Location)
		w.WriteHeader(http.StatusSeeOther)
		return
	case p.Text != nil:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
		_, _ = w.Write([]byte(*p.Text)) // the browser may be gone
		return
	}
	var out bytes.Buffer
	f := frame{page: p, Options: d.o, Open: d.o.open(), ReadOnly: d.o.ReadOnly, Tabs: tabs, Now: time.Now()}
	if err := templates[p.Name].Execute(&out, f); err != nil {
		http.Error(w, fmt.Sprintf("dashboard: %s: %s", p.Name, err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.Status != 0 {
		w.WriteHeader(p.Status)
	}
	_, _ = out.WriteTo(w)
}

// refusal is an error with words for the person.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

var errReadOnly = refusal{http.StatusForbidden, "This page is read-only."}

// message is what the page that shows nothing else says.
type message struct{ Text, Detail string }

// failure is an error as a page.
func failure(err error) page {
	p := page{Name: "message", Status: http.StatusServiceUnavailable, Title: "No answer"}
	var refused refusal
	switch {
	case errors.As(err, &refused):
		p.Status, p.Title, p.Data = refused.status, http.StatusText(refused.status), message{Text: refused.text}
	case errors.Is(err, jobs.ErrNotFound):
		p.Status, p.Title = http.StatusNotFound, "Not here"
		p.Data = message{Text: "It is not here, or not any more.", Detail: err.Error()}
	case errors.Is(err, jobs.ErrUncertain):
		p.Title = "Uncertain"
		p.Data = message{Text: "Redis's answer did not come: it may be done or not. Look before you do it again.", Detail: err.Error()}
	default:
		p.Data = message{Text: "Redis did not answer, or refused, and nothing more was done. Try again in a moment; if it stays " +
			"so, jobs doctor says what is wrong and what to do.", Detail: err.Error()}
	}
	return p
}

// assets are the files that the pages name, and what they are.
var assets = map[string]string{
	"style.css": "text/css; charset=utf-8",
	"live.js":   "text/javascript; charset=utf-8",
	"icon.svg":  "image/svg+xml",
}

var versions = func() map[string]string {
	all := make(map[string]string)
	for name := range assets {
		sum := sha256.Sum256(read(name))
		all[name] = hex.EncodeToString(sum[:6])
	}
	return all
}()

// asset is the link to a file; it changes with its contents, so that it may be kept.
func asset(name string) string { return name + "?v=" + versions[name] }

func read(name string) []byte {
	b, err := files.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return b
}

func serveAsset(w http.ResponseWriter, r *http.Request, name string) bool {
	kind, ok := assets[name]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	w.Header().Set("Content-Type", kind)
	if strings.HasSuffix(r.URL.RawQuery, versions[name]) {
		w.Header().Set("Cache-Control", "private, max-age=86400")
	}
	_, _ = w.Write(read(name))
	return true
}
