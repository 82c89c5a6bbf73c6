package configrows

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/statestore"
)

// agentAuthorize decides on a connection for a service that terminates TLS itself.
func (cf *Rows) agentAuthorize(q *rows.Request) error {
	if err := cf.ConnectOn(); err != nil {
		return err
	}
	var in struct{ Target, ClientCertURI, ClientCertSerial string }
	if err := q.Decode(&in); err != nil {
		return err
	}
	if in.Target == "" {
		return answer.Invalidf("Target service must be specified")
	}
	domain, source, err := certService(in.ClientCertURI)
	if err != nil {
		return err
	}
	if err := q.Allow(acl.Service, in.Target, acl.Write); err != nil {
		return err
	}
	mine, intentions, err := cf.intentionsFor(q, in.Target)
	if err != nil {
		return err
	}
	var out struct {
		Authorized bool
		Reason     string
	}
	if !strings.EqualFold(domain, mine) {
		out.Reason = "Identity from an external trust domain: " + domain
		return q.ReplyValue(out)
	}
	out.Authorized, out.Reason = cf.decide(intentions, source)
	return q.ReplyValue(out)
}

// allowsByDefault tells whether connections that no intention names are allowed.
func (cf *Rows) allowsByDefault() bool {
	return cmp.Or(cf.DefaultIntentionPolicy, cf.DefaultACLPolicy) == entry.Allow
}

// decide is whether the source may connect, by the first intention that matches, else by default.
func (cf *Rows) decide(intentions []wireIntention, source string) (allowed bool, reason string) {
	for _, in := range intentions {
		if (in.SourceName == source || in.SourceName == "*") && in.SourcePeer == "" {
			// What permissions say depends on the request, which nobody sees at this layer: they count as deny.
			return in.Action == entry.Allow && len(in.Permissions) == 0, "Matched intention: " + in.String()
		}
	}
	if cf.DefaultIntentionPolicy != "" {
		return cf.allowsByDefault(), "Default intention policy"
	}
	return cf.allowsByDefault(), "Default behavior configured by ACLs"
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
	return fmt.Sprintf("%s/%s => %s/%s (%sPrecedence: %d, %s)", in.SourceNS, in.SourceName, in.DestinationNS,
		in.DestinationName, id, in.Precedence, does)
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
func (cf *Rows) intentionsFor(q *rows.Request, target string) (domain string, list []wireIntention, err error) {
	if reg := q.Registry; reg != nil {
		st := reg.State()
		return TrustDomain(st), matching(st, "destination", target), nil
	}
	if cf.TrustDomain != nil {
		domain = cf.TrustDomain()
	}
	if domain == "" {
		return "", nil, answer.ErrNoServers
	}
	path := "/v1/connect/intentions/match?by=destination&cached&name=" + url.QueryEscape(target)
	r, err := http.NewRequestWithContext(q.R.Context(), http.MethodGet, path, nil)
	if err != nil {
		return "", nil, err
	}
	r.RequestURI, r.RemoteAddr = path, q.R.RemoteAddr
	if t := q.Token(); t != "" {
		r.Header.Set("X-Consul-Token", t)
	}
	told := &rows.Recorder{}
	q.Self(told, r)
	told.WriteHeader(http.StatusOK)
	if told.Status != http.StatusOK {
		return "", nil, answer.Fail(told.Status, strings.TrimSpace(string(told.Body)))
	}
	byName := map[string][]wireIntention{}
	if err := json.Unmarshal(told.Body, &byName); err != nil {
		return "", nil, err
	}
	return domain, byName[target], nil
}

// JudgeEdge is what the first intention that fits says.
func (cf *Rows) JudgeEdge(st *statestore.State, from, to string) (allowed, perRequest bool, reason string) {
	for _, in := range matching(st, "destination", to) {
		if in.SourcePeer == "" && (in.SourceName == from || in.SourceName == "*") {
			return in.Action == "allow", len(in.Permissions) > 0, "intention " + in.SourceName + " => " + in.DestinationName
		}
	}
	return cf.allowsByDefault(), false, "default policy"
}
