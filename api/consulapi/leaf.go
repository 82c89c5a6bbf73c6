package consulapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
)

// CALeaf is a service's certificate with its key, as the contract has it.
type CALeaf struct {
	SerialNumber             string
	CertPEM                  string
	PrivateKeyPEM            string
	Service                  string
	ServiceURI               string
	ValidAfter, ValidBefore  time.Time
	CreateIndex, ModifyIndex uint64

	Received time.Time `json:"-"` // when this host got it
}

// Leaves keeps the leaf certificates of this host.
type Leaves interface {
	// Leaf returns the service's certificate; with an index one that differs from it, or after wait the one there is.
	// hit tells that it was there already. Kind Overloaded: the servers sign no more of them right now.
	Leaf(ctx context.Context, service, token string, index uint64, wait time.Duration) (leaf CALeaf, hit bool, err error)
	// TrustDomain is "" while it is not known.
	TrustDomain() string
}

var leafRoutes = []route{
	{"GET", "/v1/agent/connect/ca/leaf/", own, acl.Service, agentLeaf},
	{"POST", "/v1/agent/connect/authorize", own, acl.Service, agentAuthorize},
}

var errConnectOff = answer.Fail(http.StatusInternalServerError, "Connect must be enabled in order to use this endpoint")

// mesh is nil where this process serves the mesh's rows.
func (q *request) mesh() error {
	if q.api.cfg.ConnectOff {
		return errConnectOff
	}
	return nil
}

// agentLeaf answers with a certificate and its key, to who may write the service.
func agentLeaf(q *request) error {
	if err := q.mesh(); err != nil {
		return err
	}
	if q.rest == "" {
		return answer.Invalidf("Missing service name")
	}
	if err := q.allow(acl.Service, q.rest, acl.Write); err != nil {
		return err
	}
	if q.api.cfg.Leaves == nil {
		return answer.ErrNoServers
	}
	block, err := httpx.ParseBlocking(q.q, q.api.cfg.Wait)
	if err != nil {
		return err
	}
	if block.Index > 0 {
		q.api.blocking.Add(1)
		defer q.api.blocking.Add(-1)
	}
	leaf, hit, err := q.api.cfg.Leaves.Leaf(q.r.Context(), q.rest, q.token(), block.Index, httpx.Jitter(block.Wait))
	if errkind.Is(err, errkind.Overloaded) {
		return &answer.Error{Status: http.StatusTooManyRequests, Text: errkind.Text(err), Retry: true}
	}
	if err != nil {
		return err
	}
	if err := q.authorizeAgain(); err != nil {
		return err
	}
	h := q.w.Header()
	h["X-Consul-Index"] = indexHeader(leaf.ModifyIndex)
	h["X-Consul-Knownleader"], h["X-Consul-Lastcontact"] = valueTrue, valueZero
	cacheHeaders(h, hit, q.api.cfg.Clock.Now().Sub(leaf.Received))
	return q.replyValue(leaf)
}

// agentAuthorize decides on a connection for a service that terminates TLS itself.
func agentAuthorize(q *request) error {
	if err := q.mesh(); err != nil {
		return err
	}
	var in struct{ Target, ClientCertURI, ClientCertSerial string }
	if err := q.decode(&in); err != nil {
		return err
	}
	if in.Target == "" {
		return answer.Invalidf("Target service must be specified")
	}
	domain, source, err := certService(in.ClientCertURI)
	if err != nil {
		return err
	}
	if err := q.allow(acl.Service, in.Target, acl.Write); err != nil {
		return err
	}
	mine, intentions, err := q.intentionsFor(in.Target)
	if err != nil {
		return err
	}
	var out struct {
		Authorized bool
		Reason     string
	}
	if !strings.EqualFold(domain, mine) {
		out.Reason = "Identity from an external trust domain: " + domain
		return q.replyValue(out)
	}
	out.Authorized, out.Reason = q.api.decide(intentions, source)
	return q.replyValue(out)
}

