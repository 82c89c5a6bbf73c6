package relay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/merge"
	"corbel.dev/corbel/usage/router"
)

// request is a batch that waits to be written.
type request struct {
	batch.Batch // events that were found right
	kinds       []usage.Kind
	ids         []usage.Hash // zeros for events without an id
	indices     []int        // of the events in what the sender sent
	bytes       int
	answer      router.Answer
	err         error
	done        chan struct{} // closed when answer and err are known
}

// Take checks events by their products and answers when those that are right are on this host's disk. After an error
// none is known to be: the sender sends them again. What ctx ends early may be stored.
func (r *Relay) Take(ctx context.Context, b *router.Batch) (router.Answer, error) {
	req, err := r.check(ctx, b)
	if err != nil || len(req.Events) == 0 {
		return req.answer, err
	}
	if err := r.push(req); err != nil {
		r.meters.refused.Add(uint64(len(b.Items)))
		return router.Answer{}, err
	}
	select {
	case <-req.done:
	case <-ctx.Done():
		return router.Answer{}, errkind.E(errkind.Unknown, "usage: whether the events were stored is not known",
			ctx.Err())
	}
	if req.err != nil {
		r.meters.refused.Add(uint64(len(b.Items)))
		return router.Answer{}, req.err
	}
	return req.answer, nil
}

// check rejects what is wrong.
func (r *Relay) check(ctx context.Context, b *router.Batch) (*request, error) {
	req := &request{Batch: batch.Batch{Producer: b.Producer, Epoch: b.Epoch, Sequence: b.Sequence},
		done: make(chan struct{})}
	if len(b.Producer) > usage.MaxNameBytes-16 {
		return req, errkind.Errorf(errkind.Invalid, "producer: has more than %d bytes", usage.MaxNameBytes-16)
	}
	now := r.cfg.Clock.Now()
	var buf []byte
	for i := range b.Items {
		item := &b.Items[i]
		err := item.Err
		var o usage.Observation
		if err == nil {
			var p *usage.Product
			p, err = r.cfg.Product(ctx, item.Product)
			if err != nil && !errkind.Is(err, errkind.NotFound) {
				return req, err
			}
			if err == nil {
				o, buf, err = p.Observe(r.key, &item.Event, now, buf)
			}
		}
		if err != nil {
			req.answer.Rejected = append(req.answer.Rejected, router.Rejected{Index: i, Error: err.Error()})
			continue
		}
		e := item.Event
		e.Tenant, e.Time = o.Tenant, o.Time // its arrival here, where it has none
		req.Events = append(req.Events, e)
		req.kinds, req.ids = append(req.kinds, o.Product.Kind), append(req.ids, o.ID)
		req.indices = append(req.indices, i)
		req.bytes += merge.Bytes(&e)
	}
	r.meters.rejected.Add(uint64(len(req.answer.Rejected)))
	return req, nil
}

func (r *Relay) push(req *request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.log == nil:
		return errkind.New(errkind.Unavailable, "usage: this agent's buffer is not open yet: send the events again")
	case len(r.waiting) > 0 && r.bytes+req.bytes > pendingBytes:
		return errkind.New(errkind.Overloaded, "usage: too many events wait for this agent's disk: send them again")
	}
	r.waiting, r.bytes = append(r.waiting, req), r.bytes+req.bytes
	select {
	case r.arrived <- struct{}{}:
	default:
	}
	return nil
}

func (r *Relay) pull() []*request {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.waiting
	r.waiting, r.bytes = nil, 0
	return list
}

// fail answers all that wait.
func (r *Relay) fail(err error) { answer(r.pull(), err) }

func answer(list []*request, err error) {
	for _, req := range list {
		req.err = err
		close(req.done)
	}
}

// store writes what waits, one round after another, until ctx ends or the disk fails.
func (r *Relay) store(ctx context.Context, log eventlog.Log, m *memory) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.arrived:
		}
		list := r.pull()
		for len(list) > 0 {
			n, bytes := 0, 0
			for n < len(list) && (n == 0 || bytes+list[n].bytes < eventlog.MaxAppendBytes/2) {
				bytes += list[n].bytes
				n++
			}
			if err := r.round(ctx, log, m, list[:n]); err != nil {
				answer(list[n:], errkind.E(errkind.Unavailable, "usage: this agent's buffer", err))
				return err
			}
			list = list[n:]
		}
	}
}

// round writes some requests with one fsync, and answers them. An error is one of the disk.
func (r *Relay) round(ctx context.Context, log eventlog.Log, m *memory, list []*request) error {
	bytes := 0
	for _, req := range list {
		bytes += req.bytes
	}
	if info := log.Info(); info.Bytes+int64(bytes) > info.Most {
		answer(list, full(info))
		return nil
	}
	now := r.cfg.Clock.Now()
	out := m.judge(list, now)
	err := error(nil)
	var offsets []uint64
	if len(out) > 0 {
		offsets, err = log.Append(ctx, out)
	}
	if err != nil {
		m.forget() // what was judged is not stored: the next one to bring it is the first
		answer(list, err)
		if errkind.Is(err, errkind.Overloaded) || errkind.Is(err, errkind.TooLarge) || ctx.Err() != nil {
			return nil
		}
		return err
	}
	m.settle()
	receipt := r.cfg.Name
	if len(offsets) > 0 {
		r.aged(now)
		receipt = fmt.Sprintf("%s/%d", r.cfg.Name, offsets[len(offsets)-1])
	}
	for _, req := range list {
		req.answer.Receipt = receipt
		r.meters.accepted.Add(uint64(req.answer.Accepted))
		r.meters.duplicates.Add(uint64(req.answer.Duplicates))
	}
	r.meters.merged.Add(uint64(m.merged))
	answer(list, nil)
	return nil
}

