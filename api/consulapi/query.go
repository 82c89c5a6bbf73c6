package consulapi

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
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/query"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

var queryRoutes = []route{
	{"GET", "/v1/query", read, acl.Query, queryList},
	{"POST", "/v1/query", write, acl.Query, queryCreate},
	{"GET", "/v1/query/", read, acl.Query, queryGet},
	{"PUT", "/v1/query/", write, acl.Query, queryUpdate},
	{"DELETE", "/v1/query/", write, acl.Query, queryDelete},
	{"GET", "/v1/internal/query/execute", read, acl.Query, queryExecuteGiven},
}

var errQueryNotFound = answer.Fail(http.StatusNotFound, "Query not found")

// wireQuery is a definition with its indexes.
type wireQuery struct {
	query.Definition
	CreateIndex, ModifyIndex uint64
}

// definition reads and checks the body.
func (q *request) definition() (*query.Definition, error) {
	d := &query.Definition{}
	if err := q.decode(d); err != nil {
		return nil, err
	}
	d.Template.Type = strings.TrimSpace(d.Template.Type)
	return d, nil
}

// queryRight asks for a right on a query's name; one without a name, which nobody can
// find but by its ID, is anybody's.
func (q *request) queryRight(d *query.Definition, l acl.Level) error {
	if d.Name == "" && !d.IsTemplate() {
		return nil
	}
	return q.allow(acl.Query, d.Name, l)
}

func queryCreate(q *request) error {
	d, err := q.definition()
	if err != nil {
		return err
	}
	if d.ID != "" {
		return answer.Invalidf("ID must be empty when creating a new prepared query")
	}
	if err := q.queryRight(d, acl.Write); err != nil {
		return err
	}
	d.ID = uuid.NewString()
	if err := q.storeQuery(d, nil); err != nil {
		return err
	}
	return q.replyValue(struct{ ID string }{d.ID})
}

