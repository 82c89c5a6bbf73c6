package consulapi

import (
	"context"
	"errors"
	"net/http"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

var (
	errNoLeader  = errkind.New(errkind.Unavailable, "No cluster leader")
	errNoServers = errkind.New(errkind.Unavailable, "No known Consul servers")
)

// statusError is an error with a status of its own, where the contract departs from the kinds.
type statusError struct {
	status int
	text   string
	retry  bool // the client shall try again in a second
}

// Error implements error.
func (e *statusError) Error() string { return e.text }

func failWith(status int, text string) error { return &statusError{status: status, text: text} }

// refused turns a command's refusal into the contract's 500, keeping the
// kinds that have a status of their own.
func refused(err error) error {
	switch errkind.Of(err) {
	case errkind.Denied, errkind.TooLarge, errkind.Overloaded, errkind.NotLeader, errkind.Unavailable:
		return err
	}
	return failWith(http.StatusInternalServerError, errkind.Text(err))
}

// statusOf maps an error to its code and text, and tells whether the client shall try again in a second.
func statusOf(err error, writes bool) (code int, text string, retry bool) {
	var s *statusError
	if errors.As(err, &s) {
		return s.status, s.text, s.retry
	}
	text = errkind.Text(err)
	switch errkind.Of(err) {
	case errkind.Invalid:
		return http.StatusBadRequest, text, false
	case errkind.Denied:
		return http.StatusForbidden, text, false
	case errkind.NotFound:
		return http.StatusNotFound, text, false
	case errkind.TooLarge:
		return http.StatusRequestEntityTooLarge, text, false
	case errkind.NotLeader:
		return http.StatusInternalServerError, errkind.Text(errNoLeader), false
	case errkind.Overloaded:
		code = http.StatusTooManyRequests
		if writes {
			code = http.StatusServiceUnavailable
		}
		return code, "rate limit exceeded, try again later or against a different server", true
	}
	return http.StatusInternalServerError, text, false
}

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
	code, text, retry := statusOf(err, q.route.class == write)
	if retry {
		q.w.Header()["Retry-After"] = []string{"1"}
	}
	httpx.WriteText(q.w, code, text)
}
