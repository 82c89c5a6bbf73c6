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
	RecordOneTime        RecordKind = 16 // Key: hash of a secret that is traded for a token once
	RecordVirtualIP      RecordKind = 17 // Key: ManualIPsKey; Value: ManualIPs
	RecordPeering        RecordKind = 18 // other clusters; Key: name; Name: ID
	RecordImported       RecordKind = 19 // Key: peer/service in lower case; Value: what the peer exports of it
	RecordTrust          RecordKind = 20 // Key: peer; Value: what the peer says of its mesh (catalog/peered)

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
func AppendRecord(b []byte, r *Record) []byte { return pack.AppendRecord(b, r.pass) }

// ReadRecord reads what AppendRecord wrote; damage shows in r.Err.
func ReadRecord(r *pack.Reader) *Record {
	rec := &Record{}
	pack.ReadRecord(r, rec.pass)
	return rec
}

func (r *Record) pass(c *pack.Coder) {
	passSmall(c, &r.Kind)
	c.String(&r.Key, &r.Name)
	c.Copy(&r.Value)
	c.String(&r.Session, &r.Node)
	pack.Unsigned(c, &r.CreateIndex, &r.ModifyIndex)
}

// passSmall reads a number that no known version writes as 255, which is nothing's.
func passSmall[T ~uint8](c *pack.Coder, p *T) {
	n := uint64(*p)
	pack.Unsigned(c, &n)
	if c.Reads() {
		*p = T(min(n, 255))
	}
}

// Op implements Command.
func (*Records) Op() Op { return OpRecords }

func (x *Records) pass(c *pack.Coder) {
	pack.List(c, &x.Ops, maxCommandItems, func(op *RecordOp) {
		passSmall(c, &op.Verb)
		c.Record(op.Record.pass)
	})
}
