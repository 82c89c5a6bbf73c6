package configrows

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/gateway"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// configRight is the right that an entry of the kind needs.
func configRight(q *rows.Request, kind, name string, l acl.Level) error {
	res, name := Right(kind, name, l)
	if res == acl.NoResource {
		return nil
	}
	return q.Allow(res, name, l)
}

// Right is the resource and the name whose level an entry needs; NoResource is for what everybody may read.
func Right(kind, name string, l acl.Level) (acl.Resource, string) {
	switch kind {
	case entry.ServiceIntentions:
		return acl.Intention, name
	case entry.InlineCertificate, entry.FileSystemCertificate, entry.HTTPRoute, entry.TCPRoute:
		return acl.Mesh, ""
	case entry.APIGateway:
		if l == acl.Write {
			return acl.Mesh, ""
		}
	case entry.ProxyDefaults, entry.Mesh, entry.ExportedServices, entry.JWTProvider:
		if l == acl.Read {
			return acl.NoResource, ""
		}
		return acl.Mesh, ""
	}
	return acl.Service, name
}

// configSee tells whether an entry belongs into a list for this caller.
func configSee(q *rows.Request, kind, name string) bool {
	res, name := Right(kind, name, acl.Read)
	return q.Sees(res, name)
}

// casParam reads ?cas=, which may be missing.
func casParam(q *rows.Request) (index uint64, given bool, err error) {
	v, given := q.Query.Get("cas")
	if !given {
		return 0, false, nil
	}
	if index, err = strconv.ParseUint(v, 10, 64); err != nil {
		return 0, true, answer.Invalidf("error parsing cas value: %v", err)
	}
	return index, true, nil
}

func configSet(q *rows.Request) error {
	raw, err := q.Body(q.Limits.BodyBytes)
	if err != nil {
		return err
	}
	if err := bodies.Sound(raw); err != nil {
		return answer.Invalidf("Request decode failed: %v", err)
	}
	e, err := entry.Decode(raw)
	if err != nil {
		return err
	}
	base := e.Base()
	if err := configRight(q, base.Kind, base.Name, acl.Write); err != nil {
		return err
	}
	index, cas, err := casParam(q)
	if err != nil {
		return err
	}
	value, err := entry.Encode(e)
	if err != nil {
		return err
	}
	op := catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordConfigEntry,
		Key: entry.Key(base.Kind, base.Name), Value: value, ModifyIndex: index}}
	if cas {
		op.Verb = catalog.RecordCAS
	}
	ok, err := configApply(q, base.Kind, base.Name, e, op)
	if err != nil {
		return err
	}
	return q.ReplyBool(ok)
}

// configTries is how often a change is made again because what it was checked against has changed meanwhile.
const configTries = 8

// configApply checks the entries that remain or come (e is nil for a deletion) against
// each other and proposes op, which is refused when one of those changed on the way.
func configApply(q *rows.Request, kind, name string, e entry.Entry, op catalog.RecordOp) (bool, error) {
	// The State to check against must be the leader's newest.
	if _, err := q.Registry.Read(q.R.Context(), registry.Default); err != nil {
		return false, err
	}
	for range configTries {
		st := q.Registry.State()
		ops, err := configGraph(st, kind, name, e)
		if err != nil {
			return false, answer.Fail(http.StatusInternalServerError, err.Error())
		}
		if ok, err := q.SetRecords(append(ops, op)...); ok || err != nil {
			return ok, err
		}
		if now := st.Record(op.Record.Kind, op.Record.Key); casLost(op, now) {
			return false, nil
		}
	}
	return false, errkind.New(errkind.Overloaded, "config entries change too fast")
}

// casLost tells whether it is the operation's own index that did not compare.
func casLost(op catalog.RecordOp, now *catalog.Record) bool {
	if op.Verb != catalog.RecordCAS && op.Verb != catalog.RecordDeleteCAS {
		return false
	}
	return now == nil && op.Record.ModifyIndex != 0 || now != nil && now.ModifyIndex != op.Record.ModifyIndex
}

// configGraph checks all services that the change may break; the operations hold
// what was looked at as it was.
func configGraph(st *statestore.State, kind, name string, e entry.Entry) ([]catalog.RecordOp, error) {
	get := func(k, n string) entry.Entry {
		if k == kind && n == name {
			return e
		}
		return entry.Stored(st, k, n)
	}
	services := []string{name}
	switch kind {
	case entry.ServiceDefaults, entry.ServiceRouter, entry.ServiceSplitter, entry.ServiceResolver:
	case entry.ProxyDefaults:
		services = services[:0]
		for _, k := range []string{entry.ServiceRouter, entry.ServiceSplitter} {
			for r := range st.Records(catalog.RecordConfigEntry, k+"/") {
				services = append(services, strings.TrimPrefix(r.Key, k+"/"))
			}
		}
	default:
		return nil, nil
	}
	var ops []catalog.RecordOp
	held := map[string]bool{entry.Key(kind, name): true}
	for _, service := range services {
		if err := entry.CheckGraph(get, service); err != nil {
			return nil, err
		}
		for _, key := range entry.Related(service) {
			if held[key] {
				continue
			}
			held[key] = true
			r := catalog.Record{Kind: catalog.RecordConfigEntry, Key: key}
			if now := st.Record(r.Kind, key); now != nil {
				r.ModifyIndex = now.ModifyIndex
			}
			ops = append(ops, catalog.RecordOp{Verb: catalog.RecordCheck, Record: r})
		}
	}
	return ops, nil
}

