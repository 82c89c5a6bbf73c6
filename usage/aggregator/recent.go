package aggregator

import (
	"context"
	"encoding/json"
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage/counter"
)

// MethodRecent is the RPC by which a server asks another one for the newest events of its log.
const MethodRecent = "usage.recent"

// maxRecent bounds the events that are listed.
const maxRecent = 1000

// ServeRecent answers MethodRecent, for the counter of a part.
func ServeRecent(ctx context.Context, c *counter.Counter, req []byte) ([]byte, error) {
	var q counter.RecentQuery
	if err := json.Unmarshal(req, &q); err != nil {
		return nil, errkind.E(errkind.Invalid, MethodRecent, err)
	}
	q.Most = min(q.Most, maxRecent)
	list, err := c.Recent(ctx, q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(list)
}

// Recent lists the newest events that a query takes, the newest first, and which parts did not answer.
func (a *Aggregator) Recent(ctx context.Context, q counter.RecentQuery) (list []counter.Recent, silent []string) {
	q.Most = min(q.Most, maxRecent)
	req, err := json.Marshal(q)
	if err != nil {
		return nil, []string{err.Error()} // a query has texts and times
	}
	list, silent = all(ctx, a, MethodRecent, req,
		func(ctx context.Context, c *counter.Counter) ([]counter.Recent, error) { return c.Recent(ctx, q) },
		listed[counter.Recent])
	slices.SortStableFunc(list, func(a, b counter.Recent) int { return b.Stored.Compare(a.Stored) })
	return list[:min(len(list), q.Most)], silent
}
