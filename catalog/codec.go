package catalog

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// maxCommandItems bounds how many parts one command may have: more would hold
// up the log for too long. The front doors' limits are far below.
const maxCommandItems = 100_000

// EncodeCommand appends c behind its Op byte. It never fails.
func EncodeCommand(b []byte, c Command) []byte { return c.AppendPack(append(b, byte(c.Op()))) }

// DecodeCommand reads what EncodeCommand wrote. The command shares no memory
// with b. Damage and unknown commands give an error of kind Corrupt.
func DecodeCommand(b []byte) (Command, error) {
	if len(b) == 0 {
		return nil, errkind.E(errkind.Corrupt, "decode command", pack.ErrDamaged)
	}
	r := pack.Read(b[1:])
	c := readCommand(Op(b[0]), r)
	if c == nil {
		return nil, errkind.Errorf(errkind.Corrupt, "decode command: unknown operation %d", b[0])
	}
	if r.Err() != nil {
		return nil, errkind.E(errkind.Corrupt, "decode command", r.Err())
	}
	return c, nil
}

func readCommand(op Op, r *pack.Reader) Command {
	switch op {
	case OpRegister:
		return readRegister(r)
	case OpRegisterBatch:
		c := &RegisterBatch{}
		for range min(r.Count(), maxCommandItems) {
			if r.Err() != nil {
				break
			}
			in := r.Record()
			c.Registrations = append(c.Registrations, readRegister(in))
			r.Merge(in)
		}
		c.Atomic = r.Bool()
		return c
	case OpDeregister:
		return &Deregister{Node: r.String(), ServiceID: r.String(), CheckID: r.String()}
	case OpKV:
		c := &KV{}
		readKV(r, c)
		return c
	case OpSessionCreate:
		return &SessionCreate{Session: *ReadSession(r)}
	case OpSessionDestroy:
		return &SessionDestroy{ID: r.String()}
	case OpTxn:
		return readTxn(r)
	case OpRecords:
		return readRecords(r)
	case OpReapTombstones:
		return &ReapTombstones{Index: r.Uint()}
	case OpHorizon:
		return &Horizon{Index: r.Uint()}
	}
	return nil
}

// Op implements Command.
func (*Register) Op() Op { return OpRegister }

// AppendPack implements Command.
func (c *Register) AppendPack(b []byte) []byte {
	b = AppendNode(b, &c.Node)
	b = pack.Bool(b, c.SkipNodeUpdate)
	b = pack.Bool(b, c.Service != nil)
	if c.Service != nil {
		b = AppendService(b, c.Service)
	}
	b = pack.Uint(b, uint64(len(c.Checks)))
	for _, check := range c.Checks {
		b = AppendCheck(b, check)
	}
	return b
}

func readRegister(r *pack.Reader) *Register {
	c := &Register{Node: *ReadNode(r), SkipNodeUpdate: r.Bool()}
	if r.Bool() {
		c.Service = ReadService(r)
	}
	for range min(r.Count(), maxCommandItems) {
		if r.Err() != nil {
			break
		}
		c.Checks = append(c.Checks, ReadCheck(r))
	}
	return c
}

// Op implements Command.
func (*RegisterBatch) Op() Op { return OpRegisterBatch }

// AppendPack implements Command.
func (c *RegisterBatch) AppendPack(b []byte) []byte {
	b = pack.Uint(b, uint64(len(c.Registrations)))
	for _, r := range c.Registrations {
		var mark int
		b, mark = pack.Begin(b)
		b = pack.End(r.AppendPack(b), mark)
	}
	return pack.Bool(b, c.Atomic)
}

// Op implements Command.
func (*Deregister) Op() Op { return OpDeregister }

// AppendPack implements Command.
func (c *Deregister) AppendPack(b []byte) []byte {
	return pack.String(pack.String(pack.String(b, c.Node), c.ServiceID), c.CheckID)
}

// Op implements Command.
func (*KV) Op() Op { return OpKV }

// AppendPack implements Command.
func (c *KV) AppendPack(b []byte) []byte {
	return AppendKVPair(pack.Uint(b, uint64(c.Verb)), &c.Pair)
}

func readKV(r *pack.Reader, c *KV) {
	c.Verb = KVVerb(r.Uint())
	readKVPair(r, &c.Pair)
}

// Op implements Command.
func (*SessionCreate) Op() Op { return OpSessionCreate }

// AppendPack implements Command.
func (c *SessionCreate) AppendPack(b []byte) []byte { return AppendSession(b, &c.Session) }

// Op implements Command.
func (*SessionDestroy) Op() Op { return OpSessionDestroy }

// AppendPack implements Command.
func (c *SessionDestroy) AppendPack(b []byte) []byte { return pack.String(b, c.ID) }

// Op implements Command.
func (*ReapTombstones) Op() Op { return OpReapTombstones }

// AppendPack implements Command.
func (c *ReapTombstones) AppendPack(b []byte) []byte { return pack.Uint(b, c.Index) }

// Op implements Command.
func (*Horizon) Op() Op { return OpHorizon }

// AppendPack implements Command.
func (c *Horizon) AppendPack(b []byte) []byte { return pack.Uint(b, c.Index) }

// Op implements Command.
func (*Txn) Op() Op { return OpTxn }

// What an operation of a Txn is about, on the wire.
const (
	txnKV = iota + 1
	txnNode
	txnService
	txnCheck
)

// AppendPack implements Command.
func (c *Txn) AppendPack(b []byte) []byte {
	b = pack.Uint(b, uint64(len(c.Ops)))
	for i := range c.Ops {
		op := &c.Ops[i]
		var mark int
		b, mark = pack.Begin(b)
		switch {
		case op.KV != nil:
			b = op.KV.AppendPack(pack.Uint(b, txnKV))
		case op.Node != nil:
			b = AppendNode(pack.Uint(pack.Uint(b, txnNode), uint64(op.Verb)), op.Node)
		case op.Service != nil:
			b = AppendService(pack.Uint(pack.Uint(b, txnService), uint64(op.Verb)), op.Service)
		case op.Check != nil:
			b = AppendCheck(pack.Uint(pack.Uint(b, txnCheck), uint64(op.Verb)), op.Check)
		}
		b = pack.End(b, mark)
	}
	return b
}

func readTxn(r *pack.Reader) *Txn {
	c := &Txn{}
	for range min(r.Count(), maxCommandItems) {
		if r.Err() != nil {
			break
		}
		in := r.Record()
		c.Ops = append(c.Ops, readTxnOp(in))
		r.Merge(in)
	}
	return c
}

func readTxnOp(r *pack.Reader) (op TxnOp) {
	switch r.Uint() {
	case txnKV:
		op.KV = &KV{}
		readKV(r, op.KV)
	case txnNode:
		op.Verb = TxnVerb(r.Uint())
		op.Node = ReadNode(r)
	case txnService:
		op.Verb = TxnVerb(r.Uint())
		op.Service = ReadService(r)
	case txnCheck:
		op.Verb = TxnVerb(r.Uint())
		op.Check = ReadCheck(r)
	}
	return op
}
