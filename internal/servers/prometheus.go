package servers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// PrometheusOptions say what a Prometheus looks at.
type PrometheusOptions struct {
	Targets []string // host:port of what it scrapes, each at /metrics
	Rules   []string // files of rules
}

// Prometheus is a Prometheus of our own, which scrapes twice a second, and evaluates its rules as often.
type Prometheus struct {
	dir     string
	port    int
	process *process
}

// StartPrometheus starts a Prometheus and returns when it answers queries. Close ends it.
func StartPrometheus(o PrometheusOptions) (*Prometheus, error) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return nil, fmt.Errorf("servers: prometheus is %w: %v", ErrNotInstalled, err)
	}
	dir, err := makeDir("", "prometheus")
	if err != nil {
		return nil, err
	}
	p := &Prometheus{dir: dir}
	if err = p.configure(o); err == nil {
		err = onFreePort(freePort, func(port int) error {
			p.port = port
			return p.start(program)
		})
	}
	if err != nil {
		_ = removeDir(dir) // the first error says more
		return nil, err
	}
	return p, nil
}

// NewPrometheus is StartPrometheus for one test and its subtests.
func NewPrometheus(t testing.TB, o PrometheusOptions) *Prometheus {
	t.Helper()
	p, err := StartPrometheus(o)
	if err != nil {
		fail(t, err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// configure writes the configuration as JSON, which is YAML too.
func (p *Prometheus) configure(o PrometheusOptions) error {
	var rules []string
	for _, file := range o.Rules {
		path, err := filepath.Abs(file)
		if err != nil {
			return fmt.Errorf("servers: prometheus: %w", err)
		}
		rules = append(rules, path)
	}
	config, err := json.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
		"rule_files":     rules,
		"scrape_configs": []any{map[string]any{"job_name": "stagedoor", "static_configs": []any{map[string]any{"targets": o.Targets}}}},
	})
	if err == nil {
		err = os.WriteFile(p.config(), config, 0o600)
	}
	if err != nil {
		return fmt.Errorf("servers: prometheus: %w", err)
	}
	return nil
}

func (p *Prometheus) config() string { return filepath.Join(p.dir, "prometheus.yml") }

func (p *Prometheus) start(program string) error {
	cmd := exec.Command(program,
		"--config.file", p.config(), "--storage.tsdb.path", filepath.Join(p.dir, "data"),
		"--web.listen-address", address(p.port), "--log.level", "warn")
	cmd.Dir = p.dir
	process, err := start(cmd, os.Kill)
	if err != nil {
		return err
	}
	if err := process.await(p.answers); err != nil {
		process.kill()
		return err
	}
	p.process = process
	return nil
}

// answers reports whether the server at the port is ready, and this one: it names its folder.
func (p *Prometheus) answers() bool {
	return has(p.URL()+"/-/ready", "") && has(p.URL()+"/api/v1/status/flags", p.dir)
}

func has(url, text string) bool {
	client := http.Client{Timeout: time.Second}
	r, err := client.Get(url)
	if err != nil {
		return false
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return err == nil && r.StatusCode == http.StatusOK && strings.Contains(string(body), text)
}

// URL returns the address of its pages and its API.
func (p *Prometheus) URL() string { return "http://" + address(p.port) }

// Close ends the server and removes its folder.
func (p *Prometheus) Close() error {
	p.process.kill()
	return removeDir(p.dir)
}

// Promtool runs promtool, and fails the test where that finds something wrong.
func Promtool(t testing.TB, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		fail(t, fmt.Errorf("servers: promtool is %w: %v", ErrNotInstalled, err))
	}
	for _, arg := range args {
		_, _ = os.Stat(arg) // so that go test does not take an old result for this file's
	}
	if _, err := run(exec.Command(program, args...)); err != nil {
		t.Error(err)
	}
}
