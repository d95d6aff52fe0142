package servers

import (
	"fmt"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// StartMiniredis starts a miniredis whose keys expire as its clock moves, which they would not by default.
func StartMiniredis() (*miniredis.Miniredis, error) {
	return StartMiniredisAt("127.0.0.1:0")
}

// StartMiniredisAt is StartMiniredis at an address of the caller's choice.
func StartMiniredisAt(addr string) (*miniredis.Miniredis, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.StartAddr(addr); err != nil {
		return nil, fmt.Errorf("servers: miniredis: %w", err)
	}
	return m, nil
}

// NewMiniredis is StartMiniredis for one test and its subtests.
func NewMiniredis(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	m, err := StartMiniredis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// Each runs f as two parallel subtests, "miniredis" and "redis", each with a client of a server of its own.
func Each(t *testing.T, f func(t *testing.T, rdb *redis.Client)) {
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		f(t, newClient(t, NewMiniredis(t).Addr()))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		f(t, NewRedis(t).Client(t))
	})
}
