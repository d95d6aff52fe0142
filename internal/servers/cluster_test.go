package servers

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestClusterMovesASlot(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	rdb := c.Client(t)
	for i := range 100 {
		must(t, rdb.Set(t.Context(), fmt.Sprint("key", i), i, 0).Err())
	}
	for i := range 10 {
		must(t, rdb.Set(t.Context(), fmt.Sprint("{tag}", i), i, 0).Err())
	}
	from, err := c.Owner(t.Context(), "{tag}")
	must(t, err)
	to := c.Nodes[0]
	if from == to {
		to = c.Nodes[1]
	}
	calls := 0
	must(t, c.Move(t.Context(), "{tag}", to, func() {
		calls++
		if got := rdb.Get(t.Context(), "{tag}7").Val(); got != "7" {
			t.Errorf("meanwhile it is %q", got)
		}
	}))
	if calls != 11 {
		t.Errorf("called %d times for 10 keys, want 11", calls)
	}
	if now, err := c.Owner(t.Context(), "{tag}"); now != to || err != nil {
		t.Errorf("it is at %v (%v), want %s", now, err, to.Addr())
	}
	plain := to.Client(t)
	if n, err := plain.Exists(t.Context(), "{tag}0", "{tag}9").Result(); n != 2 || err != nil {
		t.Errorf("%d keys (%v), want 2", n, err)
	}
	if err := from.Client(t).Get(t.Context(), "{tag}0").Err(); !redis.HasErrorPrefix(err, "MOVED") {
		t.Errorf("the old owner says %v", err)
	}
}

func TestClusterOutlivesANode(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	owner, err := c.Owner(t.Context(), "key")
	must(t, err)
	for _, node := range c.Nodes {
		if node != owner {
			must(t, node.Kill())
			break
		}
	}
	must(t, owner.Client(t).Set(t.Context(), "key", "value", 0).Err())
}
