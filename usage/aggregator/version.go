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
	at time.Time
	of map[string]uint64 // by part; 0 is one that does not answer
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

func (a *Aggregator) versions(ctx context.Context, parts []string) (sum uint64) {
	last, now := a.elsewhere.last.Load(), a.cfg.Clock.Now()
	if last == nil {
		last = &versions{}
	}
	if now.Sub(last.at) >= versionAge && a.elsewhere.asking.TryLock() {
		next := &versions{at: now, of: last.ask(ctx, a.cfg.Call, parts)}
		if ctx.Err() == nil { // else who asked went away, which says nothing
			last = next
			a.elsewhere.last.Store(next)
		}
		a.elsewhere.asking.Unlock()
	}
	for _, part := range parts {
		sum += last.of[part]
	}
	return sum
}

// ask asks all at once: one that is slow keeps its version, and holds no other one up.
func (v *versions) ask(ctx context.Context,
	call func(ctx context.Context, part, method string, req []byte) ([]byte, error), parts []string,
) map[string]uint64 {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	said := make([]uint64, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() {
			reply, err := call(ctx, part, MethodVersion, nil)
			switch {
			case err == nil:
				said[i] = pack.Read(reply).Uint()
			case ctx.Err() != nil:
				said[i] = v.of[part]
			}
		})
	}
	wg.Wait()
	out := make(map[string]uint64, len(parts))
	for i, part := range parts {
		out[part] = said[i]
	}
	return out
}
