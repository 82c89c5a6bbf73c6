package relay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/merge"
)

const (
	loadEvents = usage.MaxEvents // of one delivery, as they come out of the buffer
	loadBytes  = 4 << 20
	// namelessBytes keeps a merged batch below what becomes one record of a server's log: it is stored whole or not. A
	// version of Corbel with another number, or that merges otherwise, may count a delivery twice that was begun by this
	// one and not confirmed.
	namelessBytes  = 120 << 10
	deliverTimeout = 30 * time.Second
	complainEvery  = time.Minute
)

// sending is one run of deliveries. One goroutine uses it.
type sending struct {
	r            *Relay
	log          eventlog.Log
	epoch        uint64
	from, sealed uint64 // what servers have; up to where the delivery that was begun goes, from where it is the same
	complained   time.Time
}

// newSending reads how far deliveries have come. The first one of a folder makes its epoch.
func newSending(ctx context.Context, r *Relay, log eventlog.Log) (*sending, error) {
	s := &sending{r: r, log: log, epoch: uint64(r.cfg.Clock.Now().UnixNano())}
	for group, to := range map[string]*uint64{groupSent: &s.from, groupSealed: &s.sealed} {
		list, err := log.Committed(ctx, group)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			*to = p.Offset
		}
	}
	list, err := log.Committed(ctx, groupEpoch)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return s, log.Commit(ctx, groupEpoch, []eventlog.Position{{Note: pack.Uint(nil, s.epoch)}})
	}
	note := pack.Read(list[0].Note)
	s.epoch = note.Uint()
	return s, note.Err()
}

// load is what one delivery consists of.
type load struct {
	next     uint64 // the offset behind it
	events   int
	bytes    int
	named    []usage.Event
	nameless merge.Set
	batches  []*batch.Batch // that have a name
}

// run delivers until ctx ends.
func (s *sending) run(ctx context.Context) error {
	for {
		until, err := s.wait(ctx)
		if err != nil || ctx.Err() != nil {
			return notEnded(ctx, err)
		}
		l, err := s.fill(ctx, until)
		if err == nil && len(l.nameless.Events()) > 0 && l.next > s.sealed {
			err = s.commit(ctx, groupSealed, l.next)
			s.sealed = l.next
		}
		if err == nil {
			err = s.send(ctx, l)
		}
		if err == nil {
			err = s.commit(ctx, groupSent, l.next)
		}
		if err != nil || ctx.Err() != nil {
			return notEnded(ctx, err)
		}
		s.from = l.next
		s.r.delivered(s.log, s.from)
		s.r.meters.delivered.Add(uint64(l.events))
	}
}

// notEnded leaves out an error that comes from the end.
func notEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *sending) commit(ctx context.Context, group string, offset uint64) error {
	return s.log.Commit(ctx, group, []eventlog.Position{{Offset: offset}})
}

// wait waits until there is something to send and it had company, and returns up to where the delivery may go.
func (s *sending) wait(ctx context.Context) (until uint64, err error) {
	if s.sealed > s.from {
		return s.sealed, nil
	}
	reader, err := s.log.Reader(map[int]uint64{0: s.from})
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	list, err := reader.Next(ctx)
	if err != nil {
		return 0, err
	}
	if s.r.cfg.Clock.Since(list[0].At) < s.r.cfg.Gather {
		s.r.sleep(ctx, s.r.cfg.Gather)
	}
	bounds, err := s.log.Bounds(ctx)
	if err != nil {
		return 0, err
	}
	return bounds[0].Next, nil
}

// errLoaded ends a scan: the delivery is full.
var errLoaded = errkind.New(errkind.Conflict, "usage: the delivery is full")

// fill reads what the next delivery consists of: all up to until, or as much as fits. One that was sealed is the same
// again, for its end is that of the former one.
func (s *sending) fill(ctx context.Context, until uint64) (*load, error) {
	l := &load{}
	err := scan(ctx, s.log, s.from, until, func(next uint64, rec *record) error {
		l.add(rec)
		l.next = next
		if s.sealed <= s.from && (l.events >= loadEvents || l.bytes >= loadBytes || l.nameless.Bytes() >= namelessBytes) {
			return errLoaded
		}
		return nil
	})
	if err == errLoaded {
		err = nil
	}
	if err == nil && l.next == 0 { // an Append is whole: a batch cannot end behind what is durable
		err = errDamaged
	}
	return l, err
}

