package consulapi

import (
	"context"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

// leads reports whether this server is the leader.
func (a *API) leads(ctx context.Context) bool {
	c, err := a.cfg.Registry.Read(ctx, registry.Stale)
	return err == nil && c.Leader
}

func (q *request) othersKnowBetter(err error) bool {
	if errkind.Is(err, errkind.NotLeader) {
		return true
	}
	stale := q.mode == registry.Stale || q.q != "" && q.q.Has("stale") // any server may answer, so this one does
	return errkind.Is(err, errkind.Denied) && !stale && q.api.cfg.Registry != nil && !q.api.leads(q.r.Context())
}

// fail answers with an error.
func (q *request) fail(err error) {
	// A write that met a change of leader has done nothing yet: the new leader may do it. And a
	// server that lags behind may not know a token or a right yet: the leader has the last word.
	if q.route.class != own && q.api.cfg.Forward != nil && q.othersKnowBetter(err) {
		ferr := q.forward(true)
		if ferr == errAnswered {
			return
		}
		err = ferr
	}
	q.api.failures.Add(1)
	code, text, retry := answer.StatusOf(err, q.route.class == write)
	if retry {
		q.w.Header()["Retry-After"] = []string{"1"}
	}
	httpx.WriteText(q.w, code, text)
}
