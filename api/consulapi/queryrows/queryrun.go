package queryrows

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/query"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// queryRun is how a prepared query is run.
type queryRun struct {
	grant   *acl.Grant
	token   string
	limit   int        // 0: none
	connect bool       // ask for what connects to the service, whatever the query says
	near    string     // ?near=, which comes before the query's own
	agent   string     // the agent that was asked
	source  netip.Addr // who asked; may be invalid
}

// readRun reads the parameters of a run.
func readRun(q *rows.Request) (queryRun, error) {
	run := queryRun{grant: q.Grant, token: q.Token(), near: q.Query.Value("near"), agent: q.Query.Value(rows.AskedParam),
		source: clientAddr(q.R)}
	if run.agent == "" {
		run.agent = q.Identity.NodeName
	}
	if v := q.Query.Value("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return run, answer.Invalidf("Invalid limit value %q: expected a whole number", v)
		}
		run.limit = n
	}
	if v, ok := q.Query.Get("connect"); ok {
		on, err := strconv.ParseBool(v)
		if v != "" && err != nil {
			return run, answer.Invalidf("Invalid value for ?connect")
		}
		run.connect = on || v == ""
	}
	return run, nil
}

// params are the run's parameters for another datacenter.
func (r *queryRun) params(definition string) string {
	p := url.Values{"definition": {definition}}
	if r.limit > 0 {
		p.Set("limit", strconv.Itoa(r.limit))
	}
	if r.connect {
		p.Set("connect", "true")
	}
	return p.Encode()
}

// runQuery picks instances here, or where the query fails over to.
func (qr *Rows) runQuery(ctx context.Context, run queryRun, st *statestore.State, d *query.Definition) (queryAnswer,
	error) {
	if run.connect {
		d.Service.Connect = true
	}
	grant, err := qr.queryGrant(ctx, &run, d)
	if err != nil {
		return queryAnswer{}, err
	}
	see := func(peer string) []query.Instance { return qr.pick(st, d, peer, grant) }
	picked, failovers := see(d.Service.Peer), 0
	if len(picked) == 0 {
		token := run.token
		if d.Token != "" {
			token = d.Token
		}
		found, err := qr.failover(ctx, &run, token, d, see)
		if err != nil || len(found.picked) == 0 {
			return found, err
		}
		picked, failovers = found.picked, found.failovers
	}
	rand.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
	sortPicked(st, run.nearNode(st, &d.Service), picked)
	if run.limit > 0 && len(picked) > run.limit {
		picked = picked[:run.limit]
	}
	return queryAnswer{picked: picked, failovers: failovers}, nil
}

// pick is what a query means of this cluster, or of a peer's services, as far as grant sees it.
func (qr *Rows) pick(st *statestore.State, d *query.Definition, peer string, grant *acl.Grant) []query.Instance {
	if peer != "" {
		st = peering.Imported(st, peer, d.Service.Service)
	}
	picked := d.Service.Pick(st)
	if qr.Open {
		return picked
	}
	return slices.DeleteFunc(picked, func(i query.Instance) bool {
		return grant.Check(acl.Service, i.Service.Name, acl.Read) != nil ||
			grant.Check(acl.Node, i.Node.Name, acl.Read) != nil
	})
}

// nearIP stands for the node that has the asker's address.
const nearIP = "_ip"

// nearNode is the node that instances are sorted by, "" for none.
func (r *queryRun) nearNode(st *statestore.State, s *query.Service) string {
	near := cmp.Or(r.near, s.Near)
	switch near {
	case rows.NearAgent:
		return r.agent
	case nearIP:
		for n := range st.Nodes() {
			if at, err := netip.ParseAddr(n.Address); err == nil && at.Unmap() == r.source {
				return n.Name
			}
		}
		return ""
	}
	return near
}

// sortPicked puts the instances nearest to a node first. Those of unknown distance come last.
func sortPicked(st *statestore.State, near string, picked []query.Instance) {
	if near == "" {
		return
	}
	if distance := rows.Distances(st, near); distance != nil {
		slices.SortStableFunc(picked,
			func(a, b query.Instance) int { return cmp.Compare(distance(a.Node.Name), distance(b.Node.Name)) })
	}
}

// clientAddr is where a request came from, also over an agent.
func clientAddr(r *http.Request) netip.Addr {
	host, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return host.Addr().Unmap()
}

// QueryResult is the outcome of a prepared query for DNS.
type QueryResult struct {
	Datacenter string // where the instances are
	Instances  []query.Instance
	TTL        time.Duration // negative: the query has none of its own
}

// QueryCall is a query that DNS asks for: in token's name, for a client of that agent ("" for this process) on
// that network, if valid.
type QueryCall struct {
	Name, Token, Agent string
	Source             netip.Addr
}

// ExecuteQuery runs a query, on a server. The error is of kind
// NotFound when there is no such query, Denied when the token is not known.
func (qr *Rows) ExecuteQuery(ctx context.Context, call QueryCall) (QueryResult, error) {
	_, st := qr.Now()
	d, err := query.Find(st, call.Name)
	if err != nil {
		return QueryResult{}, err
	}
	if d == nil {
		return QueryResult{}, errkind.New(errkind.NotFound, "Query not found")
	}
	run := queryRun{token: call.Token, grant: acl.Unlimited, agent: call.Agent, source: call.Source}
	if run.agent == "" {
		run.agent = qr.Identity.NodeName
	}
	if !qr.Open {
		if run.grant, err = qr.Authorizer.Grant(ctx, call.Token); err != nil {
			return QueryResult{}, err
		}
	}
	got, err := qr.runQuery(ctx, run, st, d)
	if err != nil {
		return QueryResult{}, err
	}
	if got.raw != nil {
		return remoteInstances(d.TTL(), got.raw)
	}
	return QueryResult{qr.Identity.Datacenter, got.picked, d.TTL()}, nil
}

// remoteInstances reads what DNS needs of another datacenter's answer.
func remoteInstances(ttl time.Duration, raw []byte) (QueryResult, error) {
	var got struct {
		Datacenter string
		Nodes      []struct {
			Node    bodies.Node
			Service bodies.Service
			Checks  []struct{ Status string }
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		return QueryResult{}, errkind.E(errkind.Unavailable, "answer from another datacenter", err)
	}
	result := QueryResult{Datacenter: got.Datacenter, TTL: ttl}
	for i := range got.Nodes {
		n := &got.Nodes[i]
		service, err := n.Service.Catalog(n.Node.Node)
		if err != nil {
			return QueryResult{}, err
		}
		in := query.Instance{Node: n.Node.Catalog(), Service: service}
		for _, c := range n.Checks {
			status, _ := catalog.ParseHealth(strings.ToLower(c.Status))
			in.Status = max(in.Status, status)
		}
		result.Instances = append(result.Instances, in)
	}
	return result, nil
}
