package consulapi

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"strings"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
)

var errNoPath = errkind.New(errkind.Unavailable, "No path to datacenter")

// datacenter is what the query asks for, "" when it names none; the long form wins.
func (q *request) datacenter() string {
	if v, _ := q.q.Get("datacenter"); v != "" {
		return v
	}
	v, _ := q.q.Get("dc")
	return v
}

// crossing sends a request whose query names another datacenter there. What an agent tells
// about itself knows no datacenter.
func (q *request) crossing() error {
	if q.q == "" || strings.HasPrefix(q.route.pattern, "/v1/agent/") {
		return nil
	}
	return q.remote(q.datacenter())
}

// remote answers the request from dc unless that is this datacenter (or ""), in which case
// it returns nil and the handler goes on.
func (q *request) remote(dc string) error {
	if strings.EqualFold(dc, q.api.cfg.Identity.Datacenter) || dc == "" {
		return nil
	}
	if q.api.cfg.Registry == nil { // an agent's own row: its servers know the way
		return q.forward(false)
	}
	if q.api.cfg.Remote == nil {
		return errNoPath
	}
	q.carryToken()
	r := q.r
	q.nameNear()
	if q.bare {
		r.Body = io.NopCloser(bytes.NewReader(*q.buf))
	}
	if q.datacenter() == "" { // the body's: said in the query, it needs no reading on the way
		r = r.Clone(r.Context())
		query := r.URL.Query()
		query.Set("dc", dc)
		r.URL.RawQuery = query.Encode()
	}
	if q.route.streams() {
		policy := q.w.Header()["X-Consul-Default-Acl-Policy"]
		delete(q.w.Header(), "X-Consul-Default-Acl-Policy") // the answer brings its own
		if err := q.api.cfg.Remote.ForwardDCStream(q.w, strings.ToLower(dc), r); err != nil {
			q.w.Header()["X-Consul-Default-Acl-Policy"] = policy
			return err
		}
		return errAnswered
	}
	if q.translates() {
		r.Header.Del("Accept-Encoding") // the answer will be read
	}
	answer, err := q.api.cfg.Remote.ForwardDC(q.r.Context(), strings.ToLower(dc), r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return errkind.E(errkind.Unavailable, "answer from datacenter "+dc, err)
	}
	if q.translates() && answer.StatusCode == http.StatusOK && answer.Header.Get("Content-Encoding") == "" {
		body = translate(body)
	}
	hold, err := httpx.HoldAnswer(q.r, len(body))
	if err != nil {
		return err
	}
	defer hold.End()
	delete(q.w.Header(), "X-Consul-Default-Acl-Policy") // the answer brings its own
	maps.Copy(q.w.Header(), answer.Header)
	q.w.WriteHeader(answer.StatusCode)
	httpx.WriteBounded(q.w, body)
	return errAnswered
}

// bodyDatacenter is remote for the datacenter that a body names: the query's, if there is one, has been
// obeyed already.
func (q *request) bodyDatacenter(dc string) error {
	if q.datacenter() != "" {
		return nil
	}
	return q.remote(dc)
}

// Known lists the datacenters, this one first and then by distance.
func (a *API) Known() []string {
	if a.cfg.Remote == nil {
		return []string{a.cfg.Identity.Datacenter}
	}
	return a.cfg.Remote.Known()
}

// ExecuteRemote sends GET path (with its query, "/v1/query/db/execute?limit=3") to a server of another
// datacenter in the name of token, and returns the status and the body of its answer. It is the way of
// prepared queries that fail over; ctx is the incoming request's, so that what came from another datacenter goes no
// further.
func (a *API) ExecuteRemote(ctx context.Context, dc, path, token string) (status int, body []byte, err error) {
	if a.cfg.Remote == nil {
		return 0, nil, errNoPath
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return 0, nil, errkind.E(errkind.Invalid, "request for datacenter "+dc, err)
	}
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	answer, err := a.cfg.Remote.ForwardDC(ctx, strings.ToLower(dc), r)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}
