package flight

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/secrets"
)

// Entry is a request in the list of those under way.
type Entry struct {
	Request    *secrets.Request
	Method     string // the operation as it came
	next, prev *Entry
}

// List knows the requests that are under way. A request is in one shard's list from begin to end.
type List struct {
	Now    func() time.Time
	shards [16]flightShard
}

type flightShard struct {
	mu    sync.Mutex
	first *Entry
	count int
	begun uint64   // ever
	_     [32]byte // a cache line to each
}

func (f *List) Begin(t *Entry) *flightShard {
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

func (s *flightShard) End(t *Entry) {
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

func (f *List) Count() (n int) {
	for i := range f.shards {
		f.shards[i].mu.Lock()
		n += f.shards[i].count
		f.shards[i].mu.Unlock()
	}
	return n
}

// Begun is how many requests have begun since the start.
func (f *List) Begun() (n uint64) {
	for i := range f.shards {
		f.shards[i].mu.Lock()
		n += f.shards[i].begun
		f.shards[i].mu.Unlock()
	}
	return n
}

// Within reports whether a request is under way in a namespace or below it, by its path.
func (f *List) Within(space string) bool {
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		found := false
		for t := s.first; t != nil && !found; t = t.next {
			found = strings.HasPrefix(t.Request.Space, space)
		}
		s.mu.Unlock()
		if found {
			return true
		}
	}
	return false
}

// Show gives what is under way, by request id. Operations may still turn from update to create: methods are told.
func (f *List) Show() map[string]any {
	out := map[string]any{}
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		for t := s.first; t != nil; t = t.next {
			out[t.Request.ID] = map[string]any{"start_time": t.Request.Now.UTC().Format(time.RFC3339Nano),
				"client_remote_address": t.Request.Remote.String(), "request_path": "/v1/" + t.Request.FromRoot(),
				"request_method": t.Method, "client_id": ""}
		}
		s.mu.Unlock()
	}
	return out
}
