package local

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fakeServers is a catalog of one node in memory.
type fakeServers struct {
	mu       sync.Mutex
	down     error           // every call fails with it
	refuse   map[string]bool // service ids that are refused
	node     *catalog.Node
	services map[string]*catalog.Service
	checks   map[string]*catalog.Check

	calls, registers, batches, deregisters, reads int
	syncs                                         int           // full ones that began
	hold                                          chan struct{} // registrations wait until it is closed

	// tokens are those of the calls, by what was registered ("node", "s:id", "c:id") or removed ("-s:id", "-c:id").
	tokens map[string]string
}

func newFake() *fakeServers {
	return &fakeServers{tokens: map[string]string{}, refuse: map[string]bool{}, services: map[string]*catalog.Service{},
		checks: map[string]*catalog.Check{}}
}

func (f *fakeServers) applyLocked(r *catalog.Register) error {
	f.registers++
	if r.Service != nil && f.refuse[r.Service.ID] {
		return errkind.New(errkind.Denied, "Permission denied")
	}
	if f.node == nil || !r.SkipNodeUpdate {
		n := r.Node
		f.node = &n
	}
	if r.Service != nil {
		f.services[r.Service.ID] = r.Service
	}
	for _, c := range r.Checks {
		f.checks[c.ID] = c
	}
	return nil
}

func (f *fakeServers) Register(ctx context.Context, token string, r *catalog.Register) error {
	return f.RegisterBatch(ctx, token, []*catalog.Register{r})
}

func (f *fakeServers) RegisterBatch(ctx context.Context, token string, all []*catalog.Register) error {
	f.mu.Lock()
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.batches = f.calls+1, f.batches+1
	if f.down != nil {
		return f.down
	}
	for _, r := range all {
		if !r.SkipNodeUpdate {
			f.tokens["node"] = token
		}
		if r.Service != nil {
			f.tokens["s:"+r.Service.ID] = token
		}
		for _, c := range r.Checks {
			f.tokens["c:"+c.ID] = token
		}
		if err := f.applyLocked(r); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeServers) Deregister(_ context.Context, token string, d *catalog.Deregister) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.deregisters = f.calls+1, f.deregisters+1
	if f.down != nil {
		return f.down
	}
	if d.ServiceID != "" {
		f.tokens["-s:"+d.ServiceID] = token
		delete(f.services, d.ServiceID)
		maps.DeleteFunc(f.checks, func(_ string, c *catalog.Check) bool { return c.ServiceID == d.ServiceID })
	}
	if d.CheckID != "" {
		f.tokens["-c:"+d.CheckID] = token
	}
	delete(f.checks, d.CheckID)
	return nil
}

func (f *fakeServers) NodeServices(context.Context, string, string) ([]*catalog.Service, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return slices.Collect(maps.Values(f.services)), f.down
}

func (f *fakeServers) NodeChecks(context.Context, string, string) ([]*catalog.Check, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.checks)), f.down
}

func (f *fakeServers) NodeInfo(context.Context, string, string) (*catalog.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncs++
	return f.node, f.down
}

func (f *fakeServers) service(id string) *catalog.Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.services[id]
}

func (f *fakeServers) check(id string) *catalog.Check {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checks[id]
}

func (f *fakeServers) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// set changes the fake under its lock.
func (f *fakeServers) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// running builds and runs a Local; the returned function stops it.
func running(t *testing.T, cfg Config) (*Local, func()) {
	t.Helper()
	cfg.Node = catalog.Node{Name: "host", Address: "10.0.0.1", Locality: cfg.Node.Locality}
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	return l, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func mustService(t testing.TB, body string) *definition.Service {
	t.Helper()
	d, err := definition.DecodeService([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustCheck(t testing.TB, body string) *definition.Check {
	t.Helper()
	d, err := definition.DecodeCheck([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return d
}
