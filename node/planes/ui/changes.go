package uiplane

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/node/planes/ui/pastchanges"
	"corbel.dev/corbel/node/planes/ui/rowlists"
)

const (
	// changesEvery is how often they are told: what came before is no news, and asks for all jobs.
	changesEvery = 5 * time.Second
	// changesBefore is how far back from an event a cause is looked for.
	changesBefore = time.Hour
)

// changesTopic shows what changed in the hour before a time, before= in ms since 1970: of what the person may read.
func (u *UI) changesTopic() *topic {
	return &topic{every: changesEvery, rights: u.rightsOfAll, make: func(ctx context.Context, p *uiapi.Person,
		q url.Values) (any, error) {
		g, err := u.d.Grant(ctx, p.Catalog)
		if err != nil {
			return nil, err
		}
		till, err := strconv.ParseInt(q.Get("before"), 10, 64)
		if err != nil || till <= 0 {
			till = u.d.Clock.Now().UnixMilli()
		}
		from, rows := till-changesBefore.Milliseconds(), []pastchanges.Row{}
		for _, c := range u.seen.Between(from, till) {
			what := acl.Service
			if c.Node {
				what = acl.Node
			}
			if g.Allow(what, c.Name, acl.Read) {
				rows = append(rows, c.Row())
			}
		}
		rows = append(rows, u.submitted(ctx, p, from, till)...)
		slices.SortStableFunc(rows, func(a, b pastchanges.Row) int { return cmp.Compare(b.At, a.At) })
		return rows[:min(len(rows), rowlists.RowsHere)], nil
	}}
}

// submitted are the jobs whose newest version came in a span of time.
func (u *UI) submitted(ctx context.Context, p *uiapi.Person, from, till int64) (rows []pastchanges.Row) {
	var jobs []struct {
		ID, Namespace, Status string
		Version               uint64
		SubmitTime            int64 // ns
		Stop                  bool
	}
	if u.jobs == nil || u.ask.Get(ctx, p, "jobs", "/v1/jobs?namespace=*", &jobs) != nil {
		return nil // the jobs screen says why they may not be seen
	}
	for i := range jobs {
		j := &jobs[i]
		at := j.SubmitTime / int64(time.Millisecond)
		if at <= from || at > till {
			continue
		}
		what := fmt.Sprintf("version %d submitted", j.Version)
		if j.Stop {
			what = "stopped"
		}
		rows = append(rows, pastchanges.Row{At: at, Kind: "job", Name: j.ID, What: what,
			Path: "/jobs/" + url.PathEscape(j.Namespace) + "/" + url.PathEscape(j.ID)})
	}
	return rows
}
