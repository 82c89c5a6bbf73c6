package profile

import (
	"bytes"
	"context"
	"runtime"
	"runtime/pprof"
	"time"

	"corbel.dev/corbel/doctor"
	"github.com/google/pprof/profile"
)

// look samples all goroutines some times, and keeps the sum.
func (p *Profiler) look(ctx context.Context) {
	var all []*profile.Profile
	for range looks {
		if runtime.NumGoroutine() > maxGoroutines {
			break
		}
		var b bytes.Buffer
		if pprof.Lookup("goroutine").WriteTo(&b, 0) != nil {
			break
		}
		one, err := profile.Parse(&b)
		if err != nil {
			break
		}
		all = append(all, one)
		t := time.NewTimer(lookEvery)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
	if len(all) == 0 {
		return
	}
	if sum, err := profile.Merge(all); err == nil {
		p.keep(doctor.StackWaiting, sum)
	}
}

// counted are the runtime's growing profiles as they were last read.
type counted struct {
	blocked, mutex *profile.Profile
	watched        bool // blocked goroutines are counted
}

// watchBlocked has the runtime count blocked goroutines from now on.
func (c *counted) watchBlocked() {
	if c.watched {
		return
	}
	c.watched = true
	if c.blocked != nil {
		c.blocked.TimeNanos = time.Now().UnixNano() // what was read last still holds: nothing was counted since
	}
	runtime.SetBlockProfileRate(blockRate)
}

// ignoreBlocked ends that.
func (c *counted) ignoreBlocked() {
	c.watched = false
	runtime.SetBlockProfileRate(0)
}

// read gives what a growing profile grew by since it was last read; nil the first time and when nothing did.
func (c *counted) read(kind doctor.StackKind) *profile.Profile {
	name, before := "block", &c.blocked
	if kind == doctor.StackMutex {
		name, before = "mutex", &c.mutex
	}
	var b bytes.Buffer
	if pprof.Lookup(name).WriteTo(&b, 0) != nil {
		return nil
	}
	now, err := profile.Parse(&b)
	if err != nil {
		return nil
	}
	was := *before
	*before = now.Copy()
	if was == nil {
		return nil
	}
	now.DurationNanos = now.TimeNanos - was.TimeNanos
	was.Scale(-1)
	diff, err := profile.Merge([]*profile.Profile{now, was})
	if err != nil {
		return nil
	}
	diff.DurationNanos = now.DurationNanos
	diff = diff.Compact()
	kept := diff.Sample[:0]
	for _, s := range diff.Sample {
		if len(s.Value) > 1 && s.Value[1] > 0 {
			kept = append(kept, s)
		}
	}
	if diff.Sample = kept; len(kept) == 0 {
		return nil
	}
	return diff
}
