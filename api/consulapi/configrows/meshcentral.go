package configrows

import (
	"encoding/json"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
)

// CentralPattern is where agents ask for what config entries lay under a proxy.
const CentralPattern = "/v1/internal/mesh/central/"

// meshCentral lays the config entries of the destination under the proxy's registration in the body.
func meshCentral(q *rows.Request) error {
	if q.Rest == "" {
		return rows.ErrNoService
	}
	var proxy json.RawMessage
	if err := q.Decode(&proxy); err != nil {
		return err
	}
	if err := q.Allow(acl.Service, q.Rest, acl.Read); err != nil {
		return err
	}
	st, err := q.ReadRecords(catalog.RecordConfigEntry)
	if err != nil {
		return err
	}
	merged, err := CentralProxy(st, q.Rest, proxy)
	if err != nil {
		return answer.Invalidf("Request decode failed: %v", err)
	}
	return q.ReplyValue(json.RawMessage(merged))
}

// CentralProxy is the merged Proxy, or the registered one where there is no entry that says anything.
func CentralProxy(st *catalog.State, destination string, proxy []byte) ([]byte, error) {
	found := false
	merged, err := entry.Merge(func(kind, name string) entry.Entry {
		e := entry.Stored(st, kind, name)
		found = found || e != nil
		return e
	}, destination, proxy)
	if err != nil || !found {
		return proxy, err
	}
	return merged, nil
}
