package catalog

import (
	"encoding/json"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// NodeBar keeps a node out of the catalog that was removed by force: while its record is
// there, registrations under its name or its ID are refused. The record alone decides;
// that its hold is over is judged by the leader, which then takes it away.
type NodeBar struct {
	Node string // as it was registered
	ID   string // "" for a node without one
	Time time.Time
	Hold time.Duration
}

// Until is when the bar is to be lifted.
func (b *NodeBar) Until() time.Time { return b.Time.Add(b.Hold) }

// Ops are the operations that put up the bar, also in place of others for the same name or ID.
func (b *NodeBar) Ops(s *State) ([]RecordOp, error) {
	value, err := json.Marshal(b)
	if err != nil {
		return nil, errkind.E(errkind.Internal, "encode bar of node "+b.Node, err)
	}
	// The ID is the record's second key: a node is found by either.
	next := Record{Kind: RecordNodeBar, Key: lower(b.Node), Name: lower(b.ID), Value: value}
	var ops []RecordOp
	if old := s.RecordByName(RecordNodeBar, next.Name); old != nil && old.Key != next.Key {
		ops = append(ops, RecordOp{RecordDelete, Record{Kind: RecordNodeBar, Key: old.Key}})
	}
	return append(ops, RecordOp{RecordSet, next}), nil
}

// ReadNodeBar reads the bar of a record.
func ReadNodeBar(r *Record) (*NodeBar, error) {
	b := &NodeBar{}
	if err := json.Unmarshal(r.Value, b); err != nil {
		return nil, errkind.E(errkind.Corrupt, "bar of node "+r.Key, err)
	}
	return b, nil
}

// NodeBarOf is the record of the bar that keeps a node of this name or ID out, or nil.
func (s *State) NodeBarOf(name, id string) *Record {
	if s.indexes.records[RecordNodeBar] == 0 { // the usual case costs nothing
		return nil
	}
	if r := s.Record(RecordNodeBar, lower(name)); r != nil {
		return r
	}
	return s.RecordByName(RecordNodeBar, lower(id))
}

// refuseBarred refuses a node that was removed by force.
func (d *draft) refuseBarred(key string, n *Node) error {
	if d.ix.records[RecordNodeBar] == 0 {
		return nil
	}
	kind := recordKey(RecordNodeBar)
	item, _ := d.t.records.all.Get(pair[*Record]{a: kind, b: key})
	if item.v == nil && n.ID != "" {
		item, _ = d.t.records.byName.Get(pair[*Record]{a: kind, b: lower(n.ID)})
	}
	if item.v == nil {
		return nil
	}
	b, err := ReadNodeBar(item.v)
	if err != nil {
		return refuse("node %s was removed by force; it may come back with `DELETE /v1/catalog/node/%s/bar`", n.Name,
			item.v.Key)
	}
	return refuse("node %s was removed by force at %s; it may come back after %s or with `DELETE /v1/catalog/node/%s/bar`",
		b.Node, b.Time.UTC().Format(time.RFC3339), b.Until().UTC().Format(time.RFC3339), b.Node)
}
