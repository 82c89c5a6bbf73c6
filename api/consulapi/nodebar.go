package consulapi

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

const (
	nodePattern = "/v1/catalog/node/"
	// defaultHold is how long a node that was removed by force stays out.
	defaultHold = time.Hour
	minHold     = time.Second
)

// hold reads ?hold=30m.
func (q *request) hold() (time.Duration, error) {
	text, _ := q.q.Get("hold")
	if text == "" {
		return defaultHold, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < minHold {
		return 0, answer.Invalidf("Invalid hold %q: give a duration of at least %s, as 30m", text, minHold)
	}
	return d, nil
}

// catalogNodeDelete removes a node by force (x?force), or lets it back (x/bar).
func catalogNodeDelete(q *request) error {
	if name, ok := strings.CutSuffix(q.rest, "/bar"); ok {
		return q.liftBar(name)
	}
	if q.rest == "" {
		return answer.Invalidf("Missing node name")
	}
	if q.q == "" || !q.q.Has("force") {
		return answer.Invalidf("force is missing: %s%s?force removes the node and keeps it out; to take out what may register again, use /v1/catalog/deregister", nodePattern, q.rest)
	}
	return q.removeByForce(q.rest)
}

// removeByForce bars a node and then removes it with its services, checks and sessions. The
// bar comes first: what registers between the two is refused. Asked again it does the rest.
func (q *request) removeByForce(name string) error {
	hold, err := q.hold()
	if err != nil {
		return err
	}
	cmd := &catalog.Deregister{Node: name}
	if !q.api.open {
		if err := grants.MayDeregister(q.grant, q.api.cfg.Registry.State(), cmd); err != nil {
			return err
		}
	}
	if strings.EqualFold(name, q.api.cfg.Identity.NodeName) && q.api.leads(q.r.Context()) {
		return answer.Invalidf("node %s leads the cluster and is not removed by force: stop it, or let it go with PUT /v1/agent/leave", name)
	}
	q.api.requests.Add(1)
	st, bar := q.api.cfg.Registry.State(), catalog.NodeBar{Node: name, Time: q.api.cfg.Clock.Now().UTC(), Hold: hold}
	if n := st.Node(name); n != nil {
		bar.Node, bar.ID = n.Name, n.ID
	} else if old := st.Record(catalog.RecordNodeBar, strings.ToLower(name)); old != nil {
		bar.ID = old.Name // asked again
		if b, err := catalog.ReadNodeBar(old); err == nil {
			bar.Node = b.Node
		}
	}
	ops, err := bar.Ops(st)
	if err != nil {
		return err
	}
	removed := st.Node(name) != nil
	for _, c := range []catalog.Command{&catalog.Records{Ops: ops}, cmd} {
		res, err := q.api.cfg.Registry.Apply(q.r.Context(), c)
		if err != nil {
			return err
		}
		if res.Err != nil {
			return answer.Refused(res.Err)
		}
	}
	out, err := json.Marshal(struct {
		Node    string
		Removed bool
		Until   time.Time
	}{bar.Node, removed, bar.Until()})
	if err != nil {
		return err
	}
	return q.reply(out)
}

func (q *request) liftBar(name string) error {
	if err := q.allow(acl.Node, name, acl.Write); err != nil {
		return err
	}
	st := q.api.cfg.Registry.State()
	rec := st.Record(catalog.RecordNodeBar, strings.ToLower(name))
	if rec == nil {
		if !q.api.leads(q.r.Context()) {
			return errkind.New(errkind.NotLeader, "this server is not the leader")
		}
		return answer.Fail(http.StatusNotFound, "node "+name+" is not barred")
	}
	return q.applyTrue(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordDelete, Record: catalog.Record{Kind: rec.Kind, Key: rec.Key}}}})
}

// catalogNodePut renews the lease of a node (x/renew).
func catalogNodePut(q *request) error {
	name, ok := strings.CutSuffix(q.rest, "/renew")
	if !ok || name == "" {
		return answer.Invalidf("unknown path: %sNODE/renew renews the lease of a node", nodePattern)
	}
	if err := q.allow(acl.Node, name, acl.Write); err != nil {
		return err
	}
	n, err := q.api.cfg.Registry.RenewLease(q.r.Context(), name)
	if err != nil {
		return err
	}
	return q.reply(answer.AppendNode(q.buffer(), n))
}

// forceLeaveNode does, on the leader, what DELETE /v1/catalog/node/x?force does.
func (q *request) forceLeaveNode() error {
	if q.api.cfg.Registry != nil && q.api.leads(q.r.Context()) {
		return q.removeByForce(q.rest)
	}
	query := "force"
	if hold, _ := q.q.Get("hold"); hold != "" {
		query += "&hold=" + url.QueryEscape(hold)
	}
	return q.forwardDelete(&url.URL{Path: nodePattern + q.rest, RawQuery: query})
}

// forceLeavePeer takes a server that is gone out of the Raft groups: gossip alone takes nobody's vote.
func (q *request) forceLeavePeer(id string) error {
	if q.api.cfg.Registry != nil && q.api.leads(q.r.Context()) {
		op, err := q.operator(acl.Write)
		if err != nil {
			return err
		}
		return q.removePeer(op, PeerRemoval{ID: id, Token: q.token()}, true)
	}
	query := url.Values{"id": {id}, "if-present": {""}}
	return q.forwardDelete(&url.URL{Path: "/v1/operator/raft/peer", RawQuery: query.Encode()})
}

// forwardDelete has the leader do what belongs to the request and is not done here.
func (q *request) forwardDelete(at *url.URL) error {
	token := q.token()
	q.r = q.r.Clone(q.r.Context())
	q.r.Method = http.MethodDelete
	q.r.URL = at
	q.r.RequestURI = q.r.URL.RequestURI()
	if token != "" {
		q.r.Header.Set("X-Consul-Token", token)
	}
	return q.forward(q.api.cfg.Registry != nil)
}

// catalogNodeBars lists the nodes that were removed by force and may not come back yet.
func catalogNodeBars(q *request) error {
	st, err := q.read(registry.RecordsSubject(catalog.RecordNodeBar), func(s *catalog.State) uint64 { return s.RecordsIndex(catalog.RecordNodeBar) })
	if err != nil {
		return err
	}
	type row struct {
		Node, ID    string
		Time, Until time.Time
	}
	out := []row{}
	for r := range st.Records(catalog.RecordNodeBar, "") {
		b, err := catalog.ReadNodeBar(r)
		if err != nil {
			b = &catalog.NodeBar{Node: r.Key, ID: r.Name} // it bars nevertheless, until somebody lifts it
		}
		if q.sees(acl.Node, b.Node) {
			out = append(out, row{b.Node, b.ID, b.Time, b.Until()})
		}
	}
	q.tellFiltered()
	return q.replyValue(out)
}
