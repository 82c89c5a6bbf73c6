package statestore

import (
	"iter"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/kit/errkind"
)

// recordKey is the kind as the first key of a table.
func recordKey(kind catalog.RecordKind) string {
	return kindNames[kind%catalog.RecordKinds : kind%catalog.RecordKinds+1]
}

const kindNames = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f" +
	"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"

// records are the records of a State; byTie is by what takes a record with it.
type records struct {
	indexes [catalog.RecordKinds]uint64        // last change of each kind
	all     table.Table[pair[*catalog.Record]] // by kind, key
	byName  table.Table[pair[*catalog.Record]] // by kind, name
	byTie   table.Table[pair[*catalog.Record]] // by "s"+session or "n"+node, kind+key
}

type recordEdits struct {
	indexes            [catalog.RecordKinds]uint64
	all, byName, byTie table.Edit[pair[*catalog.Record]]
}

func emptyRecords() records {
	byPair := table.New(comparePair[*catalog.Record])
	return records{all: byPair, byName: byPair, byTie: byPair}
}

func (t *records) edit() recordEdits {
	return recordEdits{t.indexes, t.all.Edit(), t.byName.Edit(), t.byTie.Edit()}
}

func (t *recordEdits) done() records {
	return records{t.indexes, t.all.Done(), t.byName.Done(), t.byTie.Done()}
}

func (t *recordEdits) fork() {
	t.all.Fork()
	t.byName.Fork()
	t.byTie.Fork()
}

// put adds r to all tables.
func (t *recordEdits) put(r *catalog.Record) {
	kind := recordKey(r.Kind)
	t.all.Set(pair[*catalog.Record]{kind, r.Key, r})
	if r.Name != "" {
		t.byName.Set(pair[*catalog.Record]{kind, r.Name, r})
	}
	for _, tie := range ties(r) {
		t.byTie.Set(pair[*catalog.Record]{tie, kind + r.Key, r})
	}
}

func (t *recordEdits) drop(r *catalog.Record) {
	kind := recordKey(r.Kind)
	t.all.Delete(pair[*catalog.Record]{a: kind, b: r.Key})
	if r.Name != "" {
		t.byName.Delete(pair[*catalog.Record]{a: kind, b: r.Name})
	}
	for _, tie := range ties(r) {
		t.byTie.Delete(pair[*catalog.Record]{a: tie, b: kind + r.Key})
	}
}

// setRecords applies c; OK is false when an index did not compare.
func (d *draft) setRecords(c *catalog.Records) (ok bool, err error) {
	saved := *d
	if len(c.Ops) > 1 {
		d.fork()
	}
	for i := range c.Ops {
		if ok, err = d.recordOp(&c.Ops[i]); !ok || err != nil {
			*d = saved
			return false, err
		}
	}
	return true, nil
}

// recordOp applies one operation; refused, it changes nothing.
func (d *draft) recordOp(op *catalog.RecordOp) (bool, error) {
	in := &op.Record
	if in.Kind == 0 || in.Kind >= catalog.RecordKinds || in.Key == "" {
		return false, errkind.Errorf(errkind.Invalid, "record %d %q: a kind and a key are needed", in.Kind, in.Key)
	}
	item, _ := d.t.records.all.Get(pair[*catalog.Record]{a: recordKey(in.Kind), b: in.Key})
	old := item.v
	switch op.Verb {
	case catalog.RecordCAS, catalog.RecordDeleteCAS, catalog.RecordCheck:
		if (old == nil) != (in.ModifyIndex == 0) || old != nil && old.ModifyIndex != in.ModifyIndex {
			return false, nil
		}
	case catalog.RecordSet, catalog.RecordDelete:
	default:
		return false, errkind.Errorf(errkind.Invalid, "record %q: unknown verb %d", in.Key, op.Verb)
	}
	switch op.Verb {
	case catalog.RecordSet, catalog.RecordCAS:
		return d.setRecord(old, in)
	case catalog.RecordDelete, catalog.RecordDeleteCAS:
		if old != nil {
			d.dropRecord(old)
		}
	}
	return true, nil
}

