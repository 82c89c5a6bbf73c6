package catalogrows

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

const (
	NodePattern = "/v1/catalog/node/"
	// defaultHold is how long a node that was removed by force stays out.
	defaultHold = time.Hour
	minHold     = time.Second
)

// Hold reads ?hold=30m.
func Hold(q *rows.Request) (time.Duration, error) {
	text, _ := q.Query.Get("hold")
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
func catalogNodeDelete(q *rows.Request) error {
	if name, ok := strings.CutSuffix(q.Rest, "/bar"); ok {
		return liftBar(q, name)
	}
	if q.Rest == "" {
		return answer.Invalidf("Missing node name")
	}
	if q.Query == "" || !q.Query.Has("force") {
		return answer.Invalidf("force is missing: %s%s?force removes the node and keeps it out; to take out what may "+
			"register again, use /v1/catalog/deregister", NodePattern, q.Rest)
	}
	return RemoveByForce(q, q.Rest)
}

// RemoveByForce bars a node and then removes it with its services, checks and sessions. The
// bar comes first: what registers between the two is refused. Asked again it does the rest.
func RemoveByForce(q *rows.Request, name string) error {
	hold, err := Hold(q)
	if err != nil {
		return err
	}
	cmd := &catalog.Deregister{Node: name}
	if !q.Open {
		if err := grants.MayDeregister(q.Grant, q.Registry.State(), cmd); err != nil {
			return err
		}
	}
	if strings.EqualFold(name, q.Identity.NodeName) && q.Leads(q.R.Context()) {
		return answer.Invalidf("node %s leads the cluster and is not removed by force: stop it, or let it go with PUT "+
			"/v1/agent/leave", name)
	}
	q.Requests.Add(1)
	st, bar := q.Registry.State(), catalog.NodeBar{Node: name, Time: q.Clock.Now().UTC(), Hold: hold}
	if n := st.Node(name); n != nil {
		bar.Node, bar.ID = n.Name, n.ID
	} else if old := st.Record(catalog.RecordNodeBar, strings.ToLower(name)); old != nil {
		bar.ID = old.Name // asked again
		if b, err := catalog.ReadNodeBar(old); err == nil {
			bar.Node = b.Node
		}
	}
	ops, err := statestore.BarOps(st, &bar)
	if err != nil {
		return err
	}
	removed := st.Node(name) != nil
	for _, c := range []catalog.Command{&catalog.Records{Ops: ops}, cmd} {
		if _, err := q.Propose(q.R.Context(), c); err != nil {
			return err
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
	return q.Reply(out)
}

func liftBar(q *rows.Request, name string) error {
	if err := q.Allow(acl.Node, name, acl.Write); err != nil {
		return err
	}
	st := q.Registry.State()
	rec := st.Record(catalog.RecordNodeBar, strings.ToLower(name))
	if rec == nil {
		if !q.Leads(q.R.Context()) {
			return errkind.New(errkind.NotLeader, "this server is not the leader")
		}
		return answer.Fail(http.StatusNotFound, "node "+name+" is not barred")
	}
	return applyTrue(q, &catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordDelete,
		Record: catalog.Record{Kind: rec.Kind, Key: rec.Key}}}})
}

// catalogNodePut renews the lease of a node (x/renew).
func (cr *Rows) catalogNodePut(q *rows.Request) error {
	name, ok := strings.CutSuffix(q.Rest, "/renew")
	if !ok || name == "" {
		return answer.Invalidf("unknown path: %sNODE/renew renews the lease of a node", NodePattern)
	}
	if err := q.Allow(acl.Node, name, acl.Write); err != nil {
		return err
	}
	n, err := cr.Leases.RenewLease(q.R.Context(), name)
	if err != nil {
		return err
	}
	return q.Reply(answer.AppendNode(q.Buffer(), n))
}

// catalogNodeBars lists the nodes that were removed by force and may not come back yet.
func catalogNodeBars(q *rows.Request) error {
	st, err := q.ReadRecords(catalog.RecordNodeBar)
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
		if q.Sees(acl.Node, b.Node) {
			out = append(out, row{b.Node, b.ID, b.Time, b.Until()})
		}
	}
	q.TellFiltered()
	return q.ReplyValue(out)
}
