// Package eventrecord is how changes of a shard's events are written: in the log of a server, and on the way to its
// replica.
//
// A result whose configuration is known takes about 50 bytes. It is written as what came, not as what became of it:
// whoever reads steps the state onwards as the owner did (monitor.Step), and has the same state then.
package eventrecord

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/runs"
)

// A record begins with one of these; fields follow as package pack writes them.
const (
	recWhole        = 'P'
	recWholeBefore  = 'W' // without a past, as it was written once
	recDelta        = 'D'
	recDelete       = 'X'
	recEntity       = 'E'
	recSeen         = 'S'
	recDeleteEntity = 'Y'
)

// Batch is the records of one shard, encoded as they come. It implements eventstore.Batch.
type Batch struct {
	shard   uint16
	records []byte
	n       int
	touched []Size // what it holds whole, and what went, in order
}

// Size is how many bytes the whole form of a number takes; none is a number that went.
type Size struct {
	Number eventstore.Number
	Bytes  uint32
	Entity bool
}

var _ eventstore.Batch = (*Batch)(nil)

// NewBatch makes an empty batch.
func NewBatch(shard uint16) *Batch { return &Batch{shard: shard} }

// Shard returns whose changes the batch holds.
func (b *Batch) Shard() uint16 { return b.shard }

// Records returns what was written; it belongs to the batch until Reset.
func (b *Batch) Records() []byte { return b.records }

// Touched lists what the batch holds whole, and what went, in order; it belongs to the batch until Reset.
func (b *Batch) Touched() []Size { return b.touched }

// Len implements eventstore.Batch.
func (b *Batch) Len() int { return b.n }

// Bytes implements eventstore.Batch.
func (b *Batch) Bytes() int { return len(b.records) }

// Reset implements eventstore.Batch.
func (b *Batch) Reset() {
	*b = Batch{shard: b.shard, records: b.records[:0], touched: b.touched[:0]}
}

// Put implements eventstore.Batch.
func (b *Batch) Put(n eventstore.Number, r *eventstore.Result, what eventstore.News) {
	b.n++
	if what&eventstore.Whole == 0 {
		p := pack.Uint(append(b.records, recDelta), uint64(n.Index()))
		p = appendResult(p, &r.State.Result)
		p = pack.Uint(p, uint64(what))
		if what&eventstore.NewOutput != 0 {
			p = pack.Bytes(p, r.Output)
		}
		if what&eventstore.NewHooks != 0 {
			p = pack.Bytes(p, r.Hooks)
		}
		if what&eventstore.NewSilences != 0 {
			p = pack.Strings(p, r.State.Silenced)
		}
		b.records = p
		return
	}
	before := len(b.records)
	p := append(b.records, recWhole)
	p = pack.Uint(p, uint64(n.Index()))
	p = pack.String(p, r.Namespace)
	p = pack.String(p, r.Entity)
	p = pack.String(p, r.Check)
	for _, text := range [][]byte{r.Stable, r.Rest, r.Hooks, r.Text()} {
		p = pack.Bytes(p, text)
	}
	p = pack.String(p, r.ProcessedBy)
	b.records = runs.AppendPast(AppendState(p, &r.State), &r.Past)
	b.touched = append(b.touched, Size{n, uint32(len(b.records) - before), false})
}

func appendResult(p []byte, r *monitor.Result) []byte {
	p = pack.Bytes(p, r.ID[:])
	p = pack.Int(p, r.Executed)
	p = pack.Int(p, r.Timestamp-r.Executed) // small, mostly
	p = pack.Int(p, r.Issued-r.Executed)
	p = pack.Int(p, r.Sequence)
	p = pack.Float(p, r.Duration)
	return pack.Uint(p, uint64(r.Status))
}

// AppendState writes a state behind p.
func AppendState(p []byte, s *monitor.State) []byte {
	p = appendResult(p, &s.Result)
	p = pack.Uint(p, uint64(s.Condition))
	p = pack.Uint(p, uint64(s.Change))
	p = pack.Int(p, s.LastOK)
	p = pack.Int(p, s.Occurrences)
	p = pack.Int(p, s.Watermark)
	p = pack.Strings(p, s.Silenced)
	p = pack.Uint(p, uint64(s.History.Len()))
	before := s.Executed
	for i := range s.History.Len() {
		status, executed := s.History.At(i)
		p = pack.Uint(p, uint64(status))
		p = pack.Int(p, executed-before)
		before = executed
	}
	return p
}

// PutEntity implements eventstore.Batch.
func (b *Batch) PutEntity(n eventstore.Number, e *eventstore.Entity) {
	b.n++
	before := len(b.records)
	p := append(b.records, recEntity)
	p = pack.Uint(p, uint64(n.Index()))
	p = pack.String(p, e.Namespace)
	p = pack.String(p, e.Name)
	p = pack.Bytes(p, e.Message)
	b.records = pack.Int(p, e.LastSeen)
	b.touched = append(b.touched, Size{n, uint32(len(b.records) - before), true})
}

// Seen implements eventstore.Batch.
func (b *Batch) Seen(n eventstore.Number, at int64) {
	b.n++
	b.records = pack.Int(pack.Uint(append(b.records, recSeen), uint64(n.Index())), at)
}

// Delete implements eventstore.Batch.
func (b *Batch) Delete(n eventstore.Number) {
	b.n++
	b.records = pack.Uint(append(b.records, recDelete), uint64(n.Index()))
	b.touched = append(b.touched, Size{Number: n})
}

