package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// outage makes a fake server fail: its next requests, as many as it was told, are answered with status 503.
type outage struct{ left atomic.Int64 }

// failNext makes the next n requests fail.
func (o *outage) failNext(n int) { o.left.Store(int64(n)) }

// strikes tells whether the request at hand is one to fail.
func (o *outage) strikes() bool { return o.left.Add(-1) >= 0 }

// serveSwitch is failNext for people: curl -X POST 'http://127.0.0.1:PORT/fail?next=2'
func (o *outage) serveSwitch(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.FormValue("next"))
	if err != nil || n < 0 {
		http.Error(w, "next: not a number of requests", http.StatusBadRequest)
		return
	}
	o.failNext(n)
	fmt.Fprintf(w, "the next %d requests fail\n", n)
}

// serveLocal serves h on a free port of the loopback interface until stop is called.
func serveLocal(h http.Handler) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener)
	return "http://" + listener.Addr().String(), func() { server.Close() }, nil
}
