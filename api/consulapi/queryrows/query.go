package queryrows

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/query"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

var errQueryNotFound = answer.Fail(http.StatusNotFound, "Query not found")

// wireQuery is a definition with its indexes.
type wireQuery struct {
	query.Definition
	CreateIndex, ModifyIndex uint64
}

// definition reads and checks the body.
func definition(q *rows.Request) (*query.Definition, error) {
	d := &query.Definition{}
	if err := q.Decode(d); err != nil {
		return nil, err
	}
	d.Template.Type = strings.TrimSpace(d.Template.Type)
	return d, nil
}

// queryRight asks for a right on a query's name; one without a name, which nobody can
// find but by its ID, is anybody's.
func queryRight(q *rows.Request, d *query.Definition, l acl.Level) error {
	if d.Name == "" && !d.IsTemplate() {
		return nil
	}
	return q.Allow(acl.Query, d.Name, l)
}

func queryCreate(q *rows.Request) error {
	d, err := definition(q)
	if err != nil {
		return err
	}
	if d.ID != "" {
		return answer.Invalidf("ID must be empty when creating a new prepared query")
	}
	if err := queryRight(q, d, acl.Write); err != nil {
		return err
	}
	d.ID = uuid.NewString()
	if err := storeQuery(q, d, nil); err != nil {
		return err
	}
	return q.ReplyValue(struct{ ID string }{d.ID})
}

// storeQuery writes d where old stands, or where nothing does.
func storeQuery(q *rows.Request, d *query.Definition, old *catalog.Record) error {
	if err := d.Validate(); err != nil {
		return answer.Invalidf("%v", err)
	}
	value, err := d.Encode()
	if err != nil {
		return err
	}
	op := catalog.RecordOp{Verb: catalog.RecordCAS, Record: catalog.Record{Kind: catalog.RecordQuery, Key: d.ID,
		Name: d.RecordName(), Value: value, Session: d.Session}}
	if old != nil {
		op.Record.ModifyIndex = old.ModifyIndex
	}
	result, err := q.Registry.Apply(q.R.Context(), &catalog.Records{Ops: []catalog.RecordOp{op}})
	switch {
	case err != nil:
		return err
	case errkind.Is(result.Err, errkind.Conflict) && strings.Contains(errkind.Text(result.Err), "name is in use"):
		return answer.Fail(http.StatusInternalServerError, fmt.Sprintf("name '%s' aliases an existing query name", d.Name))
	case result.Err != nil:
		return answer.Refused(result.Err)
	case !result.OK:
		return errkind.New(errkind.Unavailable, "the query was changed by somebody else meanwhile: read it again")
	}
	return nil
}

// storedQuery finds the query of the path on the leader.
func storedQuery(q *rows.Request) (*catalog.Record, *query.Definition, error) {
	if _, err := q.Registry.Read(q.R.Context(), registry.Default); err != nil {
		return nil, nil, err
	}
	r := q.Registry.State().Record(catalog.RecordQuery, q.Rest)
	if r == nil {
		return nil, nil, nil
	}
	d, err := query.Load(r)
	return r, d, err
}