// DeleteEntity implements eventstore.Batch.
func (b *Batch) DeleteEntity(n eventstore.Number) {
	b.n++
	b.records = pack.Uint(append(b.records, recDeleteEntity), uint64(n.Index()))
	b.touched = append(b.touched, Size{Number: n, Entity: true})
}

func readResult(p *pack.Reader, r *monitor.Result) {
	copy(r.ID[:], p.Bytes())
	r.Executed = p.Int()
	r.Timestamp = p.Int() + r.Executed
	r.Issued = p.Int() + r.Executed
	r.Sequence = p.Int()
	r.Duration = p.Float()
	r.Status = uint32(p.Uint())
}

// ReadState reads what AppendState wrote; p knows whether it could.
func ReadState(p *pack.Reader, s *monitor.State) {
	readResult(p, &s.Result)
	s.Condition = monitor.Condition(p.Uint())
	s.Change = uint32(p.Uint())
	s.LastOK, s.Occurrences, s.Watermark = p.Int(), p.Int(), p.Int()
	s.Silenced = p.Strings()
	n := p.Uint()
	at := s.Executed
	for i := uint64(0); i < min(n, runs.HistoryLength) && p.Err() == nil; i++ {
		status := uint32(p.Uint())
		at += p.Int()
		s.History.Add(status, at)
	}
}

// Delta is what a record tells of a result whose configuration is known: what came, and the parts that changed with it.
type Delta struct {
	Result   monitor.Result
	What     eventstore.News
	Output   []byte
	Hooks    []byte
	Silenced []string
}

// Apply steps a result onwards, as its owner did.
func (d *Delta) Apply(r *eventstore.Result, limits monitor.Thresholds) {
	kept := r.State.Silenced
	r.State, _ = monitor.Step(r.State, d.Result, limits, nil)
	r.State.Silenced = kept
	r.Past.Add(d.Result.Status, d.Result.Executed)
	switch {
	case d.What&eventstore.NewBeat != 0:
		r.Output, r.Beat = nil, true
	case d.What&eventstore.NewOutput != 0:
		r.Output, r.Beat = d.Output, false
	}
	if d.What&eventstore.NewHooks != 0 {
		r.Hooks = d.Hooks
	}
	if d.What&eventstore.NewSilences != 0 {
		r.State.Silenced = d.Silenced
	}
}

// Reader is told of records, in their order. What it is given is its own, but for the Delta itself, which is used
// again. bytes is the size of a whole form.
type Reader interface {
	Whole(n eventstore.Number, r *eventstore.Result, bytes uint32) error
	Delta(n eventstore.Number, d *Delta) error
	Delete(n eventstore.Number)
	Entity(n eventstore.Number, e *eventstore.Entity, bytes uint32)
	Seen(n eventstore.Number, at int64)
	DeleteEntity(n eventstore.Number)
}

// Read tells to of a shard's records. Errors are those of to, and Corrupt.
func Read(shard uint16, records []byte, to Reader) error {
	p := pack.Read(records)
	var d Delta
	for p.More() && p.Err() == nil {
		if err := readOne(p, shard, &d, to); err != nil {
			return err
		}
	}
	if p.Err() != nil {
		return errkind.E(errkind.Corrupt, "a record", p.Err())
	}
	return nil
}

func readOne(p *pack.Reader, shard uint16, d *Delta, to Reader) error {
	before := p.Len()
	kind := p.Uint()
	n := eventstore.NumberOf(shard, uint32(p.Uint()))
	switch kind {
	case recWhole, recWholeBefore:
		r := &eventstore.Result{Key: new(eventstore.Key)}
		r.Namespace, r.Entity, r.Check = p.String(), p.String(), p.String()
		r.Stable, r.Rest, r.Hooks, r.Output = clone(p.Bytes()), clone(p.Bytes()), clone(p.Bytes()), clone(p.Bytes())
		r.ProcessedBy = p.String()
		ReadState(p, &r.State)
		if kind == recWhole {
			r.Past = runs.ReadPast(p)
		} else {
			r.Past = runs.PastOf(&r.State.History)
		}
		if p.Err() == nil {
			r.Fold()
			return to.Whole(n, r, uint32(before-p.Len()))
		}
	case recDelta:
		if readDelta(p, d); p.Err() == nil {
			return to.Delta(n, d)
		}
	case recEntity:
		e := &eventstore.Entity{Namespace: p.String(), Name: p.String(), Message: clone(p.Bytes())}
		if e.LastSeen = p.Int(); p.Err() == nil {
			to.Entity(n, e, uint32(before-p.Len()))
		}
	case recSeen:
		if at := p.Int(); p.Err() == nil {
			to.Seen(n, at)
		}
	case recDelete, recDeleteEntity:
		switch {
		case p.Err() != nil:
		case kind == recDelete:
			to.Delete(n)
		default:
			to.DeleteEntity(n)
		}
	default:
		return errkind.Errorf(errkind.Corrupt, "a record of kind %q", rune(kind))
	}
	return nil
}

func readDelta(p *pack.Reader, d *Delta) {
	*d = Delta{}
	readResult(p, &d.Result)
	d.What = eventstore.News(p.Uint())
	if d.What&eventstore.NewOutput != 0 {
		d.Output = clone(p.Bytes())
	}
	if d.What&eventstore.NewHooks != 0 {
		d.Hooks = clone(p.Bytes())
	}
	if d.What&eventstore.NewSilences != 0 {
		d.Silenced = p.Strings()
	}
}

func clone(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}
