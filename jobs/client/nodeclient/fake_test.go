package nodeclient

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
)

// servers are one that remembers.
type servers struct {
	t      *testing.T
	frames chan []byte // to the stream that is open

	mu       sync.Mutex
	down     bool
	knows    bool
	calls    map[string]int
	updates  map[jobs.ID]noderpc.Update
	batches  int
	register *noderpc.Register
	index    uint64 // of registrations
	restored uint64 // of frames
	watches  []uint64
	refuses  int                  // so many streams are
	known    []noderpc.KnownAlloc // by the leader
	compares bool                 // it is of this release
	compared int
}

func newServers(t *testing.T) *servers {
	return &servers{t: t, frames: make(chan []byte, 16), calls: map[string]int{}, updates: map[jobs.ID]noderpc.Update{}}
}

// Call implements Servers.
func (s *servers) Call(_ context.Context, method string, req []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[method]++
	if s.down {
		return nil, errkind.New(errkind.Unavailable, "down")
	}
	switch method {
	case noderpc.MethodRegister:
		m, err := noderpc.Read[noderpc.Register](req)
		s.register, s.knows = m, true
		return noderpc.Bytes(&noderpc.Registered{Index: s.index, Every: 5 * time.Second}), err
	case noderpc.MethodHeartbeat:
		m, err := noderpc.Read[noderpc.Heartbeat](req)
		b := &noderpc.Beaten{Every: 5 * time.Second}
		if !s.knows {
			b.Unknown = []jobs.ID{m.Nodes[0].Node}
		}
		if s.compares && len(m.Held) > 0 {
			s.compared++
			var sum noderpc.Sum
			for _, a := range s.known {
				sum.Add(a.ID, a.Status)
			}
			if uint64(sum) != m.Held[0].Sum {
				b.Known = []noderpc.Known{{Node: m.Nodes[0].Node, Allocs: s.known}}
			}
		}
		return noderpc.Bytes(b), err
	case noderpc.MethodUpdate:
		m, err := noderpc.Read[noderpc.Updates](req)
		if err != nil {
			return nil, err
		}
		s.batches++
		for _, u := range m.List {
			s.updates[u.Alloc] = u
		}
		return noderpc.Bytes(&noderpc.Updated{}), nil
	}
	return nil, errkind.New(errkind.NotFound, method)
}

// stream gives frames until ctx ends.
type stream struct {
	ctx    context.Context
	frames chan []byte
}

// Recv implements Stream.
func (s stream) Recv() ([]byte, error) {
	select {
	case f := <-s.frames:
		return f, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// Close implements Stream.
func (s stream) Close() error { return nil }

// Stream implements Servers.
func (s *servers) Stream(ctx context.Context, _ string, req []byte) (Stream, error) {
	m, err := noderpc.Read[noderpc.Watch](req)
	s.mu.Lock()
	s.watches = append(s.watches, m.Since)
	refused := s.refuses > 0
	if refused {
		s.refuses--
	}
	s.mu.Unlock()
	if refused {
		return nil, errkind.New(errkind.Unavailable, "down")
	}
	return stream{ctx, s.frames}, err
}

func (s *servers) update(id jobs.ID) noderpc.Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.updates[id]
}

func (s *servers) states(id jobs.ID) map[string]*jobwire.TaskState {
	var m map[string]*jobwire.TaskState
	if text := s.update(id).TaskStates; text != nil {
		if err := json.Unmarshal(text, &m); err != nil {
			s.t.Error(err)
		}
	}
	return m
}

func (s *servers) set(down, knows bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.knows = down, knows
}

func to[T any](v T) *T { return &v }

// job has one group "g" of tasks.
func job(kind string, tasks ...*jobwire.Task) *jobwire.Job {
	j := &jobwire.Job{JobIdentity: jobwire.JobIdentity{ID: to("j"), Type: &kind},
		TaskGroups: []*jobwire.TaskGroup{{Name: to("g"), Tasks: tasks}}}
	j.Canonicalize()
	return j
}

func mock(name string, config map[string]any) *jobwire.Task {
	return &jobwire.Task{Name: name, Driver: "mock_driver", Config: config}
}

// send sends allocations of a job, whole.
func (s *servers) send(index uint64, j *jobwire.Job, full bool, list ...noderpc.Alloc) {
	text, err := json.Marshal(j)
	if err != nil {
		s.t.Fatal(err)
	}
	f := &noderpc.Allocs{Index: index, Full: full, Jobs: [][]byte{text}, Allocs: list, Restored: s.restored}
	for i := range list {
		list[i].Group, list[i].ModifyIndex = "g", index
		if list[i].Desired.Status == "" {
			list[i].Desired.Status = jobs.Run
		}
		f.Present = append(f.Present, list[i].ID)
	}
	s.frames <- noderpc.Bytes(f)
}
