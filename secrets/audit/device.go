package audit

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

const (
	// BlockedAfter is how long a write may take before its device is passed by.
	BlockedAfter = 800 * time.Millisecond
	// RetryAfter is how long a device is passed by after an error.
	RetryAfter = time.Second

	pendingBytes = 64 << 20 // that wait for one device; one entry may have more
	closeWithin  = 2 * time.Second
)

// Device is an enabled device.
type Device struct {
	Config *Config // not to be changed

	cfg    *settings
	hash   *hasher
	log    *slog.Logger
	meters meters

	mu      sync.Mutex // guards what follows
	pending batch
	writing *batch // nil: none, or given up
	began   time.Time
	spare   batch // its memory is used again
	health
	watchdog *time.Timer

	wake  chan struct{} // one slot
	ended chan struct{}
}

// meters are a device's counts and times.
type meters struct {
	wrote  *telemetry.Timing // a write of what had gathered, with a request in it
	told   *telemetry.Timing // one with an answer in it
	failed *telemetry.Counter
}

// health is whether a device takes entries; its device's lock guards it.
type health struct {
	blocked bool // a write takes too long
	failing bool // the last write failed
	retry   time.Time
	closed  bool
}

// batch is what is written together.
type batch struct {
	text    []byte
	ends    []int
	tickets []*ticket // one an end; nil: nobody waits
	answers int       // how many ends are answers'
	reopen  bool      // close and open first
	asked   []*ticket // who wait for that
}

// ticket is one entry's wait for the devices.
type ticket struct {
	left atomic.Int32 // devices that may still take it
	done chan bool    // one slot
}

func newTicket() *ticket {
	t := &ticket{done: make(chan bool, 1)}
	t.left.Store(1) // whoever hands it out
	return t
}

func (t *ticket) tell(ok bool) {
	if t == nil || (!ok && t.left.Add(-1) > 0) {
		return
	}
	select {
	case t.done <- ok:
	default:
	}
}

var (
	errBusy = errkind.New(errkind.Unavailable, "the device does not take entries now")
	// ErrClosed is what Record returns when all devices were taken away meanwhile.
	ErrClosed = errkind.New(errkind.Unavailable, "the audit device is closed")
)

// Open makes a device of its settings, and starts it. Wrong settings are of kind Invalid. Nothing is
// opened yet: see Try.
func Open(c *Config, rules Rules, log *slog.Logger, metrics *telemetry.Registry) (*Device, error) {
	s, err := read(c, rules)
	if err != nil {
		return nil, err
	}
	name := "audit." + c.Path + "."
	d := &Device{Config: c, cfg: s, hash: newHasher(c.Salt), log: log, wake: make(chan struct{}, 1),
		ended: make(chan struct{}),
		meters: meters{wrote: metrics.Timing(name + "log_request"), told: metrics.Timing(name + "log_response"),
			failed: metrics.Counter(name + "log_request_failure")}}
	d.watchdog = time.AfterFunc(time.Hour, d.stuck)
	d.watchdog.Stop()
	go d.run()
	return d, nil
}

// Hash is what the device shows in the place of a secret.
func (d *Device) Hash(plain string) string { return string(d.hash.append(nil, []byte(plain))) }

// Reopen closes and opens what the device writes to, after a log was moved away, and waits for it.
func (d *Device) Reopen() error {
	t := newTicket()
	d.mu.Lock()
	if d.closed || d.blocked {
		d.mu.Unlock()
		return errBusy
	}
	d.pending.reopen = true
	d.pending.asked = append(d.pending.asked, t)
	d.mu.Unlock()
	d.notify()
	if !<-t.done {
		return errkind.Errorf(errkind.Invalid, "the audit device %s cannot be opened: the server's log says why",
			d.Config.Path)
	}
	return nil
}

func (d *Device) notify() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// ready reports whether entries may be put now.
func (d *Device) ready(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.good(now)
}

func (h *health) good(now time.Time) bool {
	return !h.closed && !h.blocked && (!h.failing || !now.Before(h.retry))
}

// put queues a line. t may be nil.
func (d *Device) put(line []byte, answer bool, t *ticket, now time.Time) bool {
	d.mu.Lock()
	if !d.good(now) || (len(d.pending.text) > 0 && len(d.pending.text)+len(line) > pendingBytes) {
		d.mu.Unlock()
		d.meters.failed.Add(1)
		return false
	}
	d.pending.text = append(d.pending.text, line...)
	d.pending.ends = append(d.pending.ends, len(d.pending.text))
	d.pending.tickets = append(d.pending.tickets, t)
	if answer {
		d.pending.answers++
	}
	d.mu.Unlock()
	d.notify()
	return true
}

