package dashboard

// Who works, and by which clock.

import (
	"context"
	"net/url"

	"github.com/stagedoor/jobs"
)

func (d *dashboard) schedules(ctx context.Context, form url.Values) (page, error) {
	list, err := d.client.Schedules(ctx)
	return page{Name: "schedules", Tab: "schedules", Title: "Schedules", Data: list, Live: true, Said: said(form)}, err
}

// fleet is who works and what runs.
type fleet struct {
	Workers []jobs.Worker
	Running []running
}

// running is a job in a worker's slot.
type running struct {
	Worker jobs.Worker
	jobs.RunningJob
}

func (d *dashboard) workers(ctx context.Context, _ url.Values) (page, error) {
	var f fleet
	var err error
	if f.Workers, err = d.client.Workers(ctx); err != nil {
		return page{}, err
	}
	for _, w := range f.Workers {
		for _, job := range w.Running {
			f.Running = append(f.Running, running{w, job})
		}
	}
	return page{Name: "workers", Tab: "workers", Title: "Workers", Data: f, Live: true}, nil
}
