package catalog

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// maxCommandItems bounds how many parts one command may have: more would hold
// up the log for too long. The front doors' limits are far below.
const maxCommandItems = 100_000

// EncodeCommand appends c behind its Op byte. It never fails.
func EncodeCommand(b []byte, c Command) []byte {
	return pack.AppendFields(append(b, byte(c.Op())), c.pass)
}

// DecodeCommand reads what EncodeCommand wrote. The command shares no memory
// with b. Damage and unknown commands give an error of kind Corrupt.
func DecodeCommand(b []byte) (Command, error) {
	if len(b) == 0 {
		return nil, errkind.E(errkind.Corrupt, "decode command", pack.ErrDamaged)
	}
	c := newCommand(Op(b[0]))
	if c == nil {
		return nil, errkind.Errorf(errkind.Corrupt, "decode command: unknown operation %d", b[0])
	}
	r := pack.Read(b[1:])
	pack.ReadFields(r, c.pass)
	if r.Err() != nil {
		return nil, errkind.E(errkind.Corrupt, "decode command", r.Err())
	}
	return c, nil
}

func newCommand(op Op) Command {
	switch op {
	case OpRegister:
		return &Register{}
	case OpRegisterBatch:
		return &RegisterBatch{}
	case OpDeregister:
		return &Deregister{}
	case OpKV:
		return &KV{}
	case OpSessionCreate:
		return &SessionCreate{}
	case OpSessionDestroy:
		return &SessionDestroy{}
	case OpTxn:
		return &Txn{}
	case OpRecords:
		return &Records{}
	case OpReapTombstones:
		return &ReapTombstones{}
	case OpHorizon:
		return &Horizon{}
	}
	return nil
}

// Op implements Command.
func (*Register) Op() Op { return OpRegister }

func (x *Register) pass(c *pack.Coder) {
	c.Record(x.Node.pass)
	c.Bool(&x.SkipNodeUpdate)
	pack.Optional(c, &x.Service, func(s *Service) { c.Record(s.pass) })
	passPointers(c, &x.Checks, func(check *Check) { c.Record(check.pass) })
}

// passPointers passes a list; each of its elements is made anew when it is read.
func passPointers[T any](c *pack.Coder, list *[]*T, element func(*T)) {
	pack.List(c, list, maxCommandItems, func(p **T) { element(own(c, p)) })
}

// Op implements Command.
func (*RegisterBatch) Op() Op { return OpRegisterBatch }

func (x *RegisterBatch) pass(c *pack.Coder) {
	passPointers(c, &x.Registrations, func(r *Register) { c.Record(r.pass) })
	c.Bool(&x.Atomic)
}

// Op implements Command.
func (*Deregister) Op() Op { return OpDeregister }

func (x *Deregister) pass(c *pack.Coder) { c.String(&x.Node, &x.ServiceID, &x.CheckID) }

// Op implements Command.
func (*KV) Op() Op { return OpKV }

func (x *KV) pass(c *pack.Coder) {
	pack.Unsigned(c, &x.Verb)
	c.Record(x.Pair.pass)
}

// Op implements Command.
func (*SessionCreate) Op() Op { return OpSessionCreate }

func (x *SessionCreate) pass(c *pack.Coder) { c.Record(x.Session.pass) }

// Op implements Command.
func (*SessionDestroy) Op() Op { return OpSessionDestroy }

func (x *SessionDestroy) pass(c *pack.Coder) { c.String(&x.ID) }

// Op implements Command.
func (*ReapTombstones) Op() Op { return OpReapTombstones }

func (x *ReapTombstones) pass(c *pack.Coder) { pack.Unsigned(c, &x.Index) }

// Op implements Command.
func (*Horizon) Op() Op { return OpHorizon }

func (x *Horizon) pass(c *pack.Coder) { pack.Unsigned(c, &x.Index) }

// Op implements Command.
func (*Txn) Op() Op { return OpTxn }

func (x *Txn) pass(c *pack.Coder) {
	pack.List(c, &x.Ops, maxCommandItems, func(op *TxnOp) { c.Record(op.pass) })
}

// What an operation of a Txn is about, on the wire.
const (
	txnKV = iota + 1
	txnNode
	txnService
	txnCheck
)

// about is what the operation is about; 0 for none.
func (op *TxnOp) about() int {
	switch {
	case op.KV != nil:
		return txnKV
	case op.Node != nil:
		return txnNode
	case op.Service != nil:
		return txnService
	case op.Check != nil:
		return txnCheck
	}
	return 0
}

func (op *TxnOp) pass(c *pack.Coder) {
	about := op.about()
	if !c.Reads() && about == 0 {
		return
	}
	pack.Unsigned(c, &about)
	if about == txnNode || about == txnService || about == txnCheck {
		pack.Unsigned(c, &op.Verb)
	}
	switch about {
	case txnKV:
		own(c, &op.KV).pass(c)
	case txnNode:
		c.Record(own(c, &op.Node).pass)
	case txnService:
		c.Record(own(c, &op.Service).pass)
	case txnCheck:
		c.Record(own(c, &op.Check).pass)
	}
}

// own is what *p points to, made anew when it is read.
func own[T any](c *pack.Coder, p **T) *T {
	if c.Reads() {
		*p = new(T)
	}
	return *p
}
