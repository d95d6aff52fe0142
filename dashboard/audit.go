package dashboard

import (
	"context"
	"net/url"

	"github.com/stagedoor/jobs"
)

// audit is a page of what was done by hand, newest first.
type audit struct {
	Choice  choice
	Actions []jobs.Action
	Next    string
}

func (d *dashboard) audit(ctx context.Context, form url.Values) (page, error) {
	v := audit{Choice: readChoice(form)}
	f, err := v.Choice.filter()
	if err != nil {
		return page{}, err
	}
	f.Limit = perPage + 1
	for action, err := range d.client.Audit(ctx, f) {
		if err != nil {
			return page{}, err
		}
		v.Actions = append(v.Actions, action)
	}
	if len(v.Actions) > perPage {
		v.Actions = v.Actions[:perPage]
		v.Next = v.Choice.Link("audit", "before", v.Actions[perPage-1].Record)
	}
	return page{Name: "audit", Tab: "audit", Title: "Audit", Data: v, Live: !v.Choice.Any()}, nil
}
