package servers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPrometheusScrapesAndEvaluates(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			fmt.Fprintln(w, "depth 41")
		}
	}))
	defer target.Close()
	rules := filepath.Join(t.TempDir(), "rules.yml")
	must(t, os.WriteFile(rules, []byte(`groups: [{name: a, rules: [{record: deeper, expr: depth + 1}]}]`), 0o600))
	p := NewPrometheus(t, PrometheusOptions{Targets: []string{strings.TrimPrefix(target.URL, "http://")}, Rules: []string{rules}})
	Promtool(t, "check", "rules", rules)
	for late := time.Now().Add(30 * time.Second); !has(p.URL()+"/api/v1/query?query="+url.QueryEscape("deeper"), `"42"`); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("it does not know what is one deeper than 41")
		}
	}
}

func TestPrometheusWithBadRulesDoesNotStart(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yml")
	must(t, os.WriteFile(rules, []byte(`groups: nonsense`), 0o600))
	p, err := StartPrometheus(PrometheusOptions{Rules: []string{rules}})
	if err == nil {
		p.Close()
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), "not installed") && !strings.Contains(err.Error(), "rules.yml") {
		t.Error(err)
	}
}
