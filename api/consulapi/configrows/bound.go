package configrows

import (
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/gateway"
)

// boundGet answers what is bound to an api gateway, or with no name to each.
func boundGet(q *rows.Request, name string) error {
	f, err := q.Filter(configSchema)
	if err != nil {
		return err
	}
	if name != "" {
		if err := configRight(q, entry.BoundAPIGateway, name, acl.Read); err != nil {
			return err
		}
	}
	st, err := q.ReadRecords(catalog.RecordConfigEntry)
	if err != nil {
		return err
	}
	get := func(kind, name string) entry.Entry { return entry.Stored(st, kind, name) }
	routes := gateway.RoutesOf(st, get)
	if name != "" {
		b := gateway.BoundOf(st, get, routes, name)
		if b == nil {
			return notFound(entry.BoundAPIGateway, name)
		}
		return q.ReplyScratch(appendBound(q.Buffer(), b))
	}
	list := answer.List{Bytes: q.Buffer()}
	for r := range st.Records(catalog.RecordConfigEntry, entry.APIGateway+"/") {
		name := strings.TrimPrefix(r.Key, entry.APIGateway+"/")
		b := gateway.BoundOf(st, get, routes, name)
		if b == nil || !configSee(q, entry.BoundAPIGateway, name) || f != nil && !f.Match(&b.Common) {
			continue
		}
		list.Bytes = appendBound(list.Next(), b)
	}
	return q.ReplyScratch(list.End())
}

// appendBound appends the object with its hash and its indexes, as those of stored entries have.
func appendBound(b []byte, e *gateway.Bound) []byte {
	value, err := json.Marshal(e)
	if err != nil {
		return append(b, "null"...) // names have a JSON
	}
	h := fnv.New64a()
	_, _ = h.Write(value) // never fails
	b = append(b, value[:len(value)-1]...)
	b = strconv.AppendUint(append(b, `,"Hash":`...), h.Sum64(), 10)
	b = strconv.AppendUint(append(b, `,"CreateIndex":`...), e.Created, 10)
	b = strconv.AppendUint(append(b, `,"ModifyIndex":`...), e.Modified, 10)
	return append(b, '}')
}
