package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// A Prometheus scrapes the shop as main runs it. A job dies and the alert fires; and every query of the alert rules and
// of the dashboard finds what it asks for.
func TestPrometheusSeesTheShop(t *testing.T) {
	redis := servers.NewRedis(t)
	t.Setenv("REDIS_URL", redis.URL())
	t.Setenv("DATABASE_URL", servers.NewPostgres(t))
	t.Setenv("METRICS_ADDR", "127.0.0.1:0")
	// The last tick was two minutes ago, so that the next one comes at once.
	last := time.Now().Truncate(time.Minute).Add(-2 * time.Minute).Unix()
	err := redis.Client(t).Set(t.Context(), "sched:expire_holds", fmt.Sprintf("%d @every 1m0s", last), time.Hour).Err()
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var log bytes.Buffer
	config, err := s.measure(jobs.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	_, at, _ := strings.Cut(log.String(), "url=http://")
	config.Logger = slog.New(slog.DiscardHandler)
	p := prom{t, servers.NewPrometheus(t, servers.PrometheusOptions{
		Targets: []string{strings.TrimSuffix(strings.TrimSpace(at), "/metrics")},
		Rules:   []string{"../../telemetry/alerts.yml"},
	})}
	rules := p.rules()

	p.finds(`jobs_depth{jobs_state="dead"} == 0`)
	if found := p.query(rules["JobsNoWorker"]); len(found) > 0 {
		t.Fatalf("a worker is missed where nothing needs one: %v", found)
	}
	if err := s.client.Enqueue(t.Context(), purgeOutbox.Job(jobs.None{})); err != nil {
		t.Fatal(err)
	}
	p.finds(rules["JobsNoWorker"])
	p.finds(`outbox_lag_seconds == 0 and on (instance) outbox_waiting == 0`)
	err = pgx.BeginFunc(t.Context(), s.office.db, func(tx pgx.Tx) error {
		return s.office.outbox.Enqueue(t.Context(), tx, purgeOutbox.Job(jobs.None{})) // and no relay runs
	})
	if err != nil {
		t.Fatal(err)
	}
	p.finds(`outbox_lag_seconds > 0 and on (instance) outbox_waiting == 1`)
	if found := p.query(`ALERTS{alertname="JobsDead"}`); len(found) > 0 {
		t.Fatalf("an alert before anything is dead: %v", found)
	}

	s.work(t, config)
	p.finds(`jobs_depth{jobs_state="dead"} == 1`)
	p.finds(`ALERTS{alertname="JobsDead", alertstate="firing"}`)
	p.finds(`jobs_workers == 1`)
	p.finds(`outbox_lag_seconds == 0 and on (instance) outbox_waiting == 0`)
	t.Run("alert rules", func(t *testing.T) { p.alertsFind(t, rules) })
	t.Run("dashboard", func(t *testing.T) { p.dashboardFinds(t, "../../telemetry/dashboard.json") })
}

// work sells an order, whose seat 14-C ends in jobs:dead, and has a worker at work until the test's end.
func (s *shop) work(t *testing.T, config jobs.Config) {
	t.Helper()
	if _, err := seed(t.Context(), s.office.db); err != nil {
		t.Fatal(err)
	}
	if _, err := s.sell(t.Context(), "14-C", "15C"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, config) }()
	s.closers = append(s.closers, func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// prom asks a Prometheus.
type prom struct {
	t *testing.T
	*servers.Prometheus
}

// get reads the data of an answer of Prometheus's API into to.
func (p prom) get(path string, to any) {
	p.t.Helper()
	r, err := http.Get(p.URL() + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: to}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil || answer.Status != "success" {
		p.t.Fatalf("%s: %s %v", path, answer.Error, err)
	}
}

// query returns the labels of each series that an expression finds.
func (p prom) query(expr string) (found []map[string]string) {
	p.t.Helper()
	var data struct {
		Result []struct{ Metric map[string]string }
	}
	p.get("/api/v1/query?query="+url.QueryEscape(expr), &data)
	for _, series := range data.Result {
		found = append(found, series.Metric)
	}
	return found
}

// finds waits until an expression finds something.
func (p prom) finds(expr string) []map[string]string {
	p.t.Helper()
	for late := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if found := p.query(expr); len(found) > 0 {
			return found
		}
		if time.Now().After(late) {
			p.t.Fatalf("nothing is found by %s", expr)
		}
	}
}

// rules are the alerts' expressions by name.
func (p prom) rules() map[string]string {
	p.t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Query string }
		}
	}
	p.get("/api/v1/rules", &data)
	all := map[string]string{}
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			all[r.Name] = r.Query
		}
	}
	if len(all) < 4 {
		p.t.Fatalf("rules: %v", all)
	}
	return all
}

var (
	selector   = regexp.MustCompile(`\b(?:jobs|messaging)_\w+(?:\{[^}]*\})?`)
	grouping   = regexp.MustCompile(`\bby \(([^)]*)\)`)
	comparison = regexp.MustCompile(`(>|<|==|!=)`)
)

// alertsFind has each alert's expression find what it compares, with those labels of ours that it groups by (others are
// given by whoever scrapes, or not), and each metric in it found by itself.
func (p prom) alertsFind(t *testing.T, rules map[string]string) {
	p.t = t
	for name, expr := range rules {
		series := p.finds(comparison.ReplaceAllString(expr, "$1 bool "))[0]
		for _, by := range grouping.FindAllStringSubmatch(expr, -1) {
			for label := range strings.FieldsFuncSeq(by[1], func(r rune) bool { return r == ',' || r == ' ' }) {
				ours := strings.HasPrefix(label, "jobs_") || strings.HasPrefix(label, "messaging_")
				if ours && series[label] == "" {
					t.Errorf("%s: no label %s: %v", name, label, series)
				}
			}
		}
		for _, metric := range selector.FindAllString(grouping.ReplaceAllString(expr, ""), -1) {
			p.finds(metric)
		}
	}
}

// dashboardFinds has each query of a Grafana dashboard find something.
func (p prom) dashboardFinds(t *testing.T, file string) {
	p.t = t
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	queries := 0
	variables := strings.NewReplacer("$__rate_interval", "1m", "$queue", ".*")
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries++
			series := p.finds(variables.Replace(target.Expr))
			for _, label := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !has(series, label[1]) {
					t.Errorf("%s: no series has the legend's label %s: %v", panel.Title, label[1], series)
				}
			}
		}
	}
	if queries < 20 {
		t.Errorf("only %d queries in %s", queries, file)
	}
}

func has(series []map[string]string, label string) bool {
	for _, labels := range series {
		if labels[label] != "" {
			return true
		}
	}
	return false
}