func (l *load) add(rec *record) {
	l.events += len(rec.Events)
	for i := range rec.Events {
		l.bytes += merge.Bytes(&rec.Events[i])
	}
	if rec.Producer != "" {
		l.batches = append(l.batches, rec.Batch)
		return
	}
	for i := range rec.Events {
		e := &rec.Events[i]
		if e.ID != "" {
			l.named = append(l.named, *e)
			continue
		}
		l.nameless.Add(rec.kinds[e.Product], e)
	}
}

// send has servers store a delivery.
func (s *sending) send(ctx context.Context, l *load) error {
	list := l.batches
	for part := range slices.Chunk(l.named, usage.MaxEvents/2) {
		list = append(list, &batch.Batch{Events: part})
	}
	events, number := l.nameless.Events(), 0
	for len(events) > 0 {
		n, bytes := 0, 0
		for n < len(events) && (n == 0 || bytes+merge.Bytes(&events[n]) <= namelessBytes) && n < usage.MaxEvents {
			bytes += merge.Bytes(&events[n])
			n++
		}
		list = append(list, &batch.Batch{Producer: fmt.Sprintf("%s/%d", s.r.cfg.Name, number), Epoch: s.epoch,
			Sequence: l.next, Events: events[:n]})
		events, number = events[n:], number+1
	}
	for _, b := range list {
		if err := s.deliver(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// deliver sends a batch until a server has stored it. Its error is that of ctx.
func (s *sending) deliver(ctx context.Context, b *batch.Batch) error {
	pause := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		one, cancel := context.WithTimeout(ctx, deliverTimeout)
		answer, err := s.r.cfg.Deliver(one, b)
		cancel()
		switch {
		case err == nil:
			if n := len(answer.Rejected); n > 0 {
				s.r.meters.rejected.Add(uint64(n))
				s.r.cfg.Log.Warn("usage: servers rejected events that this agent had taken", "events", n,
					"first", answer.Rejected[0].Error)
			}
			return nil
		case errkind.Is(err, errkind.Invalid) || errkind.Is(err, errkind.TooLarge): // it would be so for ever
			s.r.meters.lost.Add(uint64(len(b.Events)))
			s.r.cfg.Log.Error("usage: servers do not take a batch that this agent had taken: it is lost", "events",
				len(b.Events), "error", err)
			return nil
		}
		s.r.meters.failed.Add(1)
		if now := s.r.cfg.Clock.Now(); ctx.Err() == nil && now.Sub(s.complained) > complainEvery {
			s.complained = now
			s.r.cfg.Log.Warn("usage: events wait on this host's disk until servers take them", "error", err)
		}
		if !s.r.sleep(ctx, pause.Next()) {
			return ctx.Err()
		}
	}
}

// delivered notes how far servers have it.
func (r *Relay) delivered(log eventlog.Log, from uint64) {
	oldest := time.Time{}
	if bounds, err := log.Bounds(context.Background()); err == nil && bounds[0].Next > from {
		oldest = r.cfg.Clock.Now() // it came while the delivery was under way
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent, r.oldest = from, oldest
}

// meters are what a Relay counts.
type meters struct {
	accepted, duplicates, merged, rejected, refused, delivered, failed, lost *telemetry.Counter
	backlog, oldest, waiting                                                 *telemetry.Gauge
}

func newMeters(m *telemetry.Registry) *meters {
	return &meters{accepted: m.Counter("usage.agent.accepted"), duplicates: m.Counter("usage.agent.duplicates"),
		merged: m.Counter("usage.agent.merged"), rejected: m.Counter("usage.agent.rejected"),
		refused: m.Counter("usage.agent.refused"), delivered: m.Counter("usage.agent.delivered"),
		failed: m.Counter("usage.agent.failed"), lost: m.Counter("usage.agent.lost"),
		backlog: m.Gauge("usage.agent.buffer_bytes"), oldest: m.Gauge("usage.agent.oldest_ms"),
		waiting: m.Gauge("usage.agent.waiting")}
}

// measure sets the gauges.
func (r *Relay) measure(ctx context.Context) error {
	for r.sleep(ctx, time.Second) {
		s := r.State()
		r.meters.backlog.Set(float64(s.Bytes))
		r.meters.waiting.Set(float64(s.Records))
		age := time.Duration(0)
		if !s.Oldest.IsZero() {
			age = r.cfg.Clock.Since(s.Oldest)
		}
		r.meters.oldest.Set(float64(age / time.Millisecond))
	}
	return nil
}
