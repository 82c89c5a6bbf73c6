package storage

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// Metered counts the calls of a backend that is somewhere else, for the doctor: storage.call{plane,backend,op} with
// op read or commit, storage.errors{plane,backend} and storage.inflight_ms{plane,backend}, the age of the oldest call
// that has not returned. Lists and scans are as long as what they give, so they count as in flight alone. It costs a
// lock for some instructions, which is nothing beside a round trip.
type Metered struct {
	Backend
	read, commit *telemetry.Timing
	errors       *telemetry.Counter

	mu     sync.Mutex // guards the list of calls in flight, the oldest first
	oldest *flight
	newest *flight
}

// flight is a call that has not returned.
type flight struct {
	began        time.Time
	older, newer *flight
}

// Meter makes a Metered.
func Meter(b Backend, plane string, r *telemetry.Registry) *Metered {
	name := b.Info().Name
	m := &Metered{Backend: b,
		read:   r.Timing("storage.call", "plane", plane, "backend", name, "op", "read"),
		commit: r.Timing("storage.call", "plane", plane, "backend", name, "op", "commit"),
		errors: r.Counter("storage.errors", "plane", plane, "backend", name)}
	r.GaugeFunc("storage.inflight_ms", m.age, "plane", plane, "backend", name)
	return m
}

// age is how long the oldest call has taken so far, in milliseconds.
func (m *Metered) age() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.oldest == nil {
		return 0
	}
	return float64(time.Since(m.oldest.began)) / float64(time.Millisecond)
}

func (m *Metered) begin() *flight {
	f := &flight{began: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	f.older, m.newest = m.newest, f
	if f.older == nil {
		m.oldest = f
	} else {
		f.older.newer = f
	}
	return f
}

// end takes a call off the list. Callers that gave up, and writers that were fenced, are no fault of the storage.
func (m *Metered) end(ctx context.Context, f *flight, t *telemetry.Timing, err error) {
	m.mu.Lock()
	if f.older == nil {
		m.oldest = f.newer
	} else {
		f.older.newer = f.newer
	}
	if f.newer == nil {
		m.newest = f.older
	} else {
		f.newer.older = f.older
	}
	m.mu.Unlock()
	t.Observe(time.Since(f.began))
	if err != nil && ctx.Err() != context.Canceled && isFault(err) {
		m.errors.Add(1)
	}
}

// isFault reports whether an error is the storage's, and not an answer of it.
func isFault(err error) bool {
	switch errkind.Of(err) {
	case errkind.Overloaded, errkind.Unavailable, errkind.Unknown, errkind.Internal, errkind.Corrupt:
		return true
	default:
		return false
	}
}

// Get implements Backend.
func (m *Metered) Get(ctx context.Context, key string) (value []byte, ok bool, err error) {
	f := m.begin()
	defer func() { m.end(ctx, f, m.read, err) }()
	return m.Backend.Get(ctx, key)
}

// List implements Backend.
func (m *Metered) List(ctx context.Context, prefix, after string, limit int) (names []string, err error) {
	f := m.begin()
	defer func() { m.end(ctx, f, nil, err) }()
	return m.Backend.List(ctx, prefix, after, limit)
}

// Scan implements Backend.
func (m *Metered) Scan(ctx context.Context, from, to string, limit int) (records []Record, err error) {
	f := m.begin()
	defer func() { m.end(ctx, f, nil, err) }()
	return m.Backend.Scan(ctx, from, to, limit)
}

// Commit implements Backend.
func (m *Metered) Commit(ctx context.Context, epoch Epoch, ops []Op) (err error) {
	f := m.begin()
	defer func() { m.end(ctx, f, m.commit, err) }()
	return m.Backend.Commit(ctx, epoch, ops)
}