// storeQuery writes d where old stands, or where nothing does.
func (q *request) storeQuery(d *query.Definition, old *catalog.Record) error {
	if err := d.Validate(); err != nil {
		return answer.Invalidf("%v", err)
	}
	value, err := d.Encode()
	if err != nil {
		return err
	}
	op := catalog.RecordOp{Verb: catalog.RecordCAS, Record: catalog.Record{Kind: catalog.RecordQuery, Key: d.ID, Name: d.RecordName(), Value: value, Session: d.Session}}
	if old != nil {
		op.Record.ModifyIndex = old.ModifyIndex
	}
	result, err := q.api.cfg.Registry.Apply(q.r.Context(), &catalog.Records{Ops: []catalog.RecordOp{op}})
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
func (q *request) storedQuery() (*catalog.Record, *query.Definition, error) {
	if _, err := q.api.cfg.Registry.Read(q.r.Context(), registry.Default); err != nil {
		return nil, nil, err
	}
	r := q.api.cfg.Registry.State().Record(catalog.RecordQuery, q.rest)
	if r == nil {
		return nil, nil, nil
	}
	d, err := query.Load(r)
	return r, d, err
}

func queryUpdate(q *request) error {
	d, err := q.definition()
	if err != nil {
		return err
	}
	if err := q.queryRight(d, acl.Write); err != nil {
		return err
	}
	old, before, err := q.storedQuery()
	if err != nil {
		return err
	}
	if old == nil {
		return errQueryNotFound
	}
	if err := q.queryRight(before, acl.Write); err != nil {
		return err
	}
	d.ID = q.rest
	if err := q.storeQuery(d, old); err != nil {
		return err
	}
	return q.replyEmpty()
}

func queryDelete(q *request) error {
	old, before, err := q.storedQuery()
	if err != nil {
		return err
	}
	if old == nil {
		if err := q.allow(acl.Query, "", acl.Write); err != nil {
			return err
		}
		return errQueryNotFound
	}
	if err := q.queryRight(before, acl.Write); err != nil {
		return err
	}
	op := catalog.RecordOp{Verb: catalog.RecordDelete, Record: catalog.Record{Kind: catalog.RecordQuery, Key: old.Key}}
	if _, err := q.setRecords(op); err != nil {
		return err
	}
	return q.replyEmpty()
}

// shown is a query as the caller may see it: its token only to those who manage tokens.
func (q *request) shown(r *catalog.Record, d *query.Definition) wireQuery {
	if d.Token != "" && !q.may(acl.ACL, "", acl.Write) {
		d.Token = query.Hidden
		q.hidden = true
	}
	return wireQuery{*d, r.CreateIndex, r.ModifyIndex}
}

func (q *request) may(res acl.Resource, name string, l acl.Level) bool {
	return q.api.open || q.grant.Check(res, name, l) == nil
}

func queryList(q *request) error {
	st, err := q.read(registry.RecordsSubject(catalog.RecordQuery), func(s *catalog.State) uint64 { return s.RecordsIndex(catalog.RecordQuery) })
	if err != nil {
		return err
	}
	list := []wireQuery{}
	for r := range st.Records(catalog.RecordQuery, "") {
		d, err := query.Load(r)
		if err != nil {
			return err
		}
		visible := q.may(acl.Query, d.Name, acl.Read)
		if d.Name == "" && !d.IsTemplate() { // its ID is its secret
			visible = q.may(acl.ACL, "", acl.Write)
		}
		if visible {
			list = append(list, q.shown(r, d))
		} else {
			q.hidden = true
		}
	}
	q.tellFiltered()
	return q.replyValue(list)
}

func queryGet(q *request) error {
	if name, ok := strings.CutSuffix(q.rest, "/execute"); ok {
		return queryExecute(q, name)
	}
	if name, ok := strings.CutSuffix(q.rest, "/explain"); ok {
		return queryExplain(q, name)
	}
	st, err := q.read(registry.RecordSubject(catalog.RecordQuery, q.rest), func(s *catalog.State) uint64 {
		return s.RecordIndex(catalog.RecordQuery, q.rest)
	})
	if err != nil {
		return err
	}
	r := st.Record(catalog.RecordQuery, q.rest)
	if r == nil {
		return errQueryNotFound
	}
	d, err := query.Load(r)
	if err != nil {
		return err
	}
	if err := q.queryRight(d, acl.Read); err != nil {
		return err
	}
	return q.replyValue([]wireQuery{q.shown(r, d)})
}

// findQuery reads in the request's mode and finds the query that a name means.
func (q *request) findQuery(name string) (*catalog.State, *query.Definition, error) {
	st, err := q.read(registry.RecordsSubject(catalog.RecordQuery), func(s *catalog.State) uint64 { return s.RecordsIndex(catalog.RecordQuery) })
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

func queryExplain(q *request, name string) error {
	_, d, err := q.findQuery(name)
	if err != nil {
		return err
	}
	if err := q.queryRight(d, acl.Read); err != nil {
		return err
	}
	if d.Token != "" && !q.may(acl.ACL, "", acl.Write) {
		d.Token = query.Hidden
	}
	return q.replyValue(struct{ Query wireQuery }{wireQuery{Definition: *d}})
}

func queryExecute(q *request, name string) error {
	run, err := q.queryRun()
	if err != nil {
		return err
	}
	st, d, err := q.findQuery(name)
	if err != nil {
		return err
	}
	return q.replyQuery(run, st, d)
}

// queryExecuteGiven runs a definition that came from another datacenter's failover.
func queryExecuteGiven(q *request) error {
	run, err := q.queryRun()
	if err != nil {
		return err
	}
	d := &query.Definition{}
	if err := bodies.Decode([]byte(q.q.Value("definition")), d); err != nil {
		return err
	}
	if err := d.Validate(); err != nil {
		return answer.Invalidf("%v", err)
	}
	st, err := q.read(registry.Subject{Topic: registry.TopicService, Key: strings.ToLower(d.Service.Service)}, func(s *catalog.State) uint64 {
		return s.ServiceIndex(d.Service.Service)
	})
	if err != nil {
		return err
	}
	d.Token = "" // the caller's holds
	d.Service.Failover = query.Failover{}
	return q.replyQuery(run, st, d)
}

// replyQuery runs d and answers.
func (q *request) replyQuery(run queryRun, st *catalog.State, d *query.Definition) error {
	found, err := q.api.runQuery(q.r.Context(), run, st, d)
	if err != nil {
		return err
	}
	if found.raw != nil { // another datacenter's
		return q.reply(found.raw)
	}
	b := answer.StringField(q.buffer(), `{"Service":`, d.Service.Service)
	list := answer.List{Bytes: append(b, `,"Nodes":`...)}
	for i := range found.picked {
		p := &found.picked[i]
		list.Bytes = answer.AppendEntry(list.Next(), p.Node, p.Service, p.Checks)
	}
	b = answer.StringField(list.End(), `,"DNS":{"TTL":`, d.DNS.TTL)
	b = answer.StringField(b, `},"Datacenter":`, q.api.cfg.Identity.Datacenter)
	b = fmt.Appendf(b, `,"Failovers":%d}`, found.failovers)
	return q.replyScratch(b)
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

// failover asks the other datacenters, in order, until one has instances.
func (a *API) failover(ctx context.Context, run *queryRun, token string, d *query.Definition) (queryAnswer, error) {
	tried := 0
	sent := *d
	sent.Token, sent.Session = "", ""
	definition, err := json.Marshal(&sent)
	if err != nil {
		return queryAnswer{}, err
	}
	path := "/v1/internal/query/execute?" + run.params(string(definition))
	for _, dc := range a.failoverOrder(&d.Service.Failover) {
		tried++
		status, body, err := a.ExecuteRemote(ctx, dc, path, token)
		if err != nil || status != http.StatusOK {
			a.cfg.Logger.Warn("a prepared query could not fail over", "query", d.Name, "datacenter", dc, "status", status, "err", err)
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

// failoverOrder lists the datacenters to try: the nearest, then those named, each once and only known ones.
func (a *API) failoverOrder(f *query.Failover) []string {
	own := a.cfg.Identity.Datacenter
	known := slices.DeleteFunc(slices.Clone(a.Known()), func(dc string) bool { return dc == own })
	order := slices.Clone(known[:min(f.NearestN, len(known))])
	add := func(dc string) {
		if dc != own && slices.Contains(known, dc) && !slices.Contains(order, dc) {
			order = append(order, dc)
		}
	}
	for _, dc := range f.Datacenters {
		add(dc)
	}
	for _, t := range f.Targets {
		add(t.Datacenter)
	}
	return order
}

// queryGrant is what a run may see: the query's own token's rights, or the caller's.
func (a *API) queryGrant(ctx context.Context, run *queryRun, d *query.Definition) (*acl.Grant, error) {
	if a.open || d.Token == "" {
		return run.grant, nil
	}
	return a.cfg.Authorizer.Grant(ctx, d.Token)
}
