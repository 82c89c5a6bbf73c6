package rows

import (
	"context"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

// Leads reports whether this server is the leader.
func (a *Core) Leads(ctx context.Context) bool {
	c, err := a.Registry.Read(ctx, registry.Stale)
	return err == nil && c.Leader
}

// OthersKnowBetter tells whether the leader may answer otherwise than with this error.
func (q *Request) OthersKnowBetter(err error) bool {
	if errkind.Is(err, errkind.NotLeader) {
		return true
	}
	stale := q.Mode == registry.Stale || q.Query != "" && q.Query.Has("stale") // any server may answer, so this one does
	return errkind.Is(err, errkind.Denied) && !stale && q.Registry != nil && !q.Leads(q.R.Context())
}

// Fail answers with an error.
func (q *Request) Fail(err error) {
	// A write that met a change of leader has done nothing yet: the new leader may do it. And a
	// server that lags behind may not know a token or a right yet: the leader has the last word.
	if q.Row.Class != ClassOwn && q.Forward != nil && q.OthersKnowBetter(err) {
		ferr := q.PassOn(true)
		if ferr == ErrAnswered {
			return
		}
		err = ferr
	}
	q.Failures.Add(1)
	code, text, retry := answer.StatusOf(err, q.Row.Class == ClassWrite)
	if retry {
		q.W.Header()["Retry-After"] = []string{"1"}
	}
	httpx.WriteText(q.W, code, text)
}
