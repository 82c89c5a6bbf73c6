package catalog

import "corbel.dev/corbel/kit/pack"

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

	RecordKinds = 32 // one more than the highest there may ever be without a new snapshot version
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

// Same tells whether a reader sees a difference between the two but in the indexes.
func (r *Record) Same(o *Record) bool {
	return r.Name == o.Name && string(r.Value) == string(o.Value) && r.Session == o.Session &&
		lower(r.Node) == lower(o.Node)
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