// configPath splits the rest of the path into kind and name.
func configPath(q *rows.Request) (kind, name string, err error) {
	kind, name, _ = strings.Cut(q.Rest, "/")
	if !entry.Known(kind) && kind != entry.BoundAPIGateway {
		return "", "", answer.Invalidf("invalid config entry kind: %s", kind)
	}
	return kind, name, nil
}

func configGet(q *rows.Request) error {
	kind, name, err := configPath(q)
	if err != nil {
		return err
	}
	if kind == entry.BoundAPIGateway {
		return boundGet(q, name)
	}
	if name == "" {
		return configList(q, kind)
	}
	if err := configRight(q, kind, name, acl.Read); err != nil {
		return err
	}
	key := entry.Key(kind, name)
	subject, index := registry.RecordSubject(catalog.RecordConfigEntry, key), func(s *statestore.State) uint64 {
		return s.RecordIndex(catalog.RecordConfigEntry, key)
	}
	if hasStatus(kind) { // it says something of other entries, too
		subject, index = registry.RecordsSubject(catalog.RecordConfigEntry),
			func(s *statestore.State) uint64 { return s.RecordsIndex(catalog.RecordConfigEntry) }
	}
	st, err := q.Read(subject, index)
	if err != nil {
		return err
	}
	r := st.Record(catalog.RecordConfigEntry, key)
	if r == nil {
		return notFound(kind, name)
	}
	return q.ReplyScratch(appendConfigEntry(q.Buffer(), st, kind, r))
}

func notFound(kind, name string) error {
	return answer.Fail(http.StatusNotFound, "Config entry not found for \""+kind+"\" / \""+name+"\"")
}

// hasStatus tells whether entries of the kind are shown with how they stand.
func hasStatus(kind string) bool {
	return kind == entry.APIGateway || kind == entry.HTTPRoute || kind == entry.TCPRoute
}

// appendConfigEntry appends the stored object with its status, where it has one, and its indexes at the end.
func appendConfigEntry(b []byte, st *statestore.State, kind string, r *catalog.Record) []byte {
	b = append(b, r.Value[:len(r.Value)-1]...)
	if (kind == entry.ServiceDefaults || kind == entry.ProxyDefaults) &&
		!bytes.Contains(r.Value, []byte(`"TransparentProxy":`)) {
		b = append(b, `,"TransparentProxy":{}`...) // there in the contract, set or not
	}
	h := fnv.New64a()
	_, _ = h.Write(r.Value) // never fails
	b = strconv.AppendUint(append(b, `,"Hash":`...), h.Sum64(), 10)
	if hasStatus(kind) {
		get := func(kind, name string) entry.Entry { return entry.Stored(st, kind, name) }
		status, err := json.Marshal(gateway.Status(st, get, entry.Stored(st, kind, strings.TrimPrefix(r.Key, kind+"/"))))
		if err == nil {
			b = append(append(b, `,"Status":`...), status...)
		}
	}
	b = append(b, `,"CreateIndex":`...)
	b = strconv.AppendUint(b, r.CreateIndex, 10)
	b = append(b, `,"ModifyIndex":`...)
	b = strconv.AppendUint(b, r.ModifyIndex, 10)
	return append(b, '}')
}

// configSchema is what a filter may ask of an entry of any kind.
var configSchema = filter.NewSchema(map[string]func(*entry.Common) string{
	"Kind": func(e *entry.Common) string { return e.Kind },
	"Name": func(e *entry.Common) string { return e.Name },
}, nil, map[string]func(*entry.Common) map[string]string{
	"Meta": func(e *entry.Common) map[string]string { return e.Meta },
})

func configList(q *rows.Request, kind string) error {
	f, err := q.Filter(configSchema)
	if err != nil {
		return err
	}
	st, err := q.ReadRecords(catalog.RecordConfigEntry)
	if err != nil {
		return err
	}
	list := answer.List{Bytes: q.Buffer()}
	for r := range st.Records(catalog.RecordConfigEntry, kind+"/") {
		if !configSee(q, kind, strings.TrimPrefix(r.Key, kind+"/")) {
			continue
		}
		if f != nil {
			e := entry.Stored(st, kind, strings.TrimPrefix(r.Key, kind+"/"))
			if e == nil || !f.Match(e.Base()) {
				continue
			}
		}
		list.Bytes = appendConfigEntry(list.Next(), st, kind, r)
	}
	return q.ReplyScratch(list.End())
}

func configDelete(q *rows.Request) error {
	kind, name, err := configPath(q)
	if err != nil {
		return err
	}
	if kind == entry.BoundAPIGateway {
		return answer.Invalidf("%v", entry.ErrBound)
	}
	if name == "" {
		return answer.Fail(http.StatusNotFound, "Must provide both a kind and name to delete")
	}
	if err := configRight(q, kind, name, acl.Write); err != nil {
		return err
	}
	index, cas, err := casParam(q)
	if err != nil {
		return err
	}
	op := catalog.RecordOp{Verb: catalog.RecordDelete, Record: catalog.Record{Kind: catalog.RecordConfigEntry,
		Key: entry.Key(kind, name), ModifyIndex: index}}
	if cas {
		if index == 0 {
			return q.ReplyBool(false)
		}
		op.Verb = catalog.RecordDeleteCAS
	}
	ok, err := configApply(q, kind, name, nil, op)
	switch {
	case err != nil:
		return err
	case cas:
		return q.ReplyBool(ok)
	}
	return q.Reply([]byte("{}"))
}