func (d *draft) setRecord(old, in *catalog.Record) (bool, error) {
	if old != nil && old.Same(in) {
		return true, nil
	}
	if in.Name != "" {
		if other, ok := d.t.records.byName.Get(pair[*catalog.Record]{a: recordKey(in.Kind), b: in.Name}); ok &&
			other.b == in.Name &&
			other.v.Key != in.Key {
			return false, errkind.Errorf(errkind.Conflict, "record name is in use by %q", other.v.Key)
		}
	}
	if in.Session != "" && d.t.sessions.get(in.Session) == nil {
		return false, errkind.Errorf(errkind.Conflict, "invalid session %q", in.Session)
	}
	if in.Node != "" && d.t.nodes.get(lower(in.Node)) == nil {
		return false, errkind.Errorf(errkind.Conflict, "unknown node %q", in.Node)
	}
	next := *in
	next.CreateIndex, next.ModifyIndex = d.at, d.at
	if old != nil {
		next.CreateIndex = old.CreateIndex
		d.t.records.drop(old)
	}
	d.t.records.put(&next)
	d.recordChanged(old, &next)
	return true, nil
}

func (d *draft) dropRecord(old *catalog.Record) {
	d.t.records.drop(old)
	d.recordChanged(old, nil)
}

func (d *draft) recordChanged(before, after *catalog.Record) {
	change := catalog.Change[catalog.Record]{Before: before, After: after, Index: d.at}
	kind := catalog.RecordKind(0)
	if after != nil {
		kind = after.Kind
	} else {
		kind = before.Kind
	}
	d.touch()
	d.t.records.indexes[kind] = d.at
	d.changes.Records = append(d.changes.Records, change)
}

// dropTied removes what a session or a node takes with it.
func (d *draft) dropTied(tie string) {
	var list []*catalog.Record
	for r := range under(d.t.records.byTie.Table, tie) {
		list = append(list, r)
	}
	for _, r := range list {
		d.dropRecord(r)
	}
}

// Record returns the record, or nil.
func (s *records) Record(kind catalog.RecordKind, key string) *catalog.Record {
	item, _ := s.all.Get(pair[*catalog.Record]{a: recordKey(kind), b: key})
	return item.v
}

// RecordByName returns the record whose Name it is, or nil.
func (s *records) RecordByName(kind catalog.RecordKind, name string) *catalog.Record {
	if name == "" {
		return nil
	}
	item, _ := s.byName.Get(pair[*catalog.Record]{a: recordKey(kind), b: name})
	return item.v
}

// Records yields the kind's records whose key begins with prefix, by key.
func (s *records) Records(kind catalog.RecordKind, prefix string) iter.Seq[*catalog.Record] {
	return func(yield func(*catalog.Record) bool) {
		for item := range s.all.From(pair[*catalog.Record]{a: recordKey(kind), b: prefix}) {
			if item.a != recordKey(kind) || !strings.HasPrefix(item.b, prefix) || !yield(item.v) {
				return
			}
		}
	}
}

// RecordsIndex is the index of the kind's last change.
func (s *records) RecordsIndex(kind catalog.RecordKind) uint64 { return floor(s.indexes[kind]) }

// RecordIndex is the record's ModifyIndex, or the kind's index while it is not there.
func (s *records) RecordIndex(kind catalog.RecordKind, key string) uint64 {
	if r := s.Record(kind, key); r != nil {
		return floor(r.ModifyIndex)
	}
	return s.RecordsIndex(kind)
}

// ties are what takes the record with it.
func ties(r *catalog.Record) []string {
	var ties []string
	if r.Session != "" {
		ties = append(ties, "s"+r.Session)
	}
	if r.Node != "" {
		ties = append(ties, "n"+lower(r.Node))
	}
	return ties
}
