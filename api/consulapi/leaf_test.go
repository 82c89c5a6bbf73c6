package consulapi

import (
	"context"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// keptLeaves answers with what it was told to.
type keptLeaves struct {
	err   error
	index uint64
	wait  time.Duration
	hit   bool
}

// Leaf implements Leaves.
func (k *keptLeaves) Leaf(_ context.Context, service, _ string, index uint64, wait time.Duration) (meshrows.CALeaf,
	bool,
	error) {
	k.index, k.wait = index, wait
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return meshrows.CALeaf{SerialNumber: "aa:bb", CertPEM: "CERT", PrivateKeyPEM: "KEY", Service: service,
			ServiceURI: "spiffe://td/ns/default/dc/dc1/svc/" + service,
			ValidAfter: at, ValidBefore: at.Add(72 * time.Hour), CreateIndex: 7, ModifyIndex: 7, Received: time.Now()}, k.hit,
		k.err
}

// TrustDomain implements Leaves.
func (k *keptLeaves) TrustDomain() string { return "id.consul" }

// Held implements Leaves.
func (k *keptLeaves) Held() []meshrows.HeldLeaf {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return []meshrows.HeldLeaf{{Service: "web", SerialNumber: "aa:bb", RootID: "r1", ValidAfter: at,
		ValidBefore: at.Add(72 * time.Hour)}}
}

func TestAgentLeaf(t *testing.T) {
	leaves := &keptLeaves{}
	r := newRig(t, func(c *Config) { c.Mesh.Leaves = leaves })
	a := r.want("GET", "/v1/agent/connect/ca/leaf/web", "", 200,
		`{"SerialNumber":"aa:bb","CertPEM":"CERT","PrivateKeyPEM":"KEY","Service":"web",`+
			`"ServiceURI":"spiffe://td/ns/default/dc/dc1/svc/web","ValidAfter":"2026-01-02T03:04:05Z",`+
			`"ValidBefore":"2026-01-05T03:04:05Z","CreateIndex":7,"ModifyIndex":7}`)
	if a.header.Get("X-Consul-Index") != "7" || a.header.Get("X-Cache") != "MISS" {
		t.Errorf("headers %v", a.header)
	}
	leaves.hit = true
	if a := r.want("GET", "/v1/agent/connect/ca/leaf/web?index=7&wait=10s&cached", "", 200,
		"*"); a.header.Get("X-Cache") != "HIT" || a.header.Get("Age") == "" {
		t.Errorf("headers %v", a.header)
	}
	if leaves.index != 7 || leaves.wait < 10*time.Second || leaves.wait > 11*time.Second {
		t.Errorf("asked for %d for %s", leaves.index, leaves.wait)
	}
	r.want("GET", "/v1/agent/connect/ca/leaf/web?index=x", "", 400, "Invalid index")
	r.want("GET", "/v1/agent/connect/ca/leaf/", "", 400, "Missing service name")
	leaves.err = errkind.New(errkind.Overloaded, "Rate limit reached, try again later")
	if a := r.want("GET", "/v1/agent/connect/ca/leaf/web", "", 429,
		"Rate limit reached, try again later"); a.header.Get("Retry-After") != "1" {
		t.Errorf("headers %v", a.header)
	}
	leaves.err = errkind.New(errkind.Unavailable, "no server has signed one")
	r.want("GET", "/v1/agent/connect/ca/leaf/web", "", 500, "no server has signed one")
	off := newRig(t, func(c *Config) { c.Mesh.Leaves, c.Entries.ConnectOff = leaves, true })
	for path, method := range map[string]string{"/v1/agent/connect/ca/leaf/web": "GET",
		"/v1/agent/connect/authorize": "POST", "/v1/agent/connect/ca/roots": "GET",
		"/v1/connect/ca/roots": "GET", "/v1/connect/ca/configuration": "GET"} {
		off.want(method, path, "{}", 500, "Connect must be enabled in order to use this endpoint")
	}
	off.want("PUT", "/v1/connect/ca/configuration", "{}", 500, "Connect must be enabled in order to use this endpoint")
}

// authorizeCases are what the intentions of intended decide.
var authorizeCases = []struct{ source, target, want string }{
	{"web", "db",
		`{"Authorized":true,"Reason":"Matched intention: default/web =\u003e default/db (Precedence: 9, Action: ALLOW)"}`},
	{"evil", "db",
		`{"Authorized":false,"Reason":"Matched intention: default/* =\u003e default/db (Precedence: 8, Action: DENY)"}`},
	{"web", "http",
		`{"Authorized":false,"Reason":"Matched intention: default/web =\u003e default/http (Precedence: 9, Permissions: 1)"}`},
	{"friend", "other",
		`{"Authorized":true,"Reason":"Matched intention: default/friend =\u003e default/* (Precedence: 6, Action: ALLOW)"}`},
	{"web", "other", `{"Authorized":true,"Reason":"Default behavior configured by ACLs"}`},
}

// intended puts the cluster's identity and intentions into a rig.
func intended(t *testing.T, r *rig) {
	t.Helper()
	_, ok, err := r.store.SetRecords(t.Context(), catalog.RecordOp{Verb: catalog.RecordSet,
		Record: catalog.Record{Kind: catalog.RecordSystem, Key: catalog.ClusterIDKey, Value: []byte("id")}})
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	r.want("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"http","Protocol":"http"}`, 200, "true")
	for pair, body := range map[string]string{"source=web&destination=db": `{"Action":"allow"}`,
		"source=*&destination=db":       `{"Action":"deny"}`,
		"source=web&destination=http":   `{"Permissions":[{"Action":"allow","HTTP":{"PathPrefix":"/"}}]}`,
		"source=friend&destination=%2A": `{"Action":"allow"}`} {
		r.want("PUT", "/v1/connect/intentions/exact?"+pair, body, 200, "true")
	}
}

func authorizeBody(source, target string) string {
	return `{"Target":"` + target + `","ClientCertURI":"spiffe://id.consul/ns/default/dc/dc1/svc/` + source +
		`","ClientCertSerial":"aa"}`
}

func TestAgentAuthorize(t *testing.T) {
	r := newRig(t, nil)
	intended(t, r)
	for _, c := range authorizeCases {
		r.want("POST", "/v1/agent/connect/authorize", authorizeBody(c.source, c.target), 200, c.want)
	}
	r.want("POST", "/v1/agent/connect/authorize", strings.Replace(authorizeBody("web", "db"), "id.consul", "other.consul",
		1), 200,
		`{"Authorized":false,"Reason":"Identity from an external trust domain: other.consul"}`)
	for body, text := range map[string]string{
		`{"ClientCertURI":"spiffe://id.consul/ns/default/dc/dc1/svc/web"}`: "Target service must be specified",
		`{"Target":"db","ClientCertURI":"web"}`: "ClientCertURI not a valid " +
			"Connect identifier",
		`{"Target":"db","ClientCertURI":"spiffe://id.consul/ns/x/dc/dc1/svc/web"}`: "ClientCertURI not a valid " +
			"Connect identifier",
		`{"Target":"db","ClientCertURI":"spiffe://id.consul/ns/default/dc/dc1/svc/"}`: "ClientCertURI not a valid " +
			"Connect identifier",
		`{"Target":"db","ClientCertURI":"https://id.consul/ns/default/dc/dc1/svc/web"}`: "ClientCertURI not a valid " +
			"Connect identifier",
		`{"Target":"db","ClientCertURI":"spiffe://id.consul"}`: "ClientCertURI not a valid Service " +
			"identifier",
		`{"Target":"db","ClientCertURI":"spiffe://id.consul/agent/client/dc/a/id/b"}`: "ClientCertURI not a valid Service " +
			"identifier",
	} {
		r.want("POST", "/v1/agent/connect/authorize", body, 400, text)
	}
	r.want("POST", "/v1/agent/connect/authorize", "{", 400, "*")
	deny := newRig(t, func(c *Config) { c.DefaultACLPolicy = "deny" })
	intended(t, deny)
	deny.want("POST", "/v1/agent/connect/authorize", authorizeBody("web", "other"), 200,
		`{"Authorized":false,"Reason":"Default behavior configured by ACLs"}`)
	own := newRig(t, func(c *Config) { c.Entries.DefaultIntentionPolicy = "deny" })
	intended(t, own)
	own.want("POST", "/v1/agent/connect/authorize", authorizeBody("web", "other"), 200,
		`{"Authorized":false,"Reason":"Default intention policy"}`)
	own.want("GET", "/v1/connect/intentions/check?source=web&destination=other", "", 200, `{"Allowed":false}`)
}

// On a client agent the same decisions are made from what it keeps, also while no server answers.
func TestAgentAuthorizeOnAClientAgent(t *testing.T) {
	agent, server, link := clientAgent(t)
	intended(t, server)
	for range 2 {
		for _, c := range authorizeCases {
			agent.want("POST", "/v1/agent/connect/authorize", authorizeBody(c.source, c.target), 200, c.want)
		}
		link.mu.Lock()
		link.down = true
		link.mu.Unlock()
	}
	agent.want("POST", "/v1/agent/connect/authorize", authorizeBody("web", "never-asked-for"), 500, "*")
}

// The roots are kept by a client agent, whoever asks and without being told to.
func TestClientAgentKeepsRoots(t *testing.T) {
	agent, server, link := clientAgent(t)
	ca := keptCA{server.store}
	if err := ca.put(t.Context(), "root/a", `{"ID":"a","Active":true}`); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		agent.want("GET", "/v1/agent/connect/ca/roots", "", 200, "*")
	}
	if n := link.count(); n > 2 {
		t.Errorf("%d requests went to the server", n)
	}
	if err := ca.put(t.Context(), "root/b", `{"ID":"b"}`); err != nil {
		t.Fatal(err)
	}
	until(t, "the change to arrive", func() bool {
		return strings.Contains(agent.do("GET", "/v1/agent/connect/ca/roots", "").body, `"ID":"b"`)
	})
}
