package script

import (
	"context"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/dop251/goja"

	"corbel.dev/corbel/kit/errkind"
)

// watch interrupts a program that runs too long or needs too much. It is a timer that sets itself again, so
// that the many programs that end within the first tick pay for nothing else.
type watch struct {
	vm    *goja.Runtime
	until time.Time
	ctx   context.Context

	mu     sync.Mutex
	over   bool
	timer  *time.Timer
	before uint64 // allocated at the first look
	cause  error
}

func (w *watch) start() {
	w.mu.Lock()
	w.timer = time.AfterFunc(min(look, time.Until(w.until)), w.look)
	w.mu.Unlock()
}

func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	now := allocated()
	if w.before == 0 {
		w.before = now
	}
	left := time.Until(w.until)
	switch {
	case left <= 0:
		w.cause = ErrTime
	case now-w.before > maxAlloc:
		w.cause = ErrMemory
	case w.ctx.Err() != nil:
		w.cause = errkind.E(errkind.Unavailable, "JavaScript", w.ctx.Err())
	default:
		w.timer.Reset(min(look, left))
		return
	}
	w.vm.Interrupt(w.cause)
}

// stop ends the watching; afterwards nothing is interrupted any more. It returns why the program was cut, or nil.
func (w *watch) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
	return w.cause
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: allocTotal}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
