// Package logrecord is what stands in the log of usage events: a batch, or a correction, with the time at which it was
// taken and the definitions by which its events were understood. So a replay needs nothing but the log: it observes
// the same events by the same definitions, and comes to the same numbers, whatever became of the definitions since.
//
// A record is one of kit/pack. Read never panics, and allocates no more than the input allows. Pure functions, for
// any goroutine; a Reader for one at a time.
package logrecord

import (
	"encoding/json"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
)

const version = 1

// Record is an entry of the log.
type Record struct {
	At time.Time
	// Products are the definitions of all events.
	Products []*usage.Product
	batch.Batch
	// Correction is nil in a record of events. Its Events stand in the batch, where this log counts them.
	Correction *usage.Correction
}

// Append encodes a record.
func Append(b []byte, r *Record) []byte {
	b, mark := pack.Begin(b)
	b = pack.Int(pack.Uint(b, version), r.At.UnixNano())
	b = pack.Uint(b, uint64(len(r.Products)))
	for _, p := range r.Products {
		b = AppendProduct(b, p)
	}
	b = batch.Append(b, &r.Batch)
	var text []byte
	if r.Correction != nil {
		c := *r.Correction
		c.Events = nil
		text, _ = json.Marshal(&c) // strings, times and quantities: it has no reason to fail
	}
	return pack.End(pack.Bytes(b, text), mark)
}

// AppendProduct encodes what counting needs of a definition.
func AppendProduct(b []byte, p *usage.Product) []byte {
	b, mark := pack.Begin(b)
	b = pack.Uint(pack.Uint(pack.String(b, p.Name), uint64(p.Kind)), uint64(p.Generation))
	b = pack.Strings(pack.String(pack.Strings(b, p.Identity), p.Value), p.Tags)
	b = pack.Uint(pack.Uint(pack.Uint(b, uint64(p.TopK)), uint64(p.ExactBelow)), uint64(p.Precision))
	return pack.End(pack.Int(b, int64(p.Late)), mark)
}

// Reader decodes records; definitions that come again are one value.
type Reader struct{ known map[string]*usage.Product }

// maxKnown bounds what a Reader remembers; beyond, it begins anew.
const maxKnown = 10_000

var errDamaged = errkind.New(errkind.Corrupt, "usage: a record of the log is damaged")

// Product decodes what AppendProduct wrote.
func (d *Reader) Product(outer *pack.Reader) (*usage.Product, error) {
	r := outer.Record()
	p := usage.Product{Name: r.String(), Kind: usage.Kind(r.Uint()), Generation: uint32(r.Uint()), Identity: r.Strings(),
		Value: r.String(), Tags: r.Strings(), TopK: int(r.Uint()), ExactBelow: int(r.Uint()), Precision: int(r.Uint()),
		Late: time.Duration(r.Int())}
	if r.Err() != nil || p.Complete() != nil {
		return nil, errDamaged
	}
	key := string(AppendProduct(nil, &p))
	if old := d.known[key]; old != nil {
		return old, nil
	}
	if d.known == nil || len(d.known) >= maxKnown {
		d.known = map[string]*usage.Product{}
	}
	d.known[key] = &p
	return &p, nil
}

// Read decodes a record. Its texts are copies.
func (d *Reader) Read(data []byte) (*Record, error) {
	outer := pack.Read(data)
	r := outer.Record()
	if v := r.Uint(); r.Err() == nil && v != version {
		return nil, errkind.Errorf(errkind.Corrupt, "usage: a record of the log has version %d, which is not known here", v)
	}
	out := &Record{At: time.Unix(0, r.Int()).UTC()}
	for range r.Count() {
		p, err := d.Product(r)
		if err != nil {
			return nil, err
		}
		out.Products = append(out.Products, p)
	}
	// The batch is a record by itself: it is read from its frame.
	inner := r.Record()
	if r.Err() != nil {
		return nil, errDamaged
	}
	b, err := batch.ReadRecord(inner)
	if err != nil {
		return nil, errDamaged
	}
	out.Batch = *b
	if text := r.Bytes(); len(text) > 0 {
		out.Correction = new(usage.Correction)
		if err := json.Unmarshal(text, out.Correction); err != nil {
			return nil, errDamaged
		}
		out.Correction.Events = out.Events
	}
	if r.Err() != nil {
		return nil, errDamaged
	}
	return out, nil
}

// Product finds the definition of an event.
func (r *Record) Product(name string) *usage.Product {
	for _, p := range r.Products {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Observe observes each event as it was observed when the record was made.
func (r *Record) Observe(key usage.Key) ([]usage.Observation, error) {
	out := make([]usage.Observation, len(r.Events))
	var buf []byte
	var err error
	for i := range r.Events {
		e := &r.Events[i]
		p := r.Product(e.Product)
		if p == nil {
			return nil, errDamaged
		}
		if out[i], buf, err = p.Observe(key, e, r.At, buf); err != nil {
			return nil, errkind.E(errkind.Corrupt, "usage: a record of the log", err)
		}
	}
	return out, nil
}
