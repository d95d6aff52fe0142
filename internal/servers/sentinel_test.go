package servers

import (
	"testing"
	"time"
)

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	s := NewSentinel(t)
	rdb := s.Client(t)
	must(t, rdb.Set(t.Context(), "key", "value", 0).Err())
	if n, err := rdb.Wait(t.Context(), 1, 5*time.Second).Result(); n != 1 || err != nil {
		t.Fatalf("%d replicas have it: %v", n, err)
	}
	master, err := s.Master(t.Context())
	must(t, err)
	if master != s.Nodes[0] {
		t.Fatalf("the master is %s", master.Addr())
	}
	must(t, master.Kill())
	began := time.Now()
	for rdb.Set(t.Context(), "other", "value", 0).Err() != nil {
		if time.Since(began) > 30*time.Second {
			t.Fatal("no new master after 30 s")
		}
	}
	t.Logf("a new master after %s", time.Since(began).Round(time.Millisecond))
	if master, err = s.Master(t.Context()); master != s.Nodes[1] || err != nil {
		t.Errorf("the master is %v: %v", master, err)
	}
	if got := s.Nodes[1].Client(t).Get(t.Context(), "key").Val(); got != "value" {
		t.Errorf("key is %q", got)
	}
}
