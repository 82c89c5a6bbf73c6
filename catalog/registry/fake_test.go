package registry

import (
	"context"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// directLog is a log of one server: what is proposed is applied at once.
type directLog struct {
	r *Registry

	mu      sync.Mutex // guards all below; held while applying, which keeps batches apart
	leads   bool
	changes chan struct{}
	refuse  func(catalog.Command) error
	seen    []catalog.Command
}

func newDirectLog(leads bool) *directLog {
	return &directLog{leads: leads, changes: make(chan struct{})}
}

func (l *directLog) Propose(_ context.Context, raw []byte) (any, error) {
	c, err := catalog.DecodeCommand(raw)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads {
		return nil, errkind.New(errkind.NotLeader, "not the leader")
	}
	if l.refuse != nil {
		if err := l.refuse(c); err != nil {
			return nil, err
		}
	}
	l.seen = append(l.seen, c)
	return l.r.ApplyBatch([][]byte{raw})[0], nil
}

func (l *directLog) VerifyLeader(context.Context) error {
	if !l.IsLeader() {
		return errkind.New(errkind.NotLeader, "not the leader")
	}
	return nil
}

func (l *directLog) IsLeader() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads
}

func (l *directLog) LeaseHeld() bool            { return l.IsLeader() }
func (l *directLog) LastContact() time.Duration { return 0 }

func (l *directLog) Leader() (id, addr string) {
	if l.IsLeader() {
		return "s1", "s1:8300"
	}
	return "", ""
}

func (l *directLog) LeaderChanges() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes
}

// elect makes the server the leader, or not, as a new term.
func (l *directLog) elect(leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads = leads
	close(l.changes)
	l.changes = make(chan struct{})
}

func (l *directLog) refuseBy(f func(catalog.Command) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = f
}

// count is how many commands of an op were applied.
func (l *directLog) count(op catalog.Op) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, c := range l.seen {
		if c.Op() == op {
			n++
		}
	}
	return n
}

// forget keeps a benchmark's memory flat.
func (l *directLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = l.seen[:0]
}

// fakeMembers is a pool set by hand.
type fakeMembers struct {
	mu      sync.Mutex
	list    []Member
	changes chan struct{}
}

func newFakeMembers(list ...Member) *fakeMembers {
	return &fakeMembers{list: list, changes: make(chan struct{})}
}

func (f *fakeMembers) Members() []Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list
}

func (f *fakeMembers) Changes() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes
}

func (f *fakeMembers) set(list ...Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
	close(f.changes)
	f.changes = make(chan struct{})
}

func newRegistry(t testing.TB, cfg Config, leads bool) (*Registry, *directLog) {
	t.Helper()
	log := newDirectLog(leads)
	cfg.Proposer = log
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	log.r = r
	return r, log
}

// start runs r until the returned function is called, which waits for its end.
func start(r *Registry) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func apply(t testing.TB, r *Registry, c catalog.Command) catalog.Result {
	t.Helper()
	result, err := r.Apply(t.Context(), c)
	if err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	if result.Err != nil {
		t.Fatalf("%T: %v", c, result.Err)
	}
	return result
}

func set(key, value string) *catalog.KV {
	return &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: key, Value: []byte(value)}}
}

func register(node string) *catalog.Register {
	return &catalog.Register{Node: catalog.Node{Name: node, Address: "10.0.0.1"}}
}
