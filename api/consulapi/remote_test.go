package consulapi

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"testing"

	"corbel.dev/corbel/kit/errkind"
)

// elsewhere is another datacenter that answers one body and keeps what it was asked.
type elsewhere struct {
	body  string
	asked *http.Request
	sent  string
}

func (e *elsewhere) Known() []string { return []string{"dc1", "dc2"} }

// ForwardDCStream implements Remote.
func (e *elsewhere) ForwardDCStream(w http.ResponseWriter, dc string, r *http.Request) error {
	answer, err := e.ForwardDC(r.Context(), dc, r)
	if err != nil {
		return err
	}
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	_, err = io.Copy(w, answer.Body)
	return err
}

func (e *elsewhere) ForwardDC(_ context.Context, dc string, r *http.Request) (*http.Response, error) {
	if dc != "dc2" {
		return nil, errkind.New(errkind.Unavailable, "No path to datacenter")
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	e.asked, e.sent = r, string(b)
	return &http.Response{StatusCode: 200, Header: http.Header{"X-Consul-Index": {"7"},
		"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader([]byte(e.body)))}, nil
}

func TestRequestsForOtherDatacenters(t *testing.T) {
	e := &elsewhere{body: `["there"]`}
	r := newRig(t, func(c *Config) { c.Remote = e })
	if a := r.want("GET", "/v1/catalog/nodes?dc=DC2&near=_agent", "", 200,
		`["there"]`); a.header.Get("X-Consul-Index") != "7" || e.asked.URL.Query().Get("near") != "n1" {
		t.Errorf("%v, asked %s", a.header, e.asked.URL)
	}
	r.want("GET", "/v1/catalog/nodes?dc=dc2&datacenter=dc1", "", 200, "[]") // the long form wins
	r.want("GET", "/v1/catalog/nodes?dc=dc3", "", 500, "No path to datacenter")
	r.want("GET", "/v1/agent/self?dc=dc3", "", 200, "*") // an agent's own knows no datacenter
	r.want("GET", "/v1/catalog/datacenters", "", 200, `["dc1","dc2"]`)
	const body = `{"Datacenter":"dc2","Node":"n","Address":"10.0.0.1"}`
	r.want("PUT", "/v1/catalog/register", body, 200, "*")
	if e.sent != body || e.asked.URL.Query().Get("dc") != "dc2" {
		t.Errorf("sent %q to %s", e.sent, e.asked.URL)
	}
	e.sent = ""
	r.want("PUT", "/v1/catalog/register?dc=dc1", body, 200, "true") // the query's comes before the body's
	if e.sent != "" {
		t.Error("the body's datacenter was obeyed against the query's")
	}
	if status, got, err := r.api.ExecuteRemote(t.Context(), "dc2", "/v1/query/q/execute?limit=1", "secret"); err != nil ||
		status != 200 || string(got) != `["there"]` ||
		e.asked.Header.Get("X-Consul-Token") != "secret" || e.asked.URL.RequestURI() != "/v1/query/q/execute?limit=1" {
		t.Errorf("%d %q %v", status, got, err)
	}
}

func TestAnswersOfOtherDatacentersAreTranslated(t *testing.T) {
	e := &elsewhere{body: `[{"Node":{"Node":"a","Address":"10.0.0.1","TaggedAddresses":{"lan":"10.0.0.1",` +
		`"wan":"192.0.2.1"}},` +
		`"Service":{"ID":"w","Address":"10.0.0.1","Port":80,"TaggedAddresses":{"wan":{"Address":"192.0.2.1","Port":8080}}}},` +
		`{"Address":"10.0.0.2","ServiceAddress":"","ServicePort":1,"ServiceTaggedAddresses":{},"TaggedAddresses":null,` +
		`"ModifyIndex":18446744073709551615}]`}
	const want = `[{"Node":{"Address":"192.0.2.1","Node":"a","TaggedAddresses":{"lan":"10.0.0.1","wan":"192.0.2.1"}},` +
		`"Service":{"Address":"192.0.2.1","ID":"w","Port":8080,"TaggedAddresses":{"wan":{"Address":"192.0.2.1",` +
		`"Port":8080}}}},` +
		`{"Address":"10.0.0.2","ModifyIndex":18446744073709551615,"ServiceAddress":"","ServicePort":1,` +
		`"ServiceTaggedAddresses":{},"TaggedAddresses":null}]`
	r := newRig(t, func(c *Config) { c.Remote, c.TranslateWAN = e, true })
	r.want("GET", "/v1/health/service/w?dc=dc2", "", 200, want)
	plain := newRig(t, func(c *Config) { c.Remote = e })
	plain.want("GET", "/v1/health/service/w?dc=dc2", "", 200, e.body)
}
