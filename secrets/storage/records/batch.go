package records

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/secrets/storage"
)

// Batch is one change of a State, as it stands in a log entry or a journal: the
// operations of one Commit, or a Fence.
type Batch struct {
	// Epoch is the writer's, or the one that a Fence makes the newest.
	Epoch storage.Epoch
	Fence bool
	Ops   []storage.Op
}

// The first byte of an encoded batch is its version; the second says which kind it is.
const (
	batchVersion = 1
	kindCommit   = 0
	kindFence    = 1
	batchEnd     = 0x45 // the last byte
)

// BatchBytes is about how long the encoded batch will be.
func BatchBytes(ops []storage.Op) int {
	n := 16
	for _, op := range ops {
		n += 8 + len(op.Key) + len(op.Value)
	}
	return n
}

// Append encodes the batch.
func (b Batch) Append(to []byte) []byte {
	kind := byte(kindCommit)
	if b.Fence {
		kind = kindFence
	}
	to = pack.Uint(append(to, batchVersion, kind), uint64(b.Epoch))
	to = pack.Uint(to, uint64(len(b.Ops)))
	for _, op := range b.Ops {
		to = pack.Bool(pack.String(to, op.Key), op.Value != nil)
		if op.Value != nil {
			to = pack.Bytes(to, op.Value)
		}
	}
	return append(to, batchEnd)
}

// DecodeBatch reads what Append wrote. Keys and values stand in from and are good as long as it does not
// change: a Set keeps copies.
func DecodeBatch(from []byte) (Batch, error) {
	r := pack.Read(from)
	version, kind := r.Uint(), r.Uint()
	if r.Err() == nil && (version != batchVersion || kind > kindFence) {
		return Batch{}, errkind.Errorf(errkind.Corrupt, "storage batch: version %d, kind %d: written by a newer Corbel?",
			version, kind)
	}
	b := Batch{Epoch: storage.Epoch(r.Uint()), Fence: kind == kindFence}
	count := r.Count()
	b.Ops = make([]storage.Op, 0, count)
	for range count {
		op := storage.Op{Key: alias(r.Bytes())}
		if r.Bool() {
			if op.Value = r.Bytes(); op.Value == nil {
				op.Value = []byte{}
			}
		}
		b.Ops = append(b.Ops, op)
	}
	// A Reader gives zeros where the input ends, so the end has a mark.
	if end := r.Uint(); r.Err() != nil || end != batchEnd || r.More() {
		return Batch{}, errkind.E(errkind.Corrupt, "storage batch", pack.ErrDamaged)
	}
	return b, nil
}

// State is a Set with the newest epoch: all that a backend keeps.
type State struct {
	Set
	Epoch storage.Epoch
}

// Fold applies batches in order and returns the next State with one outcome for
// each: nil, or that a newer writer leads. It costs one edit of the table however many they are.
func (s State) Fold(batches []Batch) (State, []error) {
	outcomes := make([]error, len(batches))
	var ops []storage.Op
	for i, b := range batches {
		switch {
		case b.Fence && b.Epoch >= s.Epoch:
			s.Epoch = b.Epoch
		case b.Epoch != s.Epoch:
			outcomes[i] = storage.Fenced(b.Epoch, s.Epoch)
		case len(batches) == 1:
			ops = b.Ops
		default:
			ops = append(ops, b.Ops...)
		}
	}
	if len(ops) > 0 {
		s.Set = s.Set.Apply(ops)
	}
	return s, outcomes
}
