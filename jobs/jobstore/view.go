package jobstore

import (
	"bytes"
	"iter"
	"strings"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/state"
)

// Table is a kind of objects that has an index of its own.
type Table uint8

// The tables.
const (
	Jobs Table = iota
	Nodes
	Allocations
	Evaluations
	Deployments
	Services
	Namespaces
	Pools
	Scheduler
	Variables
	Submissions
	Launches
	Keyring
	Scalings
	tableCount
)

// Document is something with a name that only the API reads: namespaces, pools, services, what operators set.
type Document struct {
	Table           Table
	Namespace, Name string
	Body            string // the API's object, as JSON
	CreateIndex     uint64
	ModifyIndex     uint64
}

// AllocDetail is what is kept of an allocation for those who ask.
type AllocDetail struct {
	ID         jobs.ID
	Tasks, Net string // JSON, as the node sent it
	Order      jobs.Order
}

// NodeDetail is what is kept of a node beyond what places work on it.
type NodeDetail struct {
	ID     jobs.ID
	Secret string
	Body   string
	Events []NodeHappening // the last ten (NK-3)
	Drain  *DrainRecord
}

// NodeHappening is something that happened to a node.
type NodeHappening struct {
	Message, Subsystem string
	Details            map[string]string
	At                 jobs.Time
	Index              uint64
}

// View is everything at one index. It never changes.
type View struct {
	State   *state.State
	indexes [tableCount]uint64
	docs    table.Table[*Document]
	allocs  table.Table[*AllocDetail]
	nodes   table.Table[*NodeDetail]

	generation uint64
	restored   uint64 // see Restored
}

// Generation is how many snapshots this process has restored: indexes of two generations do not compare.
func (v *View) Generation() uint64 { return v.generation }

// Restored is the index at which an operator's snapshot replaced everything, 0 when none did. What is newer was made of
// what the snapshot has; all servers have the same.
func (v *View) Restored() uint64 { return v.restored }

func compareIDs(a, b jobs.ID) int { return bytes.Compare(a[:], b[:]) }

func compareDocs(a, b *Document) int {
	if a.Table != b.Table {
		return int(a.Table) - int(b.Table)
	}
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// orAfter points at the first document that is not before d.
func (d *Document) orAfter(other *Document) int {
	if compareDocs(d, other) <= 0 {
		return -1
	}
	return 1
}

// Empty is the View of a new cluster.
func Empty() *View {
	return &View{State: state.Empty(), docs: table.New(compareDocs),
		allocs: table.New(func(a, b *AllocDetail) int { return compareIDs(a.ID, b.ID) }),
		nodes:  table.New(func(a, b *NodeDetail) int { return compareIDs(a.ID, b.ID) })}
}

// Index is when a table was changed last, 0 before that. A job's state comes from its allocations and evaluations.
func (v *View) Index(t Table) uint64 {
	switch {
	case t >= tableCount:
		return 0
	case t == Jobs:
		return max(v.indexes[Jobs], v.indexes[Allocations], v.indexes[Evaluations])
	}
	return v.indexes[t]
}

// Document returns a document, or nil.
func (v *View) Document(t Table, namespace, name string) *Document {
	d, _ := v.docs.Get(&Document{Table: t, Namespace: namespace, Name: name})
	return d
}

// Documents yields the documents of a table by namespace and name; "" has those of all namespaces.
func (v *View) Documents(t Table, namespace string) iter.Seq[*Document] {
	return func(yield func(*Document) bool) {
		from := &Document{Table: t, Namespace: namespace}
		for d := range v.docs.Seek(from.orAfter) {
			if d.Table != t || namespace != "" && d.Namespace != namespace || !yield(d) {
				return
			}
		}
	}
}

// AllocDetail returns what is kept of an allocation, or nil.
func (v *View) AllocDetail(id jobs.ID) *AllocDetail {
	d, _ := v.allocs.Get(&AllocDetail{ID: id})
	return d
}

// NodeDetail returns what is kept of a node, or nil.
func (v *View) NodeDetail(id jobs.ID) *NodeDetail {
	d, _ := v.nodes.Get(&NodeDetail{ID: id})
	return d
}

// KnowsNamespace reports whether jobs may be in a namespace.
func (v *View) KnowsNamespace(name string) bool {
	return name == "default" || v.Document(Namespaces, "", name) != nil
}

// KnowsPool reports whether jobs may be for a node pool.
func (v *View) KnowsPool(name string) bool {
	return name == "" || name == "default" || name == "all" || v.Document(Pools, "", name) != nil
}
