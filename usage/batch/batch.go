// Package batch is the binary form of events: what Corbel's own clients, agents and benches send to
// POST /v1/usage/batch.
//
// A batch is one record of kit/pack: a version, the producer's name, epoch and sequence (an empty name for none), a
// table of texts, then the events. Texts that come again (tenants, products, sources, names of fields) are numbers
// into the table; ids and values stand in the event. Times are differences from the event before. Fields are only
// ever added at the end of a record, so older readers read newer batches.
//
// Read never panics, allocates no more than the input allows, and gives texts that share one copy of it. Append and
// Read are inverse. Pure functions, for any goroutine.
package batch

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
)

// Version is the form that this package writes.
const Version = 1

// Batch is what a producer sends at once.
type Batch struct {
	// Producer is empty for a batch whose events have ids instead.
	Producer        string
	Epoch, Sequence uint64
	Events          []usage.Event
}

// Flags of an event.
const (
	hasValue = 1 << iota
	hasID
	wideValue // beyond 64 bits
)

// Append encodes a batch.
func Append(b []byte, batch *Batch) []byte {
	b, mark := pack.Begin(b)
	b = pack.String(pack.Uint(b, Version), batch.Producer)
	b = pack.Uint(pack.Uint(b, batch.Epoch), batch.Sequence)
	numbers := map[string]uint64{}
	var texts []string
	number := func(s string) uint64 {
		n, known := numbers[s]
		if !known {
			n = uint64(len(texts))
			numbers[s], texts = n, append(texts, s)
		}
		return n
	}
	for i := range batch.Events {
		e := &batch.Events[i]
		number(e.Tenant)
		number(e.Product)
		number(e.Source)
		for _, list := range [...][]usage.Field{e.Identity, e.Tags} {
			for _, f := range list {
				number(f.Name)
			}
		}
		for _, f := range e.Tags {
			number(f.Value)
		}
	}
	b = pack.Strings(b, texts)
	b = pack.Uint(b, uint64(len(batch.Events)))
	last := int64(0)
	for i := range batch.Events {
		e := &batch.Events[i]
		b = appendEvent(b, e, last, number)
		last = e.Time
	}
	return pack.End(b, mark)
}

func appendEvent(b []byte, e *usage.Event, last int64, number func(string) uint64) []byte {
	flags := uint64(0)
	wide := e.Value.Hi != int64(e.Value.Lo)>>63
	for _, f := range [...]struct {
		flag uint64
		set  bool
	}{{hasValue, e.HasValue}, {hasID, e.ID != ""}, {wideValue, wide}} {
		if f.set {
			flags |= f.flag
		}
	}
	b, mark := pack.Begin(b)
	b = pack.Uint(b, flags)
	b = pack.Uint(pack.Uint(pack.Uint(b, number(e.Tenant)), number(e.Product)), number(e.Source))
	b = pack.Int(b, e.Time-last) // wraps, and is unwrapped the same way
	if e.ID != "" {
		b = pack.String(b, e.ID)
	}
	if wide {
		b = pack.Int(b, e.Value.Hi)
	}
	b = pack.Int(b, int64(e.Value.Lo))
	b = pack.Uint(b, uint64(len(e.Identity)))
	for _, f := range e.Identity {
		b = pack.String(pack.Uint(b, number(f.Name)), f.Value)
	}
	b = pack.Uint(b, uint64(len(e.Tags)))
	for _, f := range e.Tags {
		b = pack.Uint(pack.Uint(b, number(f.Name)), number(f.Value))
	}
	return pack.End(b, mark)
}

// Read decodes a batch.
func Read(data []byte) (*Batch, error) {
	outer := pack.Read(data)
	b, err := ReadRecord(outer.Record())
	if err == nil && (outer.Err() != nil || outer.Len() != 0) {
		return nil, errDamaged
	}
	return b, err
}

// ReadRecord decodes the fields of a batch that is a record among others. Its texts are copies of one text.
func ReadRecord(r *pack.Reader) (*Batch, error) {
	version := r.Uint()
	if r.Err() != nil || version != Version {
		if r.Err() == nil {
			return nil, errkind.Errorf(errkind.Invalid, "batch: version %d is not known here: send version %d", version,
				Version)
		}
		return nil, errDamaged
	}
	out := &Batch{Producer: r.String(), Epoch: r.Uint(), Sequence: r.Uint()}
	texts := r.Strings()
	n := r.Count()
	if n > usage.MaxEvents {
		return nil, errkind.Errorf(errkind.TooLarge, "batch: more than %d events", usage.MaxEvents)
	}
	if len(out.Producer) > usage.MaxNameBytes {
		return nil, errkind.Errorf(errkind.Invalid, "batch: producer: has more than %d bytes", usage.MaxNameBytes)
	}
	out.Events = make([]usage.Event, n)
	var fields []usage.Field // one slice for all events
	last := int64(0)
	for i := range out.Events {
		if r.Err() != nil {
			return nil, errDamaged
		}
		var ok bool
		if fields, ok = readEvent(r.Record(), &out.Events[i], last, texts, fields); !ok {
			return nil, errkind.Errorf(errkind.Invalid, "batch: event %d: damaged", i)
		}
		last = out.Events[i].Time
	}
	if r.Err() != nil {
		return nil, errDamaged
	}
	return out, nil
}

var errDamaged = errkind.New(errkind.Invalid, "batch: damaged or truncated")

func readEvent(r *pack.Reader, e *usage.Event, last int64, texts []string, fields []usage.Field,
) (_ []usage.Field, ok bool) {
	ok = true
	text := func() string {
		if i := r.Uint(); i < uint64(len(texts)) {
			return texts[i]
		}
		ok = false
		return ""
	}
	flags := r.Uint()
	e.Tenant, e.Product, e.Source = text(), text(), text()
	e.Time = last + r.Int()
	if flags&hasID != 0 {
		e.ID = r.String()
	}
	e.HasValue = flags&hasValue != 0
	if flags&wideValue != 0 {
		e.Value.Hi = r.Int()
		e.Value.Lo = uint64(r.Int())
	} else {
		e.Value = usage.Int(r.Int())
	}
	from := len(fields)
	for range r.Count() {
		fields = append(fields, usage.Field{Name: text(), Value: r.String()})
	}
	e.Identity = fields[from:len(fields):len(fields)]
	from = len(fields)
	for range r.Count() {
		fields = append(fields, usage.Field{Name: text(), Value: text()})
	}
	e.Tags = fields[from:len(fields):len(fields)]
	return fields, ok && r.Err() == nil
}
