package aggregator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/counter"
)

// MethodVersion is the RPC by which a server asks whether something was counted.
const MethodVersion = "usage.version"

const (
	// versionAge is how old it may be what others said of their versions, however many wait for a change.
	versionAge     = 500 * time.Millisecond
	versionTimeout = time.Second
)

// elsewhere is what other servers said of their versions.
type elsewhere struct {
	last   atomic.Pointer[versions]
	asking sync.Mutex // held by who asks them
}

type versions struct {
	at  time.Time
	sum uint64
}

// ServeVersion answers MethodVersion, for the counter of a part.
func (a *Aggregator) ServeVersion(_ context.Context, c *counter.Counter, _ []byte) ([]byte, error) {
	return pack.Uint(nil, c.Version()), nil
}

// Version is another one after each change of what was counted, at once where this server counts it and within a second
// elsewhere. It is another one, too, when a part goes over or does not answer.
func (a *Aggregator) Version(ctx context.Context) (sum uint64) {
	var others []string
	for _, m := range a.cfg.Parts() {
		if local := a.cfg.Local(m); local != nil {
			sum += local.Version()
		} else {
			others = append(others, m)
		}
	}
	if len(others) == 0 {
		return sum
	}
	return sum + a.versions(ctx, others)
}

func (a *Aggregator) versions(ctx context.Context, parts []string) uint64 {
	last, now := a.elsewhere.last.Load(), a.cfg.Clock.Now()
	if last == nil {
		last = &versions{}
	}
	if now.Sub(last.at) < versionAge || !a.elsewhere.asking.TryLock() {
		return last.sum
	}
	defer a.elsewhere.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	next := &versions{at: now}
	for _, m := range parts {
		reply, err := a.cfg.Call(ctx, m, MethodVersion, nil)
		if err != nil {
			continue
		}
		next.sum += pack.Read(reply).Uint()
	}
	if ctx.Err() != nil {
		return last.sum // who asked went away, or somebody is slow: that says nothing
	}
	a.elsewhere.last.Store(next)
	return next.sum
}