func full(info eventlog.Info) error {
	return errkind.Errorf(errkind.Overloaded, "usage: this agent's buffer is full (%d of %d bytes, "+
		"usage.agent.buffer_bytes): servers do not take its events; send these again", info.Bytes, info.Most)
}

// memory is what this host knows of events that it has stored. One goroutine uses it.
type memory struct {
	cfg dedup.Config
	ids *dedup.State
	key usage.Key
	// recent are members of sets that were stored lately, by minute: once is enough. Two generations, so that the older
	// half goes when there are too many. fresh are those of this round.
	recent [2]map[usage.Hash]bool
	fresh  []usage.Hash
	buf    []byte
	merged int // events of this round that went into others
}

const recentMost = 100_000

// forget begins anew, after a round that was not stored. Servers know by id, too.
func (m *memory) forget() {
	*m = memory{cfg: m.cfg, ids: dedup.NewState(m.cfg), key: m.key}
}

// settle keeps what this round has stored.
func (m *memory) settle() {
	if len(m.recent[0])+len(m.fresh) > recentMost || m.recent[0] == nil {
		m.recent[0], m.recent[1] = map[usage.Hash]bool{}, m.recent[0]
	}
	for _, h := range m.fresh {
		m.recent[0][h] = true
	}
	m.fresh = m.fresh[:0]
}

// judge sorts out repeats, merges what may be merged, and returns what is to be written.
func (m *memory) judge(list []*request, now time.Time) (out []eventlog.Entry) {
	m.ids.Advance(now)
	m.merged = 0
	var named []usage.Event
	var nameless merge.Set
	kinds := map[string]usage.Kind{}
	for _, req := range list {
		req.answer.Accepted, req.answer.Duplicates = 0, 0
		if req.Producer != "" {
			out = m.judgeBatch(req, now, out)
			continue
		}
		for i := range req.Events {
			e := &req.Events[i]
			if e.ID == "" {
				req.answer.Accepted++
				kinds[e.Product] = req.kinds[i]
				m.mergeInto(&nameless, req.kinds[i], e)
			} else if m.ids.Event(req.ids[i], time.Unix(0, e.Time), usage.MaxLate) == dedup.Duplicate {
				req.answer.Duplicates++
			} else { // where it cannot be remembered, servers do so
				req.answer.Accepted++
				named = append(named, *e)
			}
		}
	}
	for part := range slices.Chunk(named, usage.MaxEvents) {
		out = entries(out, now, nil, &batch.Batch{Events: part})
	}
	for part := range slices.Chunk(nameless.Events(), usage.MaxEvents) {
		out = entries(out, now, kinds, &batch.Batch{Events: part})
	}
	return out
}

// judgeBatch judges a batch that has a name: it is new or not as a whole, and goes on as it is.
func (m *memory) judgeBatch(req *request, now time.Time, out []eventlog.Entry) []eventlog.Entry {
	switch verdict := m.ids.Batch(req.Producer, req.Epoch, req.Sequence); verdict {
	case dedup.Duplicate:
		req.answer.Duplicates = len(req.Events)
	case dedup.Fenced, dedup.Unknown: // servers would say so too, when nobody listens any more
		for _, i := range req.indices {
			req.answer.Rejected = append(req.answer.Rejected, router.Rejected{Index: i, Error: router.Refusal(verdict)})
		}
	default: // what this host has no room for, servers remember
		req.answer.Accepted = len(req.Events)
		out = entries(out, now, nil, &req.Batch)
	}
	return out
}

// mergeInto merges an event. A member of a set that was stored within the same minute is not stored again.
func (m *memory) mergeInto(s *merge.Set, kind usage.Kind, e *usage.Event) {
	if kind == usage.Unique {
		m.buf = merge.Key(m.buf[:0], e)
		h := m.key.Sum(m.buf)
		if m.recent[0][h] || m.recent[1][h] {
			m.merged++
			return
		}
		m.fresh = append(m.fresh, h)
	}
	if s.Add(kind, e) {
		m.merged++
	}
}

// replay takes in what was stored before a start.
func (m *memory) replay(rec *record) {
	m.ids.Advance(rec.at)
	if rec.Producer != "" {
		m.ids.Batch(rec.Producer, rec.Epoch, rec.Sequence)
		return
	}
	for i := range rec.Events {
		if e := &rec.Events[i]; e.ID != "" {
			var h usage.Hash
			h, m.buf = m.key.EventID(m.buf, e.Tenant, e.Source, e.ID)
			m.ids.Event(h, time.Unix(0, e.Time), usage.MaxLate)
		}
	}
}
