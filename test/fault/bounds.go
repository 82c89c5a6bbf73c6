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
	regs  []register
	reads []boundedRead
}

// register is one writer's: acked[n] is when the write of value n+1 was known to be done, zero while not.
type register struct {
	acked []time.Duration
}

type boundedRead struct {
	register    int
	stale       bool
	leader      bool // the server knew one
	start       time.Duration
	value       int
	lastContact time.Duration
}

func newBounds(writers int) *bounds {
	return &bounds{begin: time.Now(), regs: make([]register, writers)}
}

// send notes that a writer sends its next value.
func (b *bounds) send(writer int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.regs[writer].acked = append(b.regs[writer].acked, 0)
	return len(b.regs[writer].acked)
}

func (b *bounds) ack(writer, value int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.regs[writer].acked[value-1] = time.Since(b.begin)
}

func (b *bounds) read(r boundedRead) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads = append(b.reads, r)
}

// age is for how long, at the read's start, a newer value than the read's had been acknowledged.
func (r register) age(read boundedRead) time.Duration {
	oldest := time.Duration(math.MaxInt64)
	for _, at := range r.acked[min(read.value, len(r.acked)):] {
		if at > 0 {
			oldest = min(oldest, at)
		}
	}
	return max(0, read.start-oldest)
}

func (b *bounds) judge() (report BoundsReport, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, read := range b.reads {
		reg := b.regs[read.register]
		if read.value > len(reg.acked) {
			errs = append(errs, fmt.Errorf("register %d: value %d was read, only %d were ever sent", read.register, read.value,
				len(reg.acked)))
			continue
		}
		if read.value > 0 && reg.acked[read.value-1] == 0 {
			report.Unjudged++
			continue
		}
		age := reg.age(read)
		if !read.stale {
			report.DefaultReads++
			report.DefaultMax = max(report.DefaultMax, age)
			if age > LeaseBound {
				errs = append(errs, fmt.Errorf("at %s a default read of register %d gave value %d, stale for %s: the lease "+
					"allows %s",
					read.start, read.register, read.value, age, LeaseBound))
			}
			continue
		}
		report.StaleReads++
		report.StaleMax = max(report.StaleMax, age)
		if !read.leader {
			report.StaleWithoutLeader++
		}
		over := age - read.lastContact
		report.StaleOver = max(report.StaleOver, over)
		if over > StaleMargin {
			errs = append(errs, fmt.Errorf("at %s a stale read of register %d gave value %d, stale for %s, but stated a last "+
				"contact of %s",
				read.start, read.register, read.value, age, read.lastContact))
		}
	}
	if len(errs) > 5 {
		errs = append(slices.Clip(errs[:5]), fmt.Errorf("and %d more", len(errs)-5))
	}
	return report, errors.Join(errs...)
}

func (w *worker) writeRegister(ctx context.Context) history.Outcome {
	value := w.shared.bounds.send(w.id)
	r := w.client.Do(ctx, "PUT", "/v1/kv/reg/"+strconv.Itoa(w.id), []byte(strconv.Itoa(value)))
	if r.Outcome == history.OK {
		w.shared.bounds.ack(w.id, value)
	}
	return r.Outcome
}

// readRegister reads any register, half of the time stale.
func (w *worker) readRegister(ctx context.Context) (history.Outcome, error) {
	read := boundedRead{register: w.rng.IntN(w.of), stale: w.rng.IntN(2) == 0, start: time.Since(w.shared.bounds.begin)}
	params := ""
	if read.stale {
		params = "?stale"
	}
	pair, found, r := w.client.get(ctx, "reg/"+strconv.Itoa(read.register), params)
	if r.Outcome != history.OK {
		return r.Outcome, nil
	}
	var err error
	if found {
		if read.value, err = strconv.Atoi(pair.text()); err != nil {
			return r.Outcome, fmt.Errorf("register %d: %w", read.register, err)
		}
	}
	contact := r.Header.Get("X-Consul-LastContact")
	millis, err := strconv.ParseUint(contact, 10, 64)
	if err != nil {
		return r.Outcome, fmt.Errorf("X-Consul-LastContact: %w", err)
	}
	read.lastContact = time.Duration(min(millis, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
	read.leader = r.Header.Get("X-Consul-KnownLeader") == "true"
	w.shared.bounds.read(read)
	return r.Outcome, nil
}
