// Package handoff is how package outbox takes jobs and clients apart, without a word of it
// in the public API: package jobs fills it, package outbox asks it.
package handoff

import (
	"context"

	"github.com/stagedoor/jobs/internal/store"
)

var (
	// Item returns a jobs.Job as Client.Enqueue would send it, or why it would refuse it;
	// annotate is Options.Annotate, nil of its type where there is none.
	Item func(ctx context.Context, job any, annotate any) (store.Item, error)

	// Store returns the store of a *jobs.Client.
	Store func(client any) *store.Store
)
