package jobsplane

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/driver/mockdriver"
	"corbel.dev/corbel/jobs/client/nodeclient"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/jobtell"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// twoServers are two followers of one group. The first one holds what it was given until its leader is another one;
// whoever called it loses the connection meanwhile, and calls the second one from then on.
type twoServers struct {
	store         *jobstore.Store
	first, second *nodes
	held          chan struct{} // the first one has something
	leads         chan struct{} // closed when it has a leader
	updates       atomic.Int32
	secret        jobs.ID // of the node
}

func openTwo(ctx context.Context, run *sync.WaitGroup) *twoServers {
	s := &twoServers{store: jobstore.New(jobstore.Config{}), held: make(chan struct{}, 9), leads: make(chan struct{})}
	var one sync.Mutex
	commit := func(_ context.Context, c *jobstore.Command) (*jobstore.Result, error) {
		one.Lock()
		defer one.Unlock()
		r := s.store.ApplyBatch([][]byte{c.Encode()})[0].(*jobstore.Result)
		return r, r.Err
	}
	follower := func(commit func(context.Context, *jobstore.Command) (*jobstore.Result, error)) *nodes {
		gathers := func(kind string) *gatherer {
			g := &gatherer{commit: commit, kind: kind, some: make(chan struct{}, 1), head: func(kind string) jobstore.Head {
				return jobstore.Head{Now: jobs.Time(time.Now().UnixNano()), Seed: 1, Kind: kind}
			}}
			run.Go(func() { _ = g.run(ctx) })
			return g
		}
		return &nodes{group: &groupState{store: s.store}, clock: clock.Real{}, texts: jobtell.NewTexts(),
			orders:  func() bool { return true },
			updates: gathers(jobstore.AllocationUpdated), services: gathers("ServiceRegistration")}
	}
	s.second = follower(commit)
	s.first = follower(func(ctx context.Context, c *jobstore.Command) (*jobstore.Result, error) {
		s.held <- struct{}{}
		<-s.leads
		return commit(ctx, c)
	})
	return s
}

// Call implements nodeclient.Servers.
func (s *twoServers) Call(ctx context.Context, method string, req []byte) ([]byte, error) {
	switch method {
	case noderpc.MethodRegister:
		return noderpc.Bytes(&noderpc.Registered{Every: 5 * time.Second}), nil
	case noderpc.MethodHeartbeat: // as the leader does
		m, err := noderpc.Read[noderpc.Heartbeat](req)
		if err != nil {
			return nil, err
		}
		return noderpc.Bytes(&noderpc.Beaten{Every: 5 * time.Second,
			Known: jobtell.Differing(s.store.View(), []jobs.ID{m.Nodes[0].Node}, m.Held)}), nil
	case noderpc.MethodUpdate:
		if s.updates.Add(1) > 1 {
			return s.second.update(ctx, req)
		}
		ctx, cancel := context.WithCancel(ctx)
		go func() { <-s.held; cancel() }()
		return s.first.update(ctx, req)
	}
	return nil, errkind.New(errkind.NotFound, method)
}

// pushed is a stream of the second server.
type pushed struct {
	ctx    context.Context //nolint:containedctx // the stream's own
	cancel context.CancelFunc
	frames chan []byte
}