// allowsByDefault tells whether connections that no intention names are allowed.
func (a *API) allowsByDefault() bool {
	return cmp.Or(a.cfg.DefaultIntentionPolicy, a.cfg.DefaultACLPolicy) == entry.Allow
}

// decide is whether the source may connect, by the first intention that matches, else by default.
func (a *API) decide(intentions []wireIntention, source string) (allowed bool, reason string) {
	for _, in := range intentions {
		if (in.SourceName == source || in.SourceName == "*") && in.SourcePeer == "" {
			// What permissions say depends on the request, which nobody sees at this layer: they count as deny.
			return in.Action == entry.Allow && len(in.Permissions) == 0, "Matched intention: " + in.String()
		}
	}
	if a.cfg.DefaultIntentionPolicy != "" {
		return a.allowsByDefault(), "Default intention policy"
	}
	return a.allowsByDefault(), "Default behavior configured by ACLs"
}

// String is the intention as reasons name it.
func (in *wireIntention) String() string {
	id, does := "", "Action: "+strings.ToUpper(in.Action)
	if in.ID != "" {
		id = "ID: " + in.ID + ", "
	}
	if n := len(in.Permissions); n > 0 {
		does = fmt.Sprintf("Permissions: %d", n)
	}
	return fmt.Sprintf("%s/%s => %s/%s (%sPrecedence: %d, %s)", in.SourceNS, in.SourceName, in.DestinationNS, in.DestinationName, id, in.Precedence, does)
}

// certService reads the identity of a client's certificate: its trust domain and service.
func certService(uri string) (domain, service string, err error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "spiffe" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", "", answer.Invalidf("ClientCertURI not a valid Connect identifier")
	}
	parts := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for i, p := range parts {
		if parts[i], err = url.PathUnescape(p); err != nil || p == "" && u.Path != "" {
			return "", "", answer.Invalidf("ClientCertURI not a valid Connect identifier")
		}
	}
	switch {
	case len(parts) == 6 && parts[0] == "ns" && parts[1] == "default" && parts[2] == "dc" && parts[4] == "svc":
		return u.Host, parts[5], nil
	case parts[0] == "agent" || parts[0] == "gateway" || parts[0] == "":
		return "", "", answer.Invalidf("ClientCertURI not a valid Service identifier")
	}
	return "", "", answer.Invalidf("ClientCertURI not a valid Connect identifier")
}

// intentionsFor are the trust domain and the intentions about a destination: from the State on a server,
// from the agent's cache on a client agent, where a connection must not cost a question to a server.
func (q *request) intentionsFor(target string) (domain string, list []wireIntention, err error) {
	if reg := q.api.cfg.Registry; reg != nil {
		st := reg.State()
		return TrustDomain(st), matching(st, "destination", target), nil
	}
	if q.api.cfg.Leaves != nil {
		domain = q.api.cfg.Leaves.TrustDomain()
	}
	if domain == "" {
		return "", nil, answer.ErrNoServers
	}
	path := "/v1/connect/intentions/match?by=destination&cached&name=" + url.QueryEscape(target)
	r, err := http.NewRequestWithContext(q.r.Context(), http.MethodGet, path, nil)
	if err != nil {
		return "", nil, err
	}
	r.RequestURI, r.RemoteAddr = path, q.r.RemoteAddr
	if t := q.token(); t != "" {
		r.Header.Set("X-Consul-Token", t)
	}
	told := &capture{kept: kept{header: http.Header{}}}
	q.api.ServeHTTP(told, r)
	told.WriteHeader(http.StatusOK)
	if told.status != http.StatusOK {
		return "", nil, answer.Fail(told.status, strings.TrimSpace(string(told.body)))
	}
	byName := map[string][]wireIntention{}
	if err := json.Unmarshal(told.body, &byName); err != nil {
		return "", nil, err
	}
	return domain, byName[target], nil
}
