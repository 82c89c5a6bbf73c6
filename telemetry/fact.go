package telemetry

import (
	"context"
	"sync"
	"time"
)

// Fact is a typed event that an owner of background work reports: something began,
// ended, or passed a bound. Facts are rare; what happens per request is a counter.
// Any package may define facts; they are read by the doctor, never parsed from text.
type Fact interface {
	// FactName is a stable dotted name, such as disk.stall_began.
	FactName() string
}

// StallBegan says that a disk has not finished a write for that long.
type StallBegan struct {
	Disk string
	For  time.Duration
}

// FactName implements Fact.
func (StallBegan) FactName() string { return "disk.stall_began" }

// StallEnded says that a stalled disk works again, and how long it stood.
type StallEnded struct {
	Disk string
	For  time.Duration
}

// FactName implements Fact.
func (StallEnded) FactName() string { return "disk.stall_ended" }

// SinkFailing says that a telemetry sink cannot deliver; Reason is the last error.
type SinkFailing struct{ Sink, Reason string }

// FactName implements Fact.
func (SinkFailing) FactName() string { return "telemetry.sink_failing" }

// SinkRecovered says that a failing sink delivers again.
type SinkRecovered struct{ Sink string }

// FactName implements Fact.
func (SinkRecovered) FactName() string { return "telemetry.sink_recovered" }

// VoterRemoved says that autopilot took a failed server out of a Raft group, as a replacement has its vote.
type VoterRemoved struct{ Group, Server, ID string }

// FactName implements Fact.
func (VoterRemoved) FactName() string { return "autopilot.removed" }

// Record is a published fact. Seq grows by one for each.
type Record struct {
	Seq  uint64
	At   time.Time
	Fact Fact
}

// factRing keeps the newest facts. A reader that is too slow loses the oldest, and
// is told how many; the publisher never waits for one.
type factRing struct {
	mu   sync.Mutex // guards all below; nothing is called under it
	ring []Record
	next uint64        // Seq of the next fact; the ring holds [next-len, next)
	wake chan struct{} // closed at the next Publish; nil when nobody waits
}

func newFactRing(size int) *factRing { return &factRing{ring: make([]Record, size), next: 1} }

// Publish adds a fact. It never blocks on readers. The fact must not be changed afterwards.
func (r *Registry) Publish(f Fact) {
	if r == nil || f == nil {
		return
	}
	now := r.cfg.Clock.Now()
	ring := r.facts
	ring.mu.Lock()
	defer ring.mu.Unlock()
	ring.ring[ring.next%uint64(len(ring.ring))] = Record{ring.next, now, f}
	ring.next++
	if ring.wake != nil {
		close(ring.wake)
		ring.wake = nil
	}
}

// FactReader follows the facts from where it was made. Use it from one goroutine.
type FactReader struct {
	ring *factRing
	next uint64
	lost uint64
}

// Facts returns a reader that begins with the oldest fact still kept. It holds no
// resources and needs no closing. It is nil, and then never yields, for a nil Registry.
func (r *Registry) Facts() *FactReader {
	if r == nil {
		return nil
	}
	return &FactReader{ring: r.facts, next: 1}
}

// Lost is how many facts this reader missed because they left the ring unread,
// not counting those that were gone when it was made.
func (f *FactReader) Lost() uint64 {
	if f == nil {
		return 0
	}
	return f.lost
}

// TryNext returns the next fact without waiting; ok is false when there is none.
func (f *FactReader) TryNext() (rec Record, ok bool) {
	if f == nil {
		return Record{}, false
	}
	rec, ok, _ = f.take(false)
	return rec, ok
}

// Next waits for the next fact; its error is ctx's.
func (f *FactReader) Next(ctx context.Context) (Record, error) {
	if f == nil {
		<-ctx.Done()
		return Record{}, ctx.Err()
	}
	for {
		rec, ok, wake := f.take(true)
		if ok {
			return rec, nil
		}
		select {
		case <-ctx.Done():
			return Record{}, ctx.Err()
		case <-wake:
		}
	}
}

func (f *FactReader) take(wait bool) (rec Record, ok bool, wake <-chan struct{}) {
	ring := f.ring
	ring.mu.Lock()
	defer ring.mu.Unlock()
	size := uint64(len(ring.ring))
	if oldest := ring.next - min(ring.next-1, size); f.next < oldest {
		if f.next > 1 {
			f.lost += oldest - f.next
		}
		f.next = oldest
	}
	if f.next < ring.next {
		rec = ring.ring[f.next%size]
		f.next++
		return rec, true, nil
	}
	if wait && ring.wake == nil {
		ring.wake = make(chan struct{})
	}
	return Record{}, false, ring.wake
}
