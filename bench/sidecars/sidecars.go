// Package sidecars simulates Envoy sidecars by the thousand: each speaks delta
// ADS to its agent on a stream of its own, subscribes to what the clusters and
// listeners that it is given refer to, acknowledges every response, and notes
// when a change reached it.
//
// The sidecars of one host share one HTTP/2 connection over a real socket. What
// a simulated sidecar costs is not what is measured, so a few loops over epoll
// serve all connections: a ready connection is read once, every whole message in
// it is looked through without decoding it into objects, and the answers of all
// its streams leave in one write. A parked sidecar is a few words of memory and
// no goroutine.
//
// A loop owns its connections; nothing else touches them. A response that cannot
// be read is not acknowledged: the connection is given up, counted with the
// reason, and opened anew after a while, as an Envoy would. A stream that the agent
// ends is opened again on the same connection. It runs on Linux only.
package sidecars

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Host is one connection and the sidecars that share it.
type Host struct {
	Addr    string   `json:"addr"` // IPv4 address and port of the agent's discovery service
	Node    string   `json:"node"`
	Proxies []string `json:"proxies"` // their node ids
}

// Config says which sidecars to simulate.
type Config struct {
	Hosts []Host `json:"hosts"`
	Token string `json:"token,omitempty"`
	// Loops is how many threads serve the connections; 0 is 1.
	Loops int `json:"loops,omitempty"`
	// Window is how many sidecars may wait to be configured at once: others begin as
	// these are done. 0 is no limit.
	Window int `json:"window,omitempty"`
	// Track names, for each type by its URL, the resource whose version tells a
	// change; a type that is not named is tracked by all its resources together.
	Track map[string]string `json:"track,omitempty"`
	// Need lists the type URLs of which a sidecar wants a tracked resource before it is warm.
	Need []string `json:"need,omitempty"`
}

// Watch is what counts as the arrival of a round's change.
type Watch struct {
	Type string `json:"type"`           // type URL
	Name string `json:"name,omitempty"` // of the resource; empty is any of the type
	// Marker, when set, must be in the resource's bytes (or must not, if Gone is
	// set). Otherwise any version other than the last seen one counts.
	Marker string `json:"marker,omitempty"`
	Gone   bool   `json:"gone,omitempty"`
}

// Counts are running totals since the start.
type Counts struct {
	Proxies   int    `json:"proxies"`
	Warm      int64  `json:"warm"` // sidecars that have all that they asked for
	Connected int64  `json:"connected"`
	Messages  int64  `json:"messages"` // responses
	Bytes     int64  `json:"bytes"`    // read from sockets
	Acks      int64  `json:"acks"`
	Reads     int64  `json:"reads"`
	Writes    int64  `json:"writes"`
	Lost      int64  `json:"lost"`  // connections given up
	Ended     int64  `json:"ended"` // streams that the agent ended; they were opened again
	Reason    string `json:"reason,omitempty"`
}

// Fleet is a set of simulated sidecars.
type Fleet struct {
	cfg   Config
	loops []*loop
	need  uint8
	track [typeCount]string
	total int
	round atomic.Pointer[round]

	mu     sync.Mutex // guards all below
	reason string
	past   [2]*round // the two that were collected last, the last one first
}

// round collects the arrivals of one change. The loops write at, each its own
// sidecars' places, and count; whoever armed it reads.
type round struct {
	Watch
	kind    int
	marker  []byte
	at      []int64 // CLOCK_MONOTONIC nanoseconds; 0 is not yet
	arrived atomic.Int64
	full    chan struct{} // closed when every sidecar has it
	seen    []sightings   // by sidecar
}

// New checks the configuration; it opens nothing.
func New(cfg Config) (*Fleet, error) {
	f := &Fleet{cfg: cfg}
	for url, name := range cfg.Track {
		k := kindOf(url)
		if k < 0 {
			return nil, fmt.Errorf("track: %q is no known type URL", url)
		}
		f.track[k] = name
	}
	for _, url := range cfg.Need {
		k := kindOf(url)
		if k < 0 {
			return nil, fmt.Errorf("need: %q is no known type URL", url)
		}
		f.need |= 1 << k
	}
	n := max(1, min(cfg.Loops, 64))
	for range n {
		f.loops = append(f.loops, newLoop(f))
	}
	for i, h := range cfg.Hosts {
		if len(h.Proxies) == 0 || len(h.Proxies) > 1<<16 {
			return nil, fmt.Errorf("hosts[%d]: must have between 1 and 65536 proxies, not %d", i, len(h.Proxies))
		}
		if err := f.loops[i%n].add(h, f.total); err != nil {
			return nil, fmt.Errorf("hosts[%d].addr: %w", i, err)
		}
		f.total += len(h.Proxies)
	}
	return f, nil
}

// Arm makes the next resource that fits w count as the change, for each sidecar
// once. The channel is closed when all have it.
func (f *Fleet) Arm(w Watch) (<-chan struct{}, error) {
	r := &round{Watch: w, kind: kindOf(w.Type), marker: []byte(w.Marker), at: make([]int64, f.total),
		full: make(chan struct{}), seen: make([]sightings, f.total)}
	if r.kind < 0 {
		return nil, fmt.Errorf("type: %q is no known type URL", w.Type)
	}
	f.round.Store(r)
	return r.full, nil
}

// Collect ends the round and returns, for each sidecar in the order of the
// configuration, when it had the change, in nanoseconds of CLOCK_MONOTONIC; 0
// is never.
func (f *Fleet) Collect() ([]int64, error) {
	r := f.round.Swap(nil)
	if r == nil {
		return nil, errors.New("collect: no round is armed")
	}
	f.mu.Lock()
	f.past = [2]*round{r, f.past[0]}
	f.mu.Unlock()
	out := make([]int64, len(r.at))
	for i := range r.at {
		out[i] = atomic.LoadInt64(&r.at[i])
	}
	return out, nil
}

// Arrived is how many sidecars have the armed change.
func (f *Fleet) Arrived() int64 {
	if r := f.round.Load(); r != nil {
		return r.arrived.Load()
	}
	return 0
}

// Counts returns the totals.
func (f *Fleet) Counts() Counts {
	c := Counts{Proxies: f.total}
	for _, l := range f.loops {
		c.Warm += l.warm.Load()
		c.Connected += l.connected.Load()
		c.Messages += l.messages.Load()
		c.Bytes += l.bytes.Load()
		c.Acks += l.acks.Load()
		c.Reads += l.reads.Load()
		c.Writes += l.writes.Load()
		c.Lost += l.lost.Load()
		c.Ended += l.streams.Load()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Reason = f.reason
	return c
}

// arrive notes that the sidecar has the round's change.
func (r *round) arrive(proxy int, now int64) {
	if atomic.CompareAndSwapInt64(&r.at[proxy], 0, now) && int(r.arrived.Add(1)) == len(r.at) {
		close(r.full)
	}
}

func (f *Fleet) because(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reason = err.Error()
}
