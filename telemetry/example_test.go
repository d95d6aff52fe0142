package telemetry_test

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/telemetry"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
)

// A worker that Prometheus scrapes.
func Example() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	sendTickets := jobs.NewKind[jobs.None]("send_tickets", jobs.Policy{})

	exporter, err := prometheus.New() // of go.opentelemetry.io/otel/exporters/prometheus
	if err != nil {
		log.Fatal(err)
	}
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter)))
	http.Handle("GET /metrics", promhttp.Handler())

	tel := telemetry.New(telemetry.Options{}) // the global providers, of traces too
	client := jobs.NewClient(rdb, tel.Client(jobs.Options{}))
	runner := jobs.NewRunner(client, tel.Runner(jobs.Config{}))
	defer tel.Register(client)()

	err = tel.Enqueue(ctx, client, sendTickets.Job(jobs.None{})) // client.Enqueue, in a span and timed

	if err != nil {
		log.Fatal(err)
	}
	if err := runner.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func TestReadmeShowsTheExample(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	must(t, err)
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	_, code, _ := strings.Cut(string(source), "jobs.Policy{})\n\n")
	code, _, _ = strings.Cut(code, "\n\n\tif err != nil")
	code = strings.ReplaceAll("\n"+code, "\n\t", "\n")
	if !strings.Contains(string(readme), "```go"+code+"\n```") {
		t.Errorf("the README does not show%s", code)
	}
}

// Who does not use it does not have it, and who uses it has the choice of an SDK.
func TestImports(t *testing.T) {
	t.Parallel()
	for path, unwanted := range map[string][]string{
		"github.com/stagedoor/jobs":           {"opentelemetry", "prometheus"},
		"github.com/stagedoor/jobs/telemetry": {"otel/sdk", "prometheus"},
	} {
		out, err := exec.Command("go", "list", "-deps", path).Output()
		must(t, err)
		for dep := range strings.FieldsSeq(string(out)) {
			for _, part := range unwanted {
				if strings.Contains(dep, part) {
					t.Errorf("%s imports %s", path, dep)
				}
			}
		}
	}
}
