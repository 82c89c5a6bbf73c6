package rows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
)

var errNoPath = errkind.New(errkind.Unavailable, "No path to datacenter")

// Datacenter is what the query asks for, "" when it names none; the long form wins.
func (q *Request) Datacenter() string {
	if v, _ := q.Query.Get("datacenter"); v != "" {
		return v
	}
	v, _ := q.Query.Get("dc")
	return v
}

// Cross answers the request from dc unless that is this datacenter (or ""), in which case
// it returns nil and the handler goes on.
func (q *Request) Cross(dc string) error {
	if strings.EqualFold(dc, q.Identity.Datacenter) || dc == "" {
		return nil
	}
	if q.Registry == nil { // an agent's own row: its servers know the way
		return q.PassOn(false)
	}
	if q.Remote == nil {
		return errNoPath
	}
	carryToken(q)
	r := q.R
	nameNear(q)
	if q.bare {
		r.Body = io.NopCloser(bytes.NewReader(*q.buf))
	}
	if q.Datacenter() == "" { // the body's: said in the query, it needs no reading on the way
		r = r.Clone(r.Context())
		query := r.URL.Query()
		query.Set("dc", dc)
		r.URL.RawQuery = query.Encode()
	}
	if q.Row.Streams {
		policy := q.W.Header()["X-Consul-Default-Acl-Policy"]
		delete(q.W.Header(), "X-Consul-Default-Acl-Policy") // the answer brings its own
		switch err := q.Remote.ForwardDCStream(q.W, strings.ToLower(dc), r); {
		case errors.Is(err, answer.ErrCut):
			answer.Cut()
		case err != nil:
			q.W.Header()["X-Consul-Default-Acl-Policy"] = policy
			return err
		}
		return ErrAnswered
	}
	if translates(q) {
		r.Header.Del("Accept-Encoding") // the answer will be read
	}
	answer, err := q.Remote.ForwardDC(q.R.Context(), strings.ToLower(dc), r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return errkind.E(errkind.Unavailable, "answer from datacenter "+dc, err)
	}
	if translates(q) && answer.StatusCode == http.StatusOK && answer.Header.Get("Content-Encoding") == "" {
		body = translate(body)
	}
	hold, err := httpx.HoldAnswer(q.R, len(body))
	if err != nil {
		return err
	}
	defer hold.End()
	delete(q.W.Header(), "X-Consul-Default-Acl-Policy") // the answer brings its own
	maps.Copy(q.W.Header(), answer.Header)
	q.W.WriteHeader(answer.StatusCode)
	httpx.WriteBounded(q.W, body)
	return ErrAnswered
}

// BodyDatacenter is remote for the datacenter that a body names: the query's, if there is one, has been
// obeyed already.
func (q *Request) BodyDatacenter(dc string) error {
	if q.Datacenter() != "" {
		return nil
	}
	return q.Cross(dc)
}

// Known lists the datacenters, this one first and then by distance.
func (a *Core) Known() []string {
	if a.Remote == nil {
		return []string{a.Identity.Datacenter}
	}
	return a.Remote.Known()
}

// ExecuteRemote sends GET path (with its query, "/v1/query/db/execute?limit=3") to a server of another
// datacenter in the name of token, and returns the status and the body of its answer. It is the way of
// prepared queries that fail over; ctx is the incoming request's, so that what came from another datacenter goes no
// further.
func (a *Core) ExecuteRemote(ctx context.Context, dc, path, token string) (status int, body []byte, err error) {
	if a.Remote == nil {
		return 0, nil, errNoPath
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return 0, nil, errkind.E(errkind.Invalid, "request for datacenter "+dc, err)
	}
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	answer, err := a.Remote.ForwardDC(ctx, strings.ToLower(dc), r)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}

// translates tells whether the addresses in an answer of another datacenter are to be those by which
// this one reaches it (translate_wan_addrs).
func translates(q *Request) bool {
	return q.TranslateWAN && q.R.Method == http.MethodGet &&
		(strings.HasPrefix(q.Row.Pattern, "/v1/catalog/") || strings.HasPrefix(q.Row.Pattern, "/v1/health/") ||
			strings.HasPrefix(q.Row.Pattern, "/v1/query/"))
}

// translate puts the wan addresses of nodes and services in the place of their own. A body that is
// no JSON stays as it is.
func translate(body []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return body
	}
	translateValue(v)
	out, err := json.Marshal(v)
	if err != nil {
		return body
	}
	return out
}

func translateValue(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			translateValue(item)
		}
	case map[string]any:
		useWAN(v, "TaggedAddresses", "Address", "Port")
		useWAN(v, "ServiceTaggedAddresses", "ServiceAddress", "ServicePort")
		for _, item := range v {
			translateValue(item)
		}
	}
}

// useWAN takes the wan address from an object's tagged ones: a text for nodes, an address with a port for services.
func useWAN(object map[string]any, tagged, address, port string) {
	all, _ := object[tagged].(map[string]any)
	if _, has := object[address]; !has {
		return
	}
	switch wan := all["wan"].(type) {
	case string:
		if wan != "" {
			object[address] = wan
		}
	case map[string]any:
		if a, ok := wan["Address"].(string); ok && a != "" {
			object[address], object[port] = a, wan["Port"]
		}
	}
}
