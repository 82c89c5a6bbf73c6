package faultrun

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/kit/fault/history"
)

// LeaseBound is how stale a default read may be: the leader's lease at raft_multiplier 1.
const LeaseBound = 500 * time.Millisecond

// StaleMargin is what a stale read may be older than it says: what a leader whose clock
// runs a tenth wrong misjudges of its own age before it steps down. The network adds nothing.
const StaleMargin = 100 * time.Millisecond

// BoundsReport tells how stale reads were.
type BoundsReport struct {
	DefaultReads, StaleReads, StaleWithoutLeader int
	// Unjudged reads gave a value whose write had an unknown outcome: it may have landed at any
	// later time, over newer values too, and so says nothing of the read's age.
	Unjudged int
	// DefaultMax is the oldest a default read was; StaleMax and StaleOver the oldest a stale
	// read was, and how far any was older than its X-Consul-LastContact.
	DefaultMax, StaleMax, StaleOver time.Duration
}

// bounds records registers with one writer each, which sends values in growing order. A write of
// unknown outcome may land late, over newer ones; writes with a known outcome land in order.
type bounds struct {
	begin time.Time
	mu    sync.Mutex // guards the rest
	Regs  []register
	Reads []BoundedRead
}

// register is one writer's: acked[n] is when the write of value n+1 was known to be done, zero while not.
type register struct {
	Acked []time.Duration
}

type BoundedRead struct {
	register    int
	Stale       bool
	leader      bool // the server knew one
	Start       time.Duration
	Value       int
	LastContact time.Duration
}

func NewBounds(writers int) *bounds {
	return &bounds{begin: time.Now(), Regs: make([]register, writers)}
}

// send notes that a writer sends its next value.
func (b *bounds) send(writer int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Regs[writer].Acked = append(b.Regs[writer].Acked, 0)
	return len(b.Regs[writer].Acked)
}

func (b *bounds) ack(writer, value int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Regs[writer].Acked[value-1] = time.Since(b.begin)
}

func (b *bounds) read(r BoundedRead) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Reads = append(b.Reads, r)
}

// age is for how long, at the read's start, a newer value than the read's had been acknowledged.
func (r register) age(read BoundedRead) time.Duration {
	oldest := time.Duration(math.MaxInt64)
	for _, at := range r.Acked[min(read.Value, len(r.Acked)):] {
		if at > 0 {
			oldest = min(oldest, at)
		}
	}
	return max(0, read.Start-oldest)
}

func (b *bounds) Judge() (report BoundsReport, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, read := range b.Reads {
		reg := b.Regs[read.register]
		if read.Value > len(reg.Acked) {
			errs = append(errs, fmt.Errorf("register %d: value %d was read, only %d were ever sent", read.register, read.Value,
				len(reg.Acked)))
			continue
		}
		if read.Value > 0 && reg.Acked[read.Value-1] == 0 {
			report.Unjudged++
			continue
		}
		age := reg.age(read)
		if !read.Stale {
			report.DefaultReads++
			report.DefaultMax = max(report.DefaultMax, age)
			if age > LeaseBound {
				errs = append(errs, fmt.Errorf("at %s a default read of register %d gave value %d, stale for %s: the lease "+
					"allows %s",
					read.Start, read.register, read.Value, age, LeaseBound))
			}
			continue
		}
		report.StaleReads++
		report.StaleMax = max(report.StaleMax, age)
		if !read.leader {
			report.StaleWithoutLeader++
		}
		over := age - read.LastContact
		report.StaleOver = max(report.StaleOver, over)
		if over > StaleMargin {
			errs = append(errs, fmt.Errorf("at %s a stale read of register %d gave value %d, stale for %s, but stated a last "+
				"contact of %s",
				read.Start, read.register, read.Value, age, read.LastContact))
		}
	}
	if len(errs) > 5 {
		errs = append(slices.Clip(errs[:5]), fmt.Errorf("and %d more", len(errs)-5))
	}
	return report, errors.Join(errs...)
}

func (w *worker) writeRegister(ctx context.Context) history.Outcome {
	value := w.shared.Bounds.send(w.id)
	r := w.client.Do(ctx, "PUT", "/v1/kv/reg/"+strconv.Itoa(w.id), []byte(strconv.Itoa(value)))
	if r.Outcome == history.OK {
		w.shared.Bounds.ack(w.id, value)
	}
	return r.Outcome
}

// readRegister reads any register, half of the time stale.
func (w *worker) readRegister(ctx context.Context) (history.Outcome, error) {
	read := BoundedRead{register: w.rng.IntN(w.of), Stale: w.rng.IntN(2) == 0, Start: time.Since(w.shared.Bounds.begin)}
	params := ""
	if read.Stale {
		params = "?stale"
	}
	pair, found, r := w.client.get(ctx, "reg/"+strconv.Itoa(read.register), params)
	if r.Outcome != history.OK {
		return r.Outcome, nil
	}
	var err error
	if found {
		if read.Value, err = strconv.Atoi(pair.Text()); err != nil {
			return r.Outcome, fmt.Errorf("register %d: %w", read.register, err)
		}
	}
	contact := r.Header.Get("X-Consul-LastContact")
	millis, err := strconv.ParseUint(contact, 10, 64)
	if err != nil {
		return r.Outcome, fmt.Errorf("X-Consul-LastContact: %w", err)
	}
	read.LastContact = time.Duration(min(millis, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
	read.leader = r.Header.Get("X-Consul-KnownLeader") == "true"
	w.shared.Bounds.read(read)
	return r.Outcome, nil
}
