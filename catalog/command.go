package catalog

import "corbel.dev/corbel/kit/pack"

// Command is a change that goes through the replicated log. Each concrete
// command is encoded with kit/pack behind one byte that names it (Op); a field
// is only ever added at the end of its record. The commands are pointers (&KV{...});
// Apply does not change them.
type Command interface {
	Op() Op
	// pass passes the command's fields, without the Op byte.
	pass(c *pack.Coder)
}

// Op names a command on disk and on the wire. Values are never reused.
type Op uint8

// The commands of the log.
const (
	OpRegister       Op = 1
	OpDeregister     Op = 2
	OpKV             Op = 3
	OpSessionCreate  Op = 4
	OpSessionDestroy Op = 5
	OpTxn            Op = 6
	OpReapTombstones Op = 7
	OpRegisterBatch  Op = 8
	OpRecords        Op = 9
	OpHorizon        Op = 10
)

// Register upserts a node, optionally one service of it and any number of
// checks. It is what PUT /v1/catalog/register and anti-entropy propose.
// Zero-length changes (all equal to what is stored) take no index.
type Register struct {
	Node           Node
	SkipNodeUpdate bool
	Service        *Service
	Checks         []*Check
}

// RegisterBatch applies several registrations as one command with one index each. The
// refused ones are in Result.TxnErrors.
type RegisterBatch struct {
	Registrations []*Register
	// Atomic applies all of them or, when one is refused, none.
	Atomic bool
}

// Deregister removes a service, a check, or (both empty) a whole node.
type Deregister struct{ Node, ServiceID, CheckID string }

// KVVerb is what a KV command does.
type KVVerb uint8

// The KV verbs. The read verbs occur inside Txn only.
const (
	KVSet KVVerb = iota + 1
	KVCAS
	KVLock
	KVUnlock
	KVDelete
	KVDeleteCAS
	KVDeleteTree
	KVGet
	KVGetOrEmpty
	KVGetTree
	KVCheckIndex
	KVCheckSession
	KVCheckNotExists
)

// KV is one operation on the key-value store. Pair.ModifyIndex is the index to
// compare for the CAS verbs, Pair.Session the session for Lock, Unlock and CheckSession.
type KV struct {
	Verb KVVerb
	Pair KVPair
}

// SessionCreate stores a session whose ID the proposer has chosen.
type SessionCreate struct{ Session Session }

// SessionDestroy ends a session and treats its locks by its Behavior.
type SessionDestroy struct{ ID string }

// ReapTombstones forgets deletions up to and including Index.
type ReapTombstones struct{ Index uint64 }

// Horizon makes the State's index pass Index and forgets, up to there, what changed
// when: after a restore of an older snapshot no index that was ever given to a client
// may name a State of the new history.
type Horizon struct{ Index uint64 }

// TxnVerb is what a node, service or check operation of a Txn does.
type TxnVerb uint8

// The verbs of node, service and check operations.
const (
	TxnGet TxnVerb = iota + 1
	TxnSet
	TxnCAS
	TxnDelete
	TxnDeleteCAS
)

// TxnOp is one operation: exactly one of KV, Node, Service, Check is set. For
// the CAS verbs the object's ModifyIndex is the one to compare.
type TxnOp struct {
	KV      *KV
	Verb    TxnVerb // for the other three
	Node    *Node
	Service *Service // Service.Node names the node
	Check   *Check
}

// Txn applies all operations or none.
type Txn struct{ Ops []TxnOp }

// ReadOnly tells whether every operation of the Txn is one that reads.
func (c *Txn) ReadOnly() bool {
	for i := range c.Ops {
		switch op := &c.Ops[i]; {
		case op.KV != nil && op.KV.Verb < KVGet:
			return false
		case op.KV == nil && op.Verb != TxnGet:
			return false
		}
	}
	return true
}

// Result is what a command gave.
type Result struct {
	// Index is the State's index after the command.
	Index uint64
	// OK is false for a lost check-and-set, a held lock, a release by another.
	OK bool
	// Err is a refused command: nothing was applied. Its kind and text are the contract's.
	Err error
	// Txn holds the results of a Txn that was applied.
	Txn []TxnResult
	// TxnErrors tell why a Txn was not applied.
	TxnErrors []TxnError
}

// TxnResult is the object that an operation returns; all nil for deletions.
type TxnResult struct {
	KV      *KVPair // Value is nil where the contract leaves it out
	Node    *Node
	Service *Service
	Check   *Check
}

// TxnError is one operation's reason.
type TxnError struct {
	OpIndex int
	What    string
}
