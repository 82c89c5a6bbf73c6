package keeper

import (
	"math/rand/v2"
	"sync"
	"time"
)

// inFlight knows the requests that are under way. A request is in one shard's list from begin to end.
type inFlight struct {
	shards [16]flightShard
}

type flightShard struct {
	mu    sync.Mutex
	first *task
	count int
	begun uint64   // ever
	_     [32]byte // a cache line to each
}

func (f *inFlight) begin(t *task) *flightShard {
	s := &f.shards[rand.Uint32()%uint32(len(f.shards))]
	s.mu.Lock()
	if t.next = s.first; t.next != nil {
		t.next.prev = t
	}
	s.first = t
	s.count++
	s.begun++
	s.mu.Unlock()
	return s
}

func (s *flightShard) end(t *task) {
	s.mu.Lock()
	if t.prev == nil {
		s.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	s.count--
	s.mu.Unlock()
}

func (f *inFlight) count() (n int) {
	for i := range f.shards {
		f.shards[i].mu.Lock()
		n += f.shards[i].count
		f.shards[i].mu.Unlock()
	}
	return n
}

// begun is how many requests have begun since the start.
func (f *inFlight) begun() (n uint64) {
	for i := range f.shards {
		f.shards[i].mu.Lock()
		n += f.shards[i].begun
		f.shards[i].mu.Unlock()
	}
	return n
}

// InFlight shows the requests that are under way on this server, by their ids.
func (k *Keeper) InFlight() map[string]any { return k.flying.list() }

// list shows what is under way, by request id. Operations may still turn from update to create: methods are told.
func (f *inFlight) list() map[string]any {
	out := map[string]any{}
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		for t := s.first; t != nil; t = t.next {
			out[t.ID] = map[string]any{"start_time": t.Now.UTC().Format(time.RFC3339Nano), "client_remote_address": t.Remote.String(), "request_path": "/v1/" + t.Path,
				"request_method": t.method, "client_id": ""}
		}
		s.mu.Unlock()
	}
	return out
}

func (s *system) inFlightRequests(*sysCall) (any, error) { return s.k.flying.list(), nil }