// Recv implements nodeclient.Stream.
func (p pushed) Recv() ([]byte, error) {
	select {
	case f := <-p.frames:
		return f, nil
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}

// Close implements nodeclient.Stream.
func (p pushed) Close() error { p.cancel(); return nil }

// Stream implements nodeclient.Servers.
func (s *twoServers) Stream(ctx context.Context, _ string, req []byte) (nodeclient.Stream, error) {
	p := pushed{frames: make(chan []byte)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	go func() {
		_ = s.second.allocs(p.ctx, req, func(b []byte) error {
			select {
			case p.frames <- b:
				return nil
			case <-p.ctx.Done():
				return p.ctx.Err()
			}
		})
	}()
	return p, nil
}

// place registers a node and places allocations of a job there whose tasks take a while to start.
func (s *twoServers) place(t *testing.T, key noderpc.Key, ids ...jobs.ID) {
	t.Helper()
	name := jobs.JobKey{Namespace: "default", ID: "j"}
	ref := jobstore.JobRef{JobKey: name}
	plan := jobstore.PlanWrite{EvalID: jobs.ID{7}, Priority: 50, Job: &ref, Versions: []jobstore.JobRef{ref},
		Grants: []*jobs.Grant{{Vector: jobs.Vector{CPU: 1, MemoryMB: 1}}}}
	for i, id := range ids {
		plan.Place = append(plan.Place, jobstore.Placing{ID: id, Node: key.Node, Index: i, Group: "g", Version: 1, Grant: 1})
	}
	job := &jobs.Job{JobKey: name, Name: "j", Type: jobs.Service, Priority: 50,
		Groups: []*jobs.TaskGroup{{Name: "g", Count: len(ids), Tasks: []*jobs.Task{{Name: "t", Driver: "mock_driver",
			Config: `{"start_block_for":"1s"}`}}}}}
	s.do(t, &jobstore.Command{Jobs: jobstore.JobWrites{Put: []jobstore.JobWrite{{Job: job, EvalID: jobs.ID{7}}}},
		Nodes: jobstore.NodeWrites{Put: []jobstore.NodeWrite{{Secret: key.Secret.String(), Node: &jobs.Node{ID: key.Node,
			Name: "n", Capacity: jobs.Capacity{Total: jobs.Vector{CPU: 100, MemoryMB: 100, DiskMB: 100}}}}}}})
	s.do(t, &jobstore.Command{Plans: []jobstore.PlanWrite{plan}})
}

// do commits a command.
func (s *twoServers) do(t *testing.T, c *jobstore.Command) {
	t.Helper()
	c.Now, c.Seed = 1, 1
	if r := s.store.ApplyBatch([][]byte{c.Encode()})[0].(*jobstore.Result); r.Err != nil {
		t.Fatal(r.Err)
	}
}

// statuses are what the servers know of the allocations, joined.
func (s *twoServers) statuses(ids ...jobs.ID) (all string) {
	for _, id := range ids {
		if a := s.store.View().State.Allocation(id); a != nil {
			all += a.Client.Status + " "
		}
	}
	return all
}

// TestHeldUpdatesAreLate: the leader dies while a server holds a node's first updates for it. The node loses its
// connection to that server, says what is so by now to another one, and the first server, which finds the new leader
// later, has the old updates stored after the newer ones. What runs stays running.
func TestHeldUpdatesAreLate(t *testing.T) {
	inTwo(t, func(t *testing.T, s *twoServers, ids ...jobs.ID) {
		pass(10 * time.Second)
		if got := s.statuses(ids...); got != "running running " {
			t.Fatalf("the second server took %q", got)
		}
		before := s.store.View().State.Index()
		close(s.leads)
		synctest.Wait()
		if s.store.View().State.Index() == before {
			t.Fatal("the first server had nothing stored")
		}
		if got := s.statuses(ids...); got != "running running " {
			t.Errorf("the updates that were held made it %q", got)
		}
	})
}

// TestNodeSaysAgain: what the servers took for unknown while it runs is running again within two minutes, without a
// word of anybody; where nothing differs nothing is committed.
func TestNodeSaysAgain(t *testing.T) {
	inTwo(t, func(t *testing.T, s *twoServers, ids ...jobs.ID) {
		close(s.leads)
		pass(2 * time.Minute)
		before := s.store.View().State.Index()
		pass(10 * time.Minute)
		if now := s.store.View().State.Index(); now != before {
			t.Errorf("nothing happened, and %d commands were committed", now-before)
		}
		s.do(t, &jobstore.Command{Plans: []jobstore.PlanWrite{{Stop: []jobs.Stopping{{Alloc: ids[0], Node: jobs.ID{9},
			Client: jobs.ClientUnknown}}}}})
		if got := s.statuses(ids...); got != "unknown running " {
			t.Fatal(got)
		}
		pass(2 * time.Minute)
		if got := s.statuses(ids...); got != "running running " {
			t.Errorf("after two minutes the servers know %q", got)
		}
	})
}

// pass lets time of the bubble pass.
func pass(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

// inTwo runs a node with two allocations on two servers, in a bubble of time.
func inTwo(t *testing.T, test func(t *testing.T, s *twoServers, ids ...jobs.ID)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		s := openTwo(ctx, &run)
		c, err := nodeclient.New(nodeclient.Config{Node: nodeclient.Identity{ID: jobs.ID{9}, Name: "n", Datacenter: "dc1"},
			Servers: s, RPCAddr: func() string { return "" }, HTTPAddr: func() string { return "" },
			Drivers: map[string]driver.Driver{mockdriver.Name: &mockdriver.Driver{Clock: clock.Real{}}}})
		if err != nil {
			t.Fatal(err)
		}
		s.secret = c.Key().Secret
		ids := []jobs.ID{{1}, {2}}
		s.place(t, c.Key(), ids...)
		run.Go(func() { _ = c.Run(ctx) })
		test(t, s, ids...)
		cancel()
		run.Wait()
	})
}

// TestServicesSaidAgain: a whole message of a node's native services takes away what it does not have, such as one that
// was stored after its deletion, and brings what is missing; where nothing differs no service changes.
func TestServicesSaidAgain(t *testing.T) {
	inTwo(t, func(t *testing.T, s *twoServers, ids ...jobs.ID) {
		close(s.leads)
		pass(time.Minute)
		key := noderpc.Key{Node: jobs.ID{9}, Secret: s.secret}
		service := func(id string) noderpc.Registration {
			return noderpc.Registration{ID: id, Name: "api", Namespace: "default", Job: "j", Alloc: ids[0], Address: "10.0.0.1"}
		}
		tell := func(all bool, list ...noderpc.Registration) string {
			t.Helper()
			if _, err := s.second.serve(t.Context(), noderpc.Bytes(&noderpc.Services{Key: key, All: all,
				Upsert: list})); err != nil {
				t.Fatal(err)
			}
			there := ""
			for d := range s.store.View().Documents(jobstore.Services, "") {
				there += d.Name + " "
			}
			return there
		}
		if got := tell(true, service("a"), service("b")); got != "a b " {
			t.Fatalf("registered are %q", got)
		}
		before := s.store.View().Index(jobstore.Services)
		if got := tell(true, service("a"), service("b")); got != "a b " || s.store.View().Index(jobstore.Services) != before {
			t.Errorf("said again: %q, and services changed at %d and %d", got, before,
				s.store.View().Index(jobstore.Services))
		}
		if got := tell(false, service("late")); got != "a b late " {
			t.Fatalf("registered are %q", got)
		}
		if got := tell(true, service("b"), service("c")); got != "b c " {
			t.Errorf("after a whole message: %q", got)
		}
	})
}

// TestServicesAreComparedWithTheNewest: a whole message to a server that does not have yet what the leader has, such as
// a snapshot of an operator, brings what is missing there and takes away what is over.
func TestServicesAreComparedWithTheNewest(t *testing.T) {
	inTwo(t, func(t *testing.T, s *twoServers, ids ...jobs.ID) {
		close(s.leads)
		pass(time.Minute)
		whole := noderpc.Bytes(&noderpc.Services{Key: noderpc.Key{Node: jobs.ID{9}, Secret: s.secret}, All: true,
			Upsert: []noderpc.Registration{{ID: "a", Name: "api", Namespace: "default", Job: "j", Alloc: ids[0]}}})
		if _, err := s.second.serve(t.Context(), whole); err != nil {
			t.Fatal(err)
		}
		behind := *s.second
		behind.group = &groupState{store: jobstore.New(jobstore.Config{})}
		catchUp := func() {
			t.Helper()
			var text bytes.Buffer
			_, err := s.store.View().WriteTo(&text)
			if err = errors.Join(err, behind.group.store.Restore(&text)); err != nil {
				t.Error(err)
			}
		}
		catchUp()
		commit := s.second.services.commit
		s.second.services.commit = func(ctx context.Context, c *jobstore.Command) (*jobstore.Result, error) {
			defer catchUp() // who commits waits until its own state has it
			return commit(ctx, c)
		}
		old := jobstore.Document{Table: jobstore.Services, Namespace: "default"}
		old.Name, old.Body = "old", `{"ID":"old","NodeID":"`+jobs.ID{9}.String()+`"}`
		gone := old
		gone.Name = "a"
		s.do(t, &jobstore.Command{Names: jobstore.NameWrites{Docs: []jobstore.DocWrite{{Document: old},
			{Document: gone, Delete: true}}}})
		if _, err := behind.serve(t.Context(), whole); err != nil {
			t.Fatal(err)
		}
		there := ""
		for d := range s.store.View().Documents(jobstore.Services, "") {
			there += d.Name + " "
		}
		if there != "a " {
			t.Errorf("registered are %q", there)
		}
	})
}
