package main

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// usage is what has been used so far. Of interest is the difference of two.
type usage struct {
	worker   time.Duration // CPU of this process, user and system
	server   time.Duration // CPU of the server
	commands int64         // that Redis has carried out, those inside of scripts too, but none of the measure's own
	trips    int64         // round trips of the peer's connections
}

func (u usage) since(before usage) usage {
	return usage{u.worker - before.worker, u.server - before.server, u.commands - before.commands, u.trips - before.trips}
}

// read costs the worker an INFO, about 1 ms, which is in the difference.
func read(ctx context.Context, s server, t *trips) (usage, error) {
	u := usage{worker: ownCPU(), trips: t.n.Load()}
	var err error
	u.server, u.commands, err = s.used(ctx)
	return u, err
}

// ownCPU is what this process has used, by getrusage.
func ownCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // only for a bad pointer
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// trips counts round trips: each time a connection begins to read after it has written.
type trips struct{ n atomic.Int64 }

func (t *trips) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute} // as go-redis dials
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countedConn{TCPConn: conn.(*net.TCPConn), trips: t}, nil
}

// countedConn is a TCP connection in all else: go-redis looks at the socket under it.
type countedConn struct {
	*net.TCPConn
	trips *trips
	wrote atomic.Bool
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.wrote.Store(true)
	return c.TCPConn.Write(b)
}

func (c *countedConn) Read(b []byte) (int, error) {
	if c.wrote.Load() && c.wrote.Swap(false) {
		c.trips.n.Add(1)
	}
	return c.TCPConn.Read(b)
}
