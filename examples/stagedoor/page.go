package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/dashboard"
)

var pageAddr = flag.String("page", "127.0.0.1:8044", "where the page for people listens; empty: nowhere")

// servePage shows the queue to people on this machine. A real shop mounts it in its back office, behind its login, and
// says with dashboard.Options.Actor who is logged in. A port that is taken is no reason not to work.
func servePage(ctx context.Context, client *jobs.Client, log *slog.Logger) {
	if *pageAddr == "" {
		return
	}
	listener, err := net.Listen("tcp", *pageAddr)
	if err != nil {
		log.Warn("no page", "err", err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/jobs/", dashboard.Handler(client, dashboard.Options{Title: "Stagedoor"}))
	mux.Handle("/{$}", http.RedirectHandler("/jobs/", http.StatusSeeOther))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })
	log.Info("the page for people", "url", "http://"+listener.Addr().String()+"/jobs/")
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the page ended", "err", err)
		}
	}()
}
