package audit

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// scratch is memory for one entry on its way.
type scratch struct {
	record record
	line   []byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// scratchBytes bounds the memory that is kept for the next entry. It held secrets, so it is wiped either way.
const scratchBytes = 64 << 10

func (s *scratch) release() {
	clear(s.record.plain[:cap(s.record.plain)])
	clear(s.line[:cap(s.line)])
	if cap(s.record.text)+cap(s.record.plain)+cap(s.line) <= scratchBytes {
		scratches.Put(s)
	}
}

var errNobody = errkind.New(errkind.Internal, "no audit device took the entry")

// Record has an entry written by all devices, and waits until one took it. Without one that can
// it fails, at once where that is known. It bears that the context ends.
func Record(ctx context.Context, devices []*Device, e *Entry) error {
	s, _ := scratches.Get().(*scratch)
	defer s.release()
	s.record.reset()
	e.encode(&s.record)
	weak := true
	for _, d := range devices {
		weak = weak && d.cfg.weak
	}
	t, now := newTicket(), time.Now()
	closed := 0
	for _, d := range devices {
		if !d.ready(now) {
			d.meters.failed.Add(1)
			closed += d.isClosed()
			continue
		}
		var own *ticket
		if weak || !d.cfg.weak {
			own = t
			t.left.Add(1)
		}
		s.line = s.record.render(s.line[:0], d)
		if !d.put(s.line, e.Answer, own, now) {
			own.tell(false)
		}
	}
	if closed == len(devices) {
		return ErrClosed
	}
	t.tell(false) // from here on the devices alone decide
	select {
	case ok := <-t.done:
		if ok {
			return nil
		}
		return errNobody
	case <-ctx.Done():
		return errkind.E(errkind.Unavailable, "audit", ctx.Err())
	}
}

// Try has the device write an entry that says so, before it is enabled: one that cannot would stop every request.
func (d *Device) Try(ctx context.Context, id string, now time.Time) error {
	q := &secrets.Request{ID: id, Op: secrets.Update, Path: "sys/audit/test"}
	if err := Record(ctx, []*Device{d}, &Entry{Time: now, Request: q}); err != nil {
		return errkind.Errorf(errkind.Invalid,
			"the audit device %s cannot be opened or written to: the server's log says why", d.Config.Path)
	}
	return nil
}

func (d *Device) isClosed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 1
	}
	return 0
}