func queryUpdate(q *rows.Request) error {
	d, err := definition(q)
	if err != nil {
		return err
	}
	if err := queryRight(q, d, acl.Write); err != nil {
		return err
	}
	old, before, err := storedQuery(q)
	if err != nil {
		return err
	}
	if old == nil {
		return errQueryNotFound
	}
	if err := queryRight(q, before, acl.Write); err != nil {
		return err
	}
	d.ID = q.Rest
	if err := storeQuery(q, d, old); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

func queryDelete(q *rows.Request) error {
	old, before, err := storedQuery(q)
	if err != nil {
		return err
	}
	if old == nil {
		if err := q.Allow(acl.Query, "", acl.Write); err != nil {
			return err
		}
		return errQueryNotFound
	}
	if err := queryRight(q, before, acl.Write); err != nil {
		return err
	}
	op := catalog.RecordOp{Verb: catalog.RecordDelete, Record: catalog.Record{Kind: catalog.RecordQuery, Key: old.Key}}
	if _, err := q.SetRecords(op); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

// shown is a query as the caller may see it: its token only to those who manage tokens.
func shown(q *rows.Request, r *catalog.Record, d *query.Definition) wireQuery {
	if d.Token != "" && !q.May(acl.ACL, "", acl.Write) {
		d.Token = query.Hidden
		q.Hidden = true
	}
	return wireQuery{*d, r.CreateIndex, r.ModifyIndex}
}

func queryList(q *rows.Request) error {
	st, err := q.ReadRecords(catalog.RecordQuery)
	if err != nil {
		return err
	}
	list := []wireQuery{}
	for r := range st.Records(catalog.RecordQuery, "") {
		d, err := query.Load(r)
		if err != nil {
			return err
		}
		visible := q.May(acl.Query, d.Name, acl.Read)
		if d.Name == "" && !d.IsTemplate() { // its ID is its secret
			visible = q.May(acl.ACL, "", acl.Write)
		}
		if visible {
			list = append(list, shown(q, r, d))
		} else {
			q.Hidden = true
		}
	}
	q.TellFiltered()
	return q.ReplyValue(list)
}

func (qr *Rows) queryGet(q *rows.Request) error {
	if name, ok := strings.CutSuffix(q.Rest, "/execute"); ok {
		return qr.queryExecute(q, name)
	}
	if name, ok := strings.CutSuffix(q.Rest, "/explain"); ok {
		return queryExplain(q, name)
	}
	st, err := q.ReadRecord(catalog.RecordQuery, q.Rest)
	if err != nil {
		return err
	}
	r := st.Record(catalog.RecordQuery, q.Rest)
	if r == nil {
		return errQueryNotFound
	}
	d, err := query.Load(r)
	if err != nil {
		return err
	}
	if err := queryRight(q, d, acl.Read); err != nil {
		return err
	}
	return q.ReplyValue([]wireQuery{shown(q, r, d)})
}

// findQuery reads in the request's mode and finds the query that a name means.
func findQuery(q *rows.Request, name string) (*statestore.State, *query.Definition, error) {
	st, err := q.ReadRecords(catalog.RecordQuery)
	if err != nil {
		return nil, nil, err
	}
	d, err := query.Find(st, name)
	if err != nil {
		return nil, nil, answer.Fail(http.StatusInternalServerError, err.Error())
	}
	if d == nil {
		return nil, nil, errQueryNotFound
	}
	return st, d, nil
}

func queryExplain(q *rows.Request, name string) error {
	_, d, err := findQuery(q, name)
	if err != nil {
		return err
	}
	if err := queryRight(q, d, acl.Read); err != nil {
		return err
	}
	if d.Token != "" && !q.May(acl.ACL, "", acl.Write) {
		d.Token = query.Hidden
	}
	return q.ReplyValue(struct{ Query wireQuery }{wireQuery{Definition: *d}})
}

func (qr *Rows) queryExecute(q *rows.Request, name string) error {
	run, err := readRun(q)
	if err != nil {
		return err
	}
	st, d, err := findQuery(q, name)
	if err != nil {
		return err
	}
	return qr.replyQuery(q, run, st, d)
}

// queryExecuteGiven runs a definition that came from another datacenter's failover.
func (qr *Rows) queryExecuteGiven(q *rows.Request) error {
	run, err := readRun(q)
	if err != nil {
		return err
	}
	d := &query.Definition{}
	if err := bodies.Decode([]byte(q.Query.Value("definition")), d); err != nil {
		return err
	}
	if err := d.Validate(); err != nil {
		return answer.Invalidf("%v", err)
	}
	st, err := q.Read(registry.Subject{Topic: registry.TopicService, Key: strings.ToLower(d.Service.Service)},
		func(s *statestore.State) uint64 {
			return s.ServiceIndex(d.Service.Service)
		})
	if err != nil {
		return err
	}
	d.Token = "" // the caller's holds
	d.Service.Failover = query.Failover{}
	return qr.replyQuery(q, run, st, d)
}

// replyQuery runs d and answers.
func (qr *Rows) replyQuery(q *rows.Request, run queryRun, st *statestore.State, d *query.Definition) error {
	found, err := qr.runQuery(q.R.Context(), run, st, d)
	if err != nil {
		return err
	}
	if found.raw != nil { // another datacenter's
		return q.Reply(found.raw)
	}
	b := answer.StringField(q.Buffer(), `{"Service":`, d.Service.Service)
	list := answer.List{Bytes: append(b, `,"Nodes":`...)}
	for i := range found.picked {
		p := &found.picked[i]
		list.Bytes = answer.AppendEntry(list.Next(), p.Node, p.Service, p.Checks)
	}
	b = answer.StringField(list.End(), `,"DNS":{"TTL":`, d.DNS.TTL)
	b = answer.StringField(b, `},"Datacenter":`, q.Identity.Datacenter)
	b = fmt.Appendf(b, `,"Failovers":%d`, found.failovers)
	contact, err := q.Contact()
	if err != nil {
		return err
	}
	b = append(append(b, rows.MetaFields(contact)...), '}')
	return q.ReplyScratch(b)
}

// queryAnswer is what a run gave: instances here, or another datacenter's whole answer.
type queryAnswer struct {
	picked    []query.Instance
	raw       []byte
	failovers int
}

// remoteAnswer is the part of another datacenter's answer that failover looks at.
type remoteAnswer struct {
	Service    string
	Nodes      []json.RawMessage
	DNS        query.DNS
	Datacenter string
	Failovers  int
}

// failover asks the other datacenters and peers, in order, until one has instances. A peer's are imported ones: see.
func (qr *Rows) failover(ctx context.Context, run *queryRun, token string, d *query.Definition,
	see func(peer string) []query.Instance) (queryAnswer, error) {
	tried := 0
	sent := *d
	sent.Token, sent.Session = "", ""
	definition, err := json.Marshal(&sent)
	if err != nil {
		return queryAnswer{}, err
	}
	path := "/v1/internal/query/execute?" + run.params(string(definition))
	for _, to := range qr.failoverOrder(&d.Service.Failover) {
		tried++
		if to.Peer != "" {
			if picked := see(to.Peer); len(picked) > 0 {
				return queryAnswer{picked: picked, failovers: tried}, nil
			}
			continue
		}
		dc := to.Datacenter
		status, body, err := qr.ExecuteRemote(ctx, dc, path, token)
		if err != nil || status != http.StatusOK {
			qr.Logger.Warn("a prepared query could not fail over", "query", d.Name, "datacenter", dc, "status", status, "err",
				err)
			continue
		}
		var got remoteAnswer
		if err := json.Unmarshal(body, &got); err != nil || len(got.Nodes) == 0 {
			continue
		}
		got.Failovers, got.DNS = tried, d.DNS
		raw, err := json.Marshal(got)
		return queryAnswer{raw: raw, failovers: tried}, err
	}
	return queryAnswer{failovers: tried}, nil
}

// failoverOrder lists where to look: the nearest datacenters, then those named and the peers, each once. Datacenters
// that are not known are left out.
func (qr *Rows) failoverOrder(f *query.Failover) (order []query.Target) {
	own := qr.Identity.Datacenter
	known := slices.DeleteFunc(slices.Clone(qr.Known()), func(dc string) bool { return dc == own })
	add := func(t query.Target) {
		if t.Peer == "" && !slices.Contains(known, t.Datacenter) || slices.Contains(order, t) {
			return
		}
		order = append(order, t)
	}
	for _, dc := range known[:min(f.NearestN, len(known))] {
		add(query.Target{Datacenter: dc})
	}
	for _, dc := range f.Datacenters {
		add(query.Target{Datacenter: dc})
	}
	for _, t := range f.Targets {
		if t.Peer != "" {
			t.Datacenter = ""
		}
		add(t)
	}
	return order
}

// queryGrant is what a run may see: the query's own token's rights, or the caller's.
func (qr *Rows) queryGrant(ctx context.Context, run *queryRun, d *query.Definition) (*acl.Grant, error) {
	if qr.Open || d.Token == "" {
		return run.grant, nil
	}
	return qr.Authorizer.Grant(ctx, d.Token)
}
