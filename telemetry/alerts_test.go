package telemetry_test

import (
	"testing"

	"github.com/stagedoor/jobs/internal/servers"
)

// That every metric of theirs exists is shown where a real Prometheus scrapes a worker: in examples/stagedoor.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	servers.Promtool(t, "check", "rules", "alerts.yml")
	servers.Promtool(t, "test", "rules", "alerts_test.yml")
}
