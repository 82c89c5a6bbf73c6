package logevents

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
)

// A frame holds batches, each: version, shard, sequence, its records with their length before them.
// A record begins with one of these; fields follow as package pack writes them.
const (
	version = 1

	recWhole        = 'W'
	recDelta        = 'D'
	recDelete       = 'X'
	recEntity       = 'E'
	recSeen         = 'S'
	recDeleteEntity = 'Y'
)

// batch is the records of one shard, encoded as they come.
type batch struct {
	shard   uint16
	records []byte
	n       int
	touched []size // what it holds whole, and what went, in order
}

// size is how many bytes the whole form of a number takes; none is a number that went.
type size struct {
	number eventstore.Number
	bytes  uint32
	entity bool
}

func (b *batch) Len() int   { return b.n }
func (b *batch) Bytes() int { return len(b.records) }

func (b *batch) Reset() {
	*b = batch{shard: b.shard, records: b.records[:0], touched: b.touched[:0]}
}

func (b *batch) Put(n eventstore.Number, r *eventstore.Result, what eventstore.News) {
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
	for _, text := range [][]byte{r.Stable, r.Rest, r.Hooks, r.Output} {
		p = pack.Bytes(p, text)
	}
	p = pack.String(p, r.ProcessedBy)
	b.records = appendState(p, &r.State)
	b.touched = append(b.touched, size{n, uint32(len(b.records) - before), false})
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

func appendState(p []byte, s *monitor.State) []byte {
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

func (b *batch) PutEntity(n eventstore.Number, e *eventstore.Entity) {
	b.n++
	before := len(b.records)
	p := append(b.records, recEntity)
	p = pack.Uint(p, uint64(n.Index()))
	p = pack.String(p, e.Namespace)
	p = pack.String(p, e.Name)
	p = pack.Bytes(p, e.Message)
	b.records = pack.Int(p, e.LastSeen)
	b.touched = append(b.touched, size{n, uint32(len(b.records) - before), true})
}

func (b *batch) Seen(n eventstore.Number, at int64) {
	b.n++
	b.records = pack.Int(pack.Uint(append(b.records, recSeen), uint64(n.Index())), at)
}

func (b *batch) Delete(n eventstore.Number) {
	b.n++
	b.records = pack.Uint(append(b.records, recDelete), uint64(n.Index()))
	b.touched = append(b.touched, size{number: n})
}

func (b *batch) DeleteEntity(n eventstore.Number) {
	b.n++
	b.records = pack.Uint(append(b.records, recDeleteEntity), uint64(n.Index()))
	b.touched = append(b.touched, size{number: n, entity: true})
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

func readState(p *pack.Reader, s *monitor.State) {
	readResult(p, &s.Result)
	s.Condition = monitor.Condition(p.Uint())
	s.Change = uint32(p.Uint())
	s.LastOK, s.Occurrences, s.Watermark = p.Int(), p.Int(), p.Int()
	s.Silenced = p.Strings()
	n := p.Uint()
	at := s.Executed
	for i := uint64(0); i < min(n, monitor.HistoryLength) && p.Err() == nil; i++ {
		status := uint32(p.Uint())
		at += p.Int()
		s.History.Add(status, at)
	}
}

// held is what is known while the log is read.
type held struct {
	results  map[eventstore.Number]*eventstore.Result
	limits   map[eventstore.Number]monitor.Thresholds // read once from what is stable
	entities map[eventstore.Number]*eventstore.Entity
	shards   map[uint16]uint64
}

// apply takes the batches of one frame to h, and tells of each what it held whole, and what went.
func (h *held) apply(content []byte, tell func(*batch)) error {
	p := pack.Read(content)
	for p.More() && p.Err() == nil {
		if v := p.Uint(); v != version {
			return errkind.Errorf(errkind.Corrupt, "a batch of version %d; this program knows %d", v, version)
		}
		b := &batch{shard: uint16(p.Uint())}
		sequence := p.Uint()
		records := p.Bytes()
		if p.Err() != nil {
			break
		}
		if err := h.records(b, records); err != nil {
			return err
		}
		h.shards[b.shard] = sequence
		tell(b)
	}
	return p.Err()
}

func (h *held) records(b *batch, records []byte) error {
	p := pack.Read(records)
	for p.More() && p.Err() == nil {
		before := p.Len()
		kind := p.Uint()
		n := eventstore.NumberOf(b.shard, uint32(p.Uint()))
		switch kind {
		case recWhole:
			r := new(eventstore.Result)
			r.Namespace, r.Entity, r.Check = p.String(), p.String(), p.String()
			r.Stable, r.Rest, r.Hooks, r.Output = clone(p.Bytes()), clone(p.Bytes()), clone(p.Bytes()), clone(p.Bytes())
			r.ProcessedBy = p.String()
			readState(p, &r.State)
			h.results[n] = r
			delete(h.limits, n)
			b.touched = append(b.touched, size{n, uint32(before - p.Len()), false})
		case recDelta:
			if err := h.delta(p, n); err != nil {
				return err
			}
		case recDelete:
			delete(h.results, n)
			b.touched = append(b.touched, size{number: n})
		case recEntity:
			e := &eventstore.Entity{Namespace: p.String(), Name: p.String(), Message: clone(p.Bytes())}
			e.LastSeen = p.Int()
			h.entities[n] = e
			b.touched = append(b.touched, size{n, uint32(before - p.Len()), true})
		case recSeen:
			at := p.Int()
			if e := h.entities[n]; e != nil {
				e.LastSeen = at
			}
		case recDeleteEntity:
			delete(h.entities, n)
			b.touched = append(b.touched, size{number: n, entity: true})
		default:
			return errkind.Errorf(errkind.Corrupt, "a record of kind %q", rune(kind))
		}
	}
	return p.Err()
}

// delta steps a result onwards, as its owner did.
func (h *held) delta(p *pack.Reader, n eventstore.Number) error {
	var res monitor.Result
	readResult(p, &res)
	what := eventstore.News(p.Uint())
	var output, hooks []byte
	var silenced []string
	if what&eventstore.NewOutput != 0 {
		output = clone(p.Bytes())
	}
	if what&eventstore.NewHooks != 0 {
		hooks = clone(p.Bytes())
	}
	if what&eventstore.NewSilences != 0 {
		silenced = p.Strings()
	}
	if p.Err() != nil {
		return p.Err()
	}
	r := h.results[n]
	if r == nil {
		// Its whole form was in a segment that went: the key was gone by then, or put whole again further on.
		return nil
	}
	limits, ok := h.limits[n]
	if !ok {
		kind, err := monitor.NewKind(r.Stable)
		if err != nil {
			return errkind.E(errkind.Corrupt, "a check's configuration", err)
		}
		limits = kind.Thresholds
		h.limits[n] = limits
	}
	kept := r.State.Silenced
	r.State, _ = monitor.Step(r.State, res, limits, nil)
	r.State.Silenced = kept
	if what&eventstore.NewOutput != 0 {
		r.Output = output
	}
	if what&eventstore.NewHooks != 0 {
		r.Hooks = hooks
	}
	if what&eventstore.NewSilences != 0 {
		r.State.Silenced = silenced
	}
	return nil
}

func clone(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}
