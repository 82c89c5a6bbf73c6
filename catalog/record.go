package catalog

import (
	"iter"
	"strings"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// RecordKind names a set of small replicated objects (tokens, config entries,
// prepared queries ...) whose content the State does not look into. Each kind has
// an index of its own. Values are on disk: they are never reused.
type RecordKind uint8

// The kinds. What Key, Name and Value hold is the business of who writes them.
const (
	RecordACLToken       RecordKind = 1 // Key: accessor; Name: secret
	RecordACLPolicy      RecordKind = 2 // Key: ID; Name: name
	RecordACLRole        RecordKind = 3 // Key: ID; Name: name
	RecordACLAuthMethod  RecordKind = 4 // Key: name
	RecordACLBindingRule RecordKind = 5 // Key: ID
	RecordACLBootstrap   RecordKind = 6 // Key: what was done once
	RecordConfigEntry    RecordKind = 7 // Key: kind/name
	RecordQuery          RecordKind = 8 // prepared queries; Key: ID; Name: name
	RecordAutopilot      RecordKind = 9
	RecordCoordinate     RecordKind = 10 // Key: node in lower case; Node: the same
	RecordCA             RecordKind = 11 // the mesh's certificate authority
	RecordLegacyID       RecordKind = 12 // intentions by ID
	RecordSystem         RecordKind = 13 // what the cluster knows about itself
	RecordFederation     RecordKind = 14 // other datacenters
	RecordNodeBar        RecordKind = 15 // nodes that were removed by force

	recordKinds = 32 // one more than the highest there may ever be without a new snapshot version
)

// ClusterIDKey is the record of kind RecordSystem that names the cluster for ever; the
// mesh's trust domain is made of it. The founding leader writes it.
const ClusterIDKey = "cluster-id"

// HistoryKey is the record of kind RecordSystem that tells one history of indexes from
// another: the leader writes it after the restore of a snapshot that took indexes away. Its
// value and its index, with the cluster's identity, name the history; all servers have the same.
const HistoryKey = "history"

// Record is one small object. Keys are matched exactly.
type Record struct {
	Kind RecordKind
	Key  string
	// Name is a second key, unique within the kind; "" is none.
	Name  string
	Value []byte
	// Session and Node, where set, take the record with them when they go.
	Session, Node            string
	CreateIndex, ModifyIndex uint64
}

// RecordVerb is what an operation on a record does.
type RecordVerb uint8

// The verbs. For CAS, DeleteCAS and Check the operation's Record.ModifyIndex is
// the index to compare; 0 means that the record must not be there.
const (
	RecordSet RecordVerb = iota + 1
	RecordCAS
	RecordDelete
	RecordDeleteCAS
	RecordCheck // changes nothing
)

// RecordOp is one operation on a record.
type RecordOp struct {
	Verb   RecordVerb
	Record Record
}

// Records applies all operations under one index, or none: Result.OK is false
// when an index did not compare. A Name that another record of the kind has, an
// unknown Session and an unknown Node are refused with Result.Err (kind Conflict).
type Records struct{ Ops []RecordOp }

// recordKey is the kind as the first key of a table.
func recordKey(kind RecordKind) string { return kindNames[kind%recordKinds : kind%recordKinds+1] }

const kindNames = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f" +
	"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"

// recordTables hold the records; byTie is by what takes a record with it.
type recordTables struct {
	all    table.Table[pair[*Record]] // by kind, key
	byName table.Table[pair[*Record]] // by kind, name
	byTie  table.Table[pair[*Record]] // by "s"+session or "n"+node, kind+key
}

type recordEdits struct{ all, byName, byTie table.Edit[pair[*Record]] }

func emptyRecords() recordTables {
	return recordTables{table.New(comparePair[*Record]), table.New(comparePair[*Record]), table.New(comparePair[*Record])}
}

func (t *recordTables) edit() recordEdits {
	return recordEdits{t.all.Edit(), t.byName.Edit(), t.byTie.Edit()}
}

func (t *recordEdits) done() recordTables {
	return recordTables{t.all.Done(), t.byName.Done(), t.byTie.Done()}
}

func (t *recordEdits) fork() {
	t.all.Fork()
	t.byName.Fork()
	t.byTie.Fork()
}

// put adds r to all tables.
func (t *recordEdits) put(r *Record) {
	kind := recordKey(r.Kind)
	t.all.Set(pair[*Record]{kind, r.Key, r})
	if r.Name != "" {
		t.byName.Set(pair[*Record]{kind, r.Name, r})
	}
	for _, tie := range r.ties() {
		t.byTie.Set(pair[*Record]{tie, kind + r.Key, r})
	}
}

func (t *recordEdits) drop(r *Record) {
	kind := recordKey(r.Kind)
	t.all.Delete(pair[*Record]{a: kind, b: r.Key})
	if r.Name != "" {
		t.byName.Delete(pair[*Record]{a: kind, b: r.Name})
	}
	for _, tie := range r.ties() {
		t.byTie.Delete(pair[*Record]{a: tie, b: kind + r.Key})
	}
}

func (r *Record) ties() []string {
	var ties []string
	if r.Session != "" {
		ties = append(ties, "s"+r.Session)
	}
	if r.Node != "" {
		ties = append(ties, "n"+lower(r.Node))
	}
	return ties
}

func (r *Record) same(o *Record) bool {
	return r.Name == o.Name && string(r.Value) == string(o.Value) && r.Session == o.Session &&
		lower(r.Node) == lower(o.Node)
}

// records applies c; OK is false when an index did not compare.
func (d *draft) records(c *Records) (ok bool, err error) {
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
func (d *draft) recordOp(op *RecordOp) (bool, error) {
	in := &op.Record
	if in.Kind == 0 || in.Kind >= recordKinds || in.Key == "" {
		return false, errkind.Errorf(errkind.Invalid, "record %d %q: a kind and a key are needed", in.Kind, in.Key)
	}
	item, _ := d.t.records.all.Get(pair[*Record]{a: recordKey(in.Kind), b: in.Key})
	old := item.v
	switch op.Verb {
	case RecordCAS, RecordDeleteCAS, RecordCheck:
		if (old == nil) != (in.ModifyIndex == 0) || old != nil && old.ModifyIndex != in.ModifyIndex {
			return false, nil
		}
	case RecordSet, RecordDelete:
	default:
		return false, errkind.Errorf(errkind.Invalid, "record %q: unknown verb %d", in.Key, op.Verb)
	}
	switch op.Verb {
	case RecordSet, RecordCAS:
		return d.setRecord(old, in)
	case RecordDelete, RecordDeleteCAS:
		if old != nil {
			d.dropRecord(old)
		}
	}
	return true, nil
}

func (d *draft) setRecord(old, in *Record) (bool, error) {
	if old != nil && old.same(in) {
		return true, nil
	}
	if in.Name != "" {
		if other, ok := d.t.records.byName.Get(pair[*Record]{a: recordKey(in.Kind), b: in.Name}); ok && other.b == in.Name &&
			other.v.Key != in.Key {
			return false, errkind.Errorf(errkind.Conflict, "record name is in use by %q", other.v.Key)
		}
	}
	if _, ok := d.t.sessions.Get(keyed[*Session]{key: in.Session}); in.Session != "" && !ok {
		return false, errkind.Errorf(errkind.Conflict, "invalid session %q", in.Session)
	}
	if in.Node != "" && d.node(lower(in.Node)) == nil {
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

func (d *draft) dropRecord(old *Record) {
	d.t.records.drop(old)
	d.recordChanged(old, nil)
}

func (d *draft) recordChanged(before, after *Record) {
	change := Change[Record]{before, after, d.at}
	kind := RecordKind(0)
	if after != nil {
		kind = after.Kind
	} else {
		kind = before.Kind
	}
	d.touch()
	d.ix.records[kind] = d.at
	d.changes.Records = append(d.changes.Records, change)
}

// dropTied removes what a session or a node takes with it.
func (d *draft) dropTied(tie string) {
	var list []*Record
	for r := range under(d.t.records.byTie.Table, tie) {
		list = append(list, r)
	}
	for _, r := range list {
		d.dropRecord(r)
	}
}

// Record returns the record, or nil.
func (s *State) Record(kind RecordKind, key string) *Record {
	item, _ := s.tables.records.all.Get(pair[*Record]{a: recordKey(kind), b: key})
	return item.v
}

// RecordByName returns the record whose Name it is, or nil.
func (s *State) RecordByName(kind RecordKind, name string) *Record {
	if name == "" {
		return nil
	}
	item, _ := s.tables.records.byName.Get(pair[*Record]{a: recordKey(kind), b: name})
	return item.v
}

// Records yields the kind's records whose key begins with prefix, by key.
func (s *State) Records(kind RecordKind, prefix string) iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		for item := range s.tables.records.all.From(pair[*Record]{a: recordKey(kind), b: prefix}) {
			if item.a != recordKey(kind) || !strings.HasPrefix(item.b, prefix) || !yield(item.v) {
				return
			}
		}
	}
}

// RecordsIndex is the index of the kind's last change.
func (s *State) RecordsIndex(kind RecordKind) uint64 { return floor(s.indexes.records[kind]) }

// RecordIndex is the record's ModifyIndex, or the kind's index while it is not there.
func (s *State) RecordIndex(kind RecordKind, key string) uint64 {
	if r := s.Record(kind, key); r != nil {
		return floor(r.ModifyIndex)
	}
	return s.RecordsIndex(kind)
}

// AppendRecord appends r's record.
func AppendRecord(b []byte, r *Record) []byte {
	b, mark := pack.Begin(b)
	b = pack.Uint(b, uint64(r.Kind))
	b = pack.String(pack.String(b, r.Key), r.Name)
	b = pack.Bytes(b, r.Value)
	b = pack.String(pack.String(b, r.Session), r.Node)
	b = pack.Uint(pack.Uint(b, r.CreateIndex), r.ModifyIndex)
	return pack.End(b, mark)
}

// ReadRecord reads what AppendRecord wrote; damage shows in r.Err.
func ReadRecord(r *pack.Reader) *Record {
	in := r.Record()
	rec := &Record{Kind: RecordKind(min(in.Uint(), 255)), Key: in.String(), Name: in.String(), Value: readBytes(in),
		Session: in.String(), Node: in.String(), CreateIndex: in.Uint(), ModifyIndex: in.Uint()}
	r.Merge(in)
	return rec
}

// Op implements Command.
func (*Records) Op() Op { return OpRecords }

// AppendPack implements Command.
func (c *Records) AppendPack(b []byte) []byte {
	b = pack.Uint(b, uint64(len(c.Ops)))
	for i := range c.Ops {
		b = AppendRecord(pack.Uint(b, uint64(c.Ops[i].Verb)), &c.Ops[i].Record)
	}
	return b
}

func readRecords(r *pack.Reader) *Records {
	c := &Records{}
	for range min(r.Count(), maxCommandItems) {
		if r.Err() != nil {
			break
		}
		c.Ops = append(c.Ops, RecordOp{RecordVerb(min(r.Uint(), 255)), *ReadRecord(r)})
	}
	return c
}
