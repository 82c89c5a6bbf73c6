package aggregator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

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
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	q.Most = min(q.Most, maxRecent)
	req, err := json.Marshal(q)
	parts := a.cfg.Parts()
	each, errs := make([][]counter.Recent, len(parts)), make([]error, len(parts))
	var wg sync.WaitGroup
	for i, m := range parts {
		if errs[i] = err; err != nil {
			continue
		}
		wg.Go(func() {
			if local := a.cfg.Local(m); local != nil {
				each[i], errs[i] = local.Recent(ctx, q)
				return
			}
			reply, err := a.cfg.Call(ctx, m, MethodRecent, req)
			if err == nil {
				err = json.Unmarshal(reply, &each[i])
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for i, m := range parts {
		if errs[i] != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", m, errs[i]))
			continue
		}
		list = append(list, each[i]...)
	}
	slices.SortStableFunc(list, func(a, b counter.Recent) int { return b.Stored.Compare(a.Stored) })
	return list[:min(len(list), q.Most)], silent
}
