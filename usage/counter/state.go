package counter

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/logrecord"
)

// state is what the records of a log add up to. It is a function of them and of the configuration.
type state struct {
	cfg    Config
	dedup  *dedup.State
	counts *aggregate.Counter
	// defs are the definitions of what has been counted.
	defs map[defKey]*usage.Product
	// corrections are those that stand in the log, with their places, for replays of parts of it.
	corrections []placed
	late        []LateEvent
	next        uint64 // offset of the next record
	// correcting is a correction that stands in the log before next, and is not done; nil is none.
	correcting *correcting
}

type defKey struct {
	name       string
	generation uint32
}

type placed struct {
	usage.Correction
	Order uint64
}

// LateEvent is one that came too late to be counted.
type LateEvent struct {
	Tenant  string    `json:"tenant"`
	Product string    `json:"product"`
	Source  string    `json:"source,omitempty"`
	ID      string    `json:"id,omitempty"`
	Time    time.Time `json:"time"`
	Came    time.Time `json:"received"`
}

// maxLate bounds the list of late events, maxPlaced that of corrections.
const (
	maxLate   = 1000
	maxPlaced = 10_000
)

func newState(cfg Config) *state {
	return &state{cfg: cfg, dedup: dedup.NewState(cfg.Dedup), counts: aggregate.New(cfg.Aggregate),
		defs: map[defKey]*usage.Product{}}
}

// order is the place of an event in the log.
func order(offset uint64, event int) uint64 { return offset<<16 | uint64(event) }

// apply counts a record of events.
func (s *state) apply(r *logrecord.Record, observed []usage.Observation, offset uint64) []dedup.Verdict {
	s.dedup.Advance(r.At)
	verdicts := make([]dedup.Verdict, len(observed))
	whole := dedup.New
	if r.Producer != "" {
		whole = s.dedup.Batch(r.Producer, r.Epoch, r.Sequence)
	}
	for i := range observed {
		o := &observed[i]
		verdict, id := whole, o.ID
		if r.Producer != "" {
			id = usage.Hash{}
		}
		if whole == dedup.New {
			verdict = s.dedup.Event(id, time.Unix(0, o.Time), o.Product.Late)
		}
		if verdict == dedup.New {
			s.define(o.Product)
			if s.counts.Apply(o, order(offset, i)) != aggregate.Counted {
				verdict = dedup.Late
			} else {
				s.correcting.saw(o, r.Events[i].Source, order(offset, i))
			}
		}
		if verdict == dedup.Late {
			s.tooLate(&r.Events[i], o, r.At)
		}
		verdicts[i] = verdict
	}
	s.counts.Advance(r.At)
	s.next = offset + 1
	return verdicts
}

func (s *state) define(p *usage.Product) {
	key := defKey{p.Name, p.Generation}
	if s.defs[key] != p {
		s.defs[key] = p
	}
}

func (s *state) tooLate(e *usage.Event, o *usage.Observation, came time.Time) {
	s.late = append(s.late, LateEvent{o.Tenant, o.Product.Name, e.Source, e.ID, time.Unix(0, o.Time).UTC(), came})
	if len(s.late) > maxLate {
		s.late = append(s.late[:0], s.late[len(s.late)-maxLate:]...)
	}
}

// product finds the definition of a series.
func (s *state) product(of aggregate.Series) (*usage.Product, bool) {
	p := s.defs[defKey{of.Product, of.Generation}]
	return p, p != nil
}

// frozen is the state as it was at one moment. It is encoded while the state goes on.
type frozen struct {
	next        uint64
	defs        []*usage.Product
	dedup       *dedup.Frozen
	counts      *aggregate.Frozen
	corrections []placed
	late        []LateEvent
}

// freeze takes hold of the state. Like release, it is for who has it; append is for any goroutine.
func (s *state) freeze() *frozen {
	return &frozen{next: s.next, defs: slices.Collect(maps.Values(s.defs)), dedup: s.dedup.Freeze(),
		counts: s.counts.Freeze(), corrections: slices.Clone(s.corrections), late: slices.Clone(s.late)}
}

func (f *frozen) release() {
	f.dedup.Release()
	f.counts.Release()
}

// append encodes the state.
func (f *frozen) append(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.Uint(pack.Uint(b, 1), f.next)
	b = pack.Uint(b, uint64(len(f.defs)))
	for _, p := range f.defs {
		b = logrecord.AppendProduct(b, p)
	}
	b = f.dedup.Append(b)
	b = f.counts.Append(b)
	corrections, _ := json.Marshal(f.corrections) // strings, times and integers: there is no reason to fail
	late, _ := json.Marshal(f.late)               // the same
	return pack.End(pack.Bytes(pack.Bytes(b, corrections), late), mark)
}

func readState(data []byte, cfg Config) (*state, error) {
	r := pack.Read(data).Record()
	s := newState(cfg)
	if v := r.Uint(); v != 1 {
		return nil, errkind.Errorf(errkind.Corrupt, "usage: a snapshot of version %d is not known here", v)
	}
	s.next = r.Uint()
	var defs logrecord.Reader
	for range r.Count() {
		p, err := defs.Product(r)
		if err != nil {
			return nil, err
		}
		s.define(p)
	}
	var err error
	if s.dedup, err = dedup.Read(r, cfg.Dedup); err != nil {
		return nil, err
	}
	if s.counts, err = aggregate.Read(r, cfg.Aggregate, s.product); err != nil {
		return nil, err
	}
	corrections, late := r.Bytes(), r.Bytes()
	if r.Err() != nil {
		return nil, r.Err()
	}
	if err := json.Unmarshal(corrections, &s.corrections); err != nil {
		return nil, err
	}
	return s, json.Unmarshal(late, &s.late)
}
