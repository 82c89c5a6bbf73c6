package telemetry

import (
	"math"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// cell is one shard of a counter, alone on its cache line so that cores adding to
// the same counter do not pass one line back and forth.
type cell struct {
	sum atomic.Uint64
	// excess is the sum of n-1 over all Adds, so that sum-excess is how often Add
	// was called: the usual Add(1) then costs one atomic operation, not two.
	excess atomic.Uint64
	// odd counts the Adds with n other than 1; squares is the sum of their n*n.
	odd     atomic.Uint64
	squares atomic.Uint64 // float64 bits
	_       [32]byte
}

// cellCount is a power of two, four times the cores that can add at once, so that
// two of them seldom meet. 16 bounds a counter at 1 kB.
var cellCount = min(16, 4<<bits.Len(uint(runtime.GOMAXPROCS(0)-1)))

// cellIndex picks a shard by the caller's stack address: goroutines on different
// cores have different stacks. It is spread, not per-core; any value is right.
func cellIndex(n int) int {
	var here byte
	address := uint64(uintptr(unsafe.Pointer(&here)))
	// Stacks are at least 2 kB: bits below 11 say nothing about the goroutine.
	return int((address>>11)*0x9E3779B97F4A7C15>>32) & (n - 1)
}

// Counter counts events. It only grows; readers take differences.
type Counter struct {
	cells []cell
	// low and high are the extremes of n other than 1 in the running interval;
	// low holds MaxUint64 when there was none.
	low, high atomic.Uint64
}

func newCounter() *Counter {
	c := &Counter{cells: make([]cell, cellCount)}
	c.low.Store(math.MaxUint64)
	return c
}

// Add adds n.
func (c *Counter) Add(n uint64) {
	if c == nil {
		return
	}
	shard := &c.cells[cellIndex(len(c.cells))]
	shard.sum.Add(n)
	if n != 1 {
		c.addOdd(shard, n)
	}
}

// addOdd keeps what Stddev, Min and Max need and a plain event does not.
func (c *Counter) addOdd(shard *cell, n uint64) {
	shard.excess.Add(n - 1)
	shard.odd.Add(1)
	square := float64(n) * float64(n)
	for {
		old := shard.squares.Load()
		if shard.squares.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+square)) {
			break
		}
	}
	lowerTo(&c.low, n)
	raiseTo(&c.high, n)
}

// Value is the sum of everything added so far.
func (c *Counter) Value() uint64 {
	if c == nil {
		return 0
	}
	return c.totals().sum
}

type counterTotals struct {
	sum, calls, odd uint64
	squares         float64
}

func (c *Counter) totals() (t counterTotals) {
	for i := range c.cells {
		shard := &c.cells[i]
		sum := shard.sum.Load()
		t.sum += sum
		t.calls += sum - shard.excess.Load()
		t.odd += shard.odd.Load()
		t.squares += math.Float64frombits(shard.squares.Load())
	}
	return t
}

// Gauge is a value that goes up and down.
type Gauge struct{ bits atomic.Uint64 }

// unset marks a gauge nobody has set: exporters that show only live values skip it.
const unset = 0x7ff8_0000_dead_0001 // a NaN that Set never stores

func newGauge() *Gauge {
	g := &Gauge{}
	g.bits.Store(unset)
	return g
}

// Set stores v. NaN and infinities are ignored: no exporter could show them.
func (g *Gauge) Set(v float64) {
	if g == nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	g.bits.Store(math.Float64bits(v))
}

// Add changes the value by delta, which may be negative. An unset gauge counts from 0.
func (g *Gauge) Add(delta float64) {
	if g == nil || math.IsNaN(delta) || math.IsInf(delta, 0) {
		return
	}
	for {
		old := g.bits.Load()
		value := delta
		if old != unset {
			value += math.Float64frombits(old)
		}
		if math.IsInf(value, 0) || g.bits.CompareAndSwap(old, math.Float64bits(value)) {
			return
		}
	}
}

// Value is the last value set; 0 when there was none.
func (g *Gauge) Value() float64 {
	v, _ := g.load()
	return v
}

func (g *Gauge) load() (v float64, ok bool) {
	if g == nil {
		return 0, false
	}
	b := g.bits.Load()
	if b == unset {
		return 0, false
	}
	return math.Float64frombits(b), true
}

func lowerTo(a *atomic.Uint64, v uint64) {
	for old := a.Load(); v < old; old = a.Load() {
		if a.CompareAndSwap(old, v) {
			return
		}
	}
}

func raiseTo(a *atomic.Uint64, v uint64) {
	for old := a.Load(); v > old; old = a.Load() {
		if a.CompareAndSwap(old, v) {
			return
		}
	}
}
