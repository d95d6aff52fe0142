package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster is a Redis Cluster of our own: masters without replicas, which hold all slots between them. While one of them
// is down the others go on.
type Cluster struct {
	Nodes []*Redis
}

const slots = 16384

// StartCluster starts a cluster of so many masters and returns when each of them takes it for whole. Close ends it.
func StartCluster(masters int) (*Cluster, error) {
	c := &Cluster{}
	for range masters {
		r, err := StartRedis(RedisOptions{Args: []string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", "15000", "--cluster-require-full-coverage", "no",
		}})
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.Nodes = append(c.Nodes, r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.join(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("servers: cluster: %w", err), c.Close())
	}
	return c, nil
}

// NewCluster is StartCluster, of three masters, for one test and its subtests.
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	c, err := StartCluster(3)
	if err != nil {
		fail(t, err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// SharedCluster returns the one cluster of this test binary, of three masters. As with SharedRedis, tests that use it
// leave its settings and each other's keys alone (see Prefix), and the package's TestMain must call Main.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	needsMain(t)
	c, err := sharedCluster()
	if err != nil {
		fail(t, err)
	}
	return c
}

var sharedCluster = sync.OnceValues(func() (*Cluster, error) {
	c, err := StartCluster(3)
	if err == nil {
		shared.add(c)
	}
	return c, err
})

// join makes one cluster of the nodes.
func (c *Cluster) join(ctx context.Context) error {
	for i, node := range c.Nodes {
		from, to := i*slots/len(c.Nodes), (i+1)*slots/len(c.Nodes)-1
		err := node.do(ctx, func(rdb *redis.Client) error {
			pipe := rdb.Pipeline()
			pipe.Do(ctx, "cluster", "set-config-epoch", i+1)
			pipe.ClusterAddSlotsRange(ctx, from, to)
			pipe.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(c.Nodes[0].port))
			_, err := pipe.Exec(ctx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return c.await(ctx)
}

// await waits until every node takes the cluster for whole, with all others in it.
func (c *Cluster) await(ctx context.Context) error {
	size := fmt.Sprintf("cluster_size:%d\r\n", len(c.Nodes))
	for _, node := range c.Nodes {
		err := node.do(ctx, func(rdb *redis.Client) error {
			return poll(ctx, func() (bool, error) {
				info, err := rdb.ClusterInfo(ctx).Result()
				whole := strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384")
				return whole && strings.Contains(info, size), err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// do calls f with a client of r that lives as long as the call.
func (r *Redis) do(ctx context.Context, f func(rdb *redis.Client) error) error {
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1})
	defer rdb.Close()
	if err := f(rdb); err != nil {
		return fmt.Errorf("%s: %w", r.Addr(), err)
	}
	return nil
}

// poll asks again and again until the answer is yes or an error, or ctx ends.
func poll(ctx context.Context, ready func() (bool, error)) error {
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Addrs returns host and port of each node.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// Client returns a new client with go-redis's own defaults, closed at the end of the test.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() }) // a test may have closed it
	return rdb
}

// Owner returns the node that holds key's slot by the nodes' own account.
func (c *Cluster) Owner(ctx context.Context, key string) (*Redis, error) {
	slot, err := c.slot(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, node := range c.Nodes {
		mine := false
		err := node.do(ctx, func(rdb *redis.Client) error {
			id, ranges := rdb.Do(ctx, "cluster", "myid"), rdb.ClusterShards(ctx)
			mine = holds(ranges.Val(), id.Val(), slot)
			return errors.Join(id.Err(), ranges.Err())
		})
		if err != nil || mine {
			return node, err
		}
	}
	return nil, fmt.Errorf("servers: cluster: nobody holds slot %d", slot)
}

func holds(shards []redis.ClusterShard, id any, slot int) bool {
	for _, shard := range shards {
		mine := slices.ContainsFunc(shard.Nodes, func(n redis.Node) bool { return n.ID == id })
		here := slices.ContainsFunc(shard.Slots, func(r redis.SlotRange) bool { return int(r.Start) <= slot && slot <= int(r.End) })
		if mine && here {
			return true
		}
	}
	return false
}

func (c *Cluster) slot(ctx context.Context, key string) (int, error) {
	slot := 0
	err := c.Nodes[0].do(ctx, func(rdb *redis.Client) error {
		n, err := rdb.ClusterKeySlot(ctx, key).Result()
		slot = int(n)
		return err
	})
	return slot, err
}

// Move gives the slot of key, with all that lies in it, to another node, as resharding does: key by key. Meanwhile is
// called before the first key is moved and after each, while the old owner answers ASK for what has gone.
func (c *Cluster) Move(ctx context.Context, key string, to *Redis, meanwhile func()) error {
	slot, err := c.slot(ctx, key)
	if err != nil {
		return err
	}
	from, err := c.Owner(ctx, key)
	if err != nil || from == to {
		return err
	}
	m := move{slot: slot, from: from, to: to}
	if err := m.begin(ctx); err != nil {
		return err
	}
	for more := true; more; {
		meanwhile()
		if more, err = m.one(ctx); err != nil {
			return err
		}
	}
	return m.end(ctx, c.Nodes)
}

// move is a slot on its way from one node to another.
type move struct {
	slot     int
	from, to *Redis
	id       string // of the new owner
}

func (m *move) begin(ctx context.Context) error {
	old := ""
	err := m.from.do(ctx, func(rdb *redis.Client) (err error) {
		old, err = rdb.Do(ctx, "cluster", "myid").Text()
		return err
	})
	if err != nil {
		return err
	}
	err = m.to.do(ctx, func(rdb *redis.Client) (err error) {
		if m.id, err = rdb.Do(ctx, "cluster", "myid").Text(); err != nil {
			return err
		}
		return rdb.Do(ctx, "cluster", "setslot", m.slot, "importing", old).Err()
	})
	if err != nil {
		return err
	}
	return m.from.do(ctx, func(rdb *redis.Client) error {
		return rdb.Do(ctx, "cluster", "setslot", m.slot, "migrating", m.id).Err()
	})
}

// one moves one key, and says whether there may be more.
func (m *move) one(ctx context.Context) (more bool, err error) {
	err = m.from.do(ctx, func(rdb *redis.Client) error {
		keys, err := rdb.ClusterGetKeysInSlot(ctx, m.slot, 1).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		more = true
		return rdb.Migrate(ctx, "127.0.0.1", fmt.Sprint(m.to.port), keys[0], 0, 10*time.Second).Err()
	})
	return more, err
}

// end tells all nodes, the new owner first.
func (m *move) end(ctx context.Context, nodes []*Redis) error {
	for _, node := range append([]*Redis{m.to}, nodes...) {
		err := node.do(ctx, func(rdb *redis.Client) error {
			return rdb.Do(ctx, "cluster", "setslot", m.slot, "node", m.id).Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close ends the cluster and removes the nodes' folders.
func (c *Cluster) Close() error {
	var failed error
	for _, node := range c.Nodes {
		failed = errors.Join(failed, node.Close())
	}
	return failed
}
