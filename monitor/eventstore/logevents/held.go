package logevents

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/eventrecord"
)

// version begins each batch of a frame, which holds: version, shard, sequence, the records with their length before
// them.
const version = 1

// held is what is known while the log is read.
type held struct {
	results  map[eventstore.Number]*eventstore.Result
	limits   map[eventstore.Number]monitor.Thresholds // read once from what is stable
	entities map[eventstore.Number]*eventstore.Entity
	shards   map[uint16]uint64
	touched  []eventrecord.Size // by the batch that is read
}

func newHeld() *held {
	return &held{results: map[eventstore.Number]*eventstore.Result{}, limits: map[eventstore.Number]monitor.Thresholds{},
		entities: map[eventstore.Number]*eventstore.Entity{}, shards: map[uint16]uint64{}}
}

// apply takes the batches of one frame to h, and tells of each what it held whole, and what went.
func (h *held) apply(content []byte, tell func([]eventrecord.Size)) error {
	p := pack.Read(content)
	for p.More() && p.Err() == nil {
		if v := p.Uint(); v != version {
			return errkind.Errorf(errkind.Corrupt, "a batch of version %d; this program knows %d", v, version)
		}
		shard := uint16(p.Uint())
		sequence := p.Uint()
		records := p.Bytes()
		if p.Err() != nil {
			break
		}
		h.touched = nil
		if err := eventrecord.Read(shard, records, h); err != nil {
			return err
		}
		h.shards[shard] = sequence
		tell(h.touched)
	}
	return p.Err()
}

// Whole implements eventrecord.Reader.
func (h *held) Whole(n eventstore.Number, r *eventstore.Result, bytes uint32) error {
	h.results[n] = r
	delete(h.limits, n)
	h.touched = append(h.touched, eventrecord.Size{Number: n, Bytes: bytes})
	return nil
}

// Delta implements eventrecord.Reader.
func (h *held) Delta(n eventstore.Number, d *eventrecord.Delta) error {
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
	d.Apply(r, limits)
	return nil
}

// Delete implements eventrecord.Reader.
func (h *held) Delete(n eventstore.Number) {
	delete(h.results, n)
	h.touched = append(h.touched, eventrecord.Size{Number: n})
}

// Entity implements eventrecord.Reader.
func (h *held) Entity(n eventstore.Number, e *eventstore.Entity, bytes uint32) {
	h.entities[n] = e
	h.touched = append(h.touched, eventrecord.Size{Number: n, Bytes: bytes, Entity: true})
}

// Seen implements eventrecord.Reader.
func (h *held) Seen(n eventstore.Number, at int64) {
	if e := h.entities[n]; e != nil {
		e.LastSeen = at
	}
}

// DeleteEntity implements eventrecord.Reader.
func (h *held) DeleteEntity(n eventstore.Number) {
	delete(h.entities, n)
	h.touched = append(h.touched, eventrecord.Size{Number: n, Entity: true})
}