func (d *Device) run() {
	defer close(d.ended)
	defer d.cfg.sink.close()
	for range d.wake {
		for {
			b, closed := d.take()
			if b == nil {
				if closed {
					return
				}
				break
			}
			begin := time.Now()
			took, err := d.write(b)
			d.timed(b, time.Since(begin))
			d.finish(b, took, err)
		}
	}
}

// timed observes a write by what was in it.
func (d *Device) timed(b *batch, took time.Duration) {
	if b.answers < len(b.ends) {
		d.meters.wrote.Observe(took)
	}
	if b.answers > 0 {
		d.meters.told.Observe(took)
	}
}

// take takes all that waits, and starts the watch over its write.
func (d *Device) take() (*batch, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pending.ends) == 0 && !d.pending.reopen {
		return nil, d.closed
	}
	b := d.pending
	d.pending, d.spare = d.spare, batch{}
	d.writing, d.began = &b, time.Now()
	d.watchdog.Reset(BlockedAfter)
	return d.writing, d.closed
}

func (d *Device) write(b *batch) (took int, err error) {
	if b.reopen {
		d.cfg.sink.close()
	}
	if err := d.cfg.sink.open(); err != nil {
		return 0, err
	}
	if len(b.ends) == 0 {
		return 0, nil
	}
	took, err = d.cfg.sink.write(b.text, b.ends)
	if err != nil && !errors.Is(err, syscall.EMSGSIZE) {
		d.cfg.sink.close()
	}
	return took, err
}

// stuck is called while a write takes too long: the device is passed by until it ends.
func (d *Device) stuck() {
	d.mu.Lock()
	b := d.writing
	if b == nil || time.Since(d.began) < BlockedAfter { // called for the write before this one
		d.mu.Unlock()
		return
	}
	given, lost := batch{tickets: b.tickets, asked: b.asked}, d.pending
	b.tickets, b.asked = nil, nil
	d.writing, d.blocked, d.pending = nil, true, batch{}
	d.mu.Unlock()
	d.fail(&given, 0)
	d.fail(&lost, 0)
	d.log.Error("secrets: an audit device hangs; skipping it until its write ends", "device", d.Config.Path)
}

// fail tells those whose entries come after the first took.
func (d *Device) fail(b *batch, took int) {
	for _, t := range b.tickets[took:] {
		t.tell(false)
	}
	for _, t := range b.asked {
		t.tell(false)
	}
	d.meters.failed.Add(uint64(len(b.tickets) - took))
}

func (d *Device) finish(b *batch, took int, err error) {
	d.mu.Lock()
	given := d.writing == nil // given up: who waited was told
	d.watchdog.Stop()
	wasDown := d.blocked || d.failing
	d.writing, d.blocked, d.failing = nil, false, err != nil && !errors.Is(err, syscall.EMSGSIZE)
	var lost batch
	if d.failing {
		d.retry = time.Now().Add(RetryAfter)
		lost, d.pending = d.pending, batch{}
	}
	d.mu.Unlock()
	if !given {
		for _, t := range b.tickets[:took] {
			t.tell(true)
		}
		if err == nil {
			for _, t := range b.asked {
				t.tell(true)
			}
			b.asked = nil
		}
		d.fail(b, took)
	}
	d.fail(&lost, 0)
	switch {
	case err != nil && !wasDown:
		d.log.Error("secrets: an audit device failed; skipping it and trying again every second", "device", d.Config.Path,
			"error", err)
	case err == nil && wasDown:
		d.log.Warn("secrets: an audit device works again; it lacks the entries since it failed", "device", d.Config.Path)
	}
	d.reuse(b)
}

// reuse keeps a batch's memory for the one after the next, where that is not much.
func (d *Device) reuse(b *batch) {
	const keep = 1 << 20
	if cap(b.text) > keep {
		return
	}
	clear(b.tickets)
	d.mu.Lock()
	d.spare = batch{text: b.text[:0], ends: b.ends[:0], tickets: b.tickets[:0]}
	d.mu.Unlock()
}

// Close writes what waits and ends the device. A write that hangs is left behind.
func (d *Device) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.notify()
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case <-d.ended:
	case <-timer.C:
		d.log.Error("secrets: abandoned an audit device whose write hangs", "device", d.Config.Path)
	}
}
