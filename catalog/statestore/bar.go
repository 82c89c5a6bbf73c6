package statestore

import (
	"encoding/json"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// BarOps are the operations that put up a bar, also in place of others for the same name or ID.
func BarOps(s *State, b *catalog.NodeBar) ([]catalog.RecordOp, error) {
	value, err := json.Marshal(b)
	if err != nil {
		return nil, errkind.E(errkind.Internal, "encode bar of node "+b.Node, err)
	}
	// The ID is the record's second key: a node is found by either.
	next := catalog.Record{Kind: catalog.RecordNodeBar, Key: lower(b.Node), Name: lower(b.ID), Value: value}
	var ops []catalog.RecordOp
	if old := s.RecordByName(catalog.RecordNodeBar, next.Name); old != nil && old.Key != next.Key {
		ops = append(ops, catalog.RecordOp{Verb: catalog.RecordDelete, Record: catalog.Record{Kind: catalog.RecordNodeBar,
			Key: old.Key}})
	}
	return append(ops, catalog.RecordOp{Verb: catalog.RecordSet, Record: next}), nil
}

// NodeBarOf is the record of the bar that keeps a node of this name or ID out, or nil.
func (s *State) NodeBarOf(name, id string) *catalog.Record {
	if s.records.indexes[catalog.RecordNodeBar] == 0 { // the usual case costs nothing
		return nil
	}
	if r := s.Record(catalog.RecordNodeBar, lower(name)); r != nil {
		return r
	}
	return s.RecordByName(catalog.RecordNodeBar, lower(id))
}

// refuseBarred refuses a node that was removed by force.
func (d *draft) refuseBarred(key string, n *catalog.Node) error {
	if d.t.records.indexes[catalog.RecordNodeBar] == 0 {
		return nil
	}
	kind := recordKey(catalog.RecordNodeBar)
	item, _ := d.t.records.all.Get(pair[*catalog.Record]{a: kind, b: key})
	if item.v == nil && n.ID != "" {
		item, _ = d.t.records.byName.Get(pair[*catalog.Record]{a: kind, b: lower(n.ID)})
	}
	if item.v == nil {
		return nil
	}
	b, err := catalog.ReadNodeBar(item.v)
	if err != nil {
		return refuse("node %s was removed by force; it may come back with `DELETE /v1/catalog/node/%s/bar`", n.Name,
			item.v.Key)
	}
	return refuse("node %s was removed by force at %s; it may come back after %s or with `DELETE /v1/catalog/node/%s/bar`",
		b.Node, b.Time.UTC().Format(time.RFC3339), b.Until().UTC().Format(time.RFC3339), b.Node)
}
