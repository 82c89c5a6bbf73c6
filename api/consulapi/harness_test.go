package consulapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi/agentrows"
	"corbel.dev/corbel/api/consulapi/catalogrows"
	"corbel.dev/corbel/api/consulapi/configrows"
	"corbel.dev/corbel/api/consulapi/kvrows"
	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/api/consulapi/peerrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/archive"
	"corbel.dev/corbel/kit/errkind"
)

// store is a Registry over a real State without replication: what Apply gives is there at once.
type store struct {
	mu       sync.Mutex
	st       *statestore.State
	changed  chan struct{}
	contact  registry.Contact
	readErr  error // what Read answers for the modes that need a leader
	applies  int
	seq      int
	restores uint64
	awaits   int // Awaits that have begun
	applied  map[uint64]time.Time
}

func newStore() *store {
	return &store{st: statestore.Empty(), applied: map[uint64]time.Time{}, changed: make(chan struct{}),
		contact: registry.Contact{KnownLeader: true, Leader: true}}
}

func (s *store) State() *statestore.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st
}

func (s *store) Read(_ context.Context, m registry.Mode) (registry.Contact, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readErr != nil && m != registry.Stale {
		return registry.Contact{}, s.readErr
	}
	return s.contact, nil
}

func (s *store) Apply(_ context.Context, c catalog.Command) (catalog.Result, error) {
	// As in a real group, the command is encoded before Apply returns.
	decoded, err := catalog.DecodeCommand(catalog.EncodeCommand(nil, c))
	if err != nil {
		return catalog.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readErr != nil {
		return catalog.Result{}, s.readErr
	}
	s.applies++
	next, results, _ := s.st.Apply([]catalog.Command{decoded})
	if next != s.st {
		s.st = next
		s.applied[next.Index()] = time.Now()
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return results[0], nil
}

// SetRecords implements grants.Store.
func (s *store) SetRecords(ctx context.Context, ops ...catalog.RecordOp) (catalog.Result, bool, error) {
	res, err := s.Apply(ctx, &catalog.Records{Ops: ops})
	if err == nil {
		err = res.Err
	}
	return res, res.OK && err == nil, err
}

func (s *store) Await(ctx context.Context, _ registry.Subject, least uint64, wait time.Duration,
	indexOf func(*statestore.State) uint64) *statestore.State {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	s.mu.Lock()
	s.awaits++
	restores := s.restores
	s.mu.Unlock()
	for {
		s.mu.Lock()
		st, changed, restored := s.st, s.changed, s.restores != restores
		s.mu.Unlock()
		if restored || indexOf(st) > least {
			return st
		}
		select {
		case <-changed:
		case <-timer.C:
			return st
		case <-ctx.Done():
			return st
		}
	}
}

func (s *store) AppliedAt(index uint64) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.applied[index]
	return at, ok
}

func (s *store) Generation() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restores
}

// restore replaces everything; who waits is told.
func (s *store) restore(st *statestore.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st = st
	s.restores++
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *store) CreateSession(ctx context.Context, in catalog.Session) (string, error) {
	s.mu.Lock()
	s.seq++
	in.ID = fmt.Sprintf("00000000-0000-0000-0000-%012d", s.seq)
	s.mu.Unlock()
	res, err := s.Apply(ctx, &catalog.SessionCreate{Session: in})
	if err == nil {
		err = res.Err
	}
	return in.ID, err
}

func (s *store) RenewSession(_ context.Context, id string) (*catalog.Session, error) {
	if found := s.State().Session(id); found != nil {
		return found, nil
	}
	return nil, errkind.New(errkind.NotFound, "no such session")
}

func (s *store) DestroySession(ctx context.Context, id string) error {
	_, err := s.Apply(ctx, &catalog.SessionDestroy{ID: id})
	return err
}

func (s *store) RenewLease(_ context.Context, node string) (*catalog.Node, error) {
	n := s.State().Node(node)
	switch {
	case n == nil:
		return nil, errkind.New(errkind.NotFound, "no such node")
	case registry.LeaseOf(n) == 0:
		return nil, errkind.New(errkind.Invalid, "no lease")
	}
	return n, nil
}

// servers lets a real Local sync into the store.
type servers struct{ *store }

func (s servers) Register(ctx context.Context, _ string, r *catalog.Register) error {
	res, err := s.Apply(ctx, r)
	if err == nil {
		err = res.Err
	}
	return err
}

func (s servers) RegisterBatch(ctx context.Context, _ string, r []*catalog.Register) error {
	for _, one := range r {
		if err := s.Register(ctx, "", one); err != nil {
			return err
		}
	}
	return nil
}

func (s servers) Deregister(ctx context.Context, _ string, d *catalog.Deregister) error {
	_, err := s.Apply(ctx, d)
	return err
}

func (s servers) NodeServices(_ context.Context, _, node string) (all []*catalog.Service, _ error) {
	for v := range s.State().ServicesOfNode(node) {
		all = append(all, v)
	}
	return all, nil
}

func (s servers) NodeChecks(_ context.Context, _, node string) (all []*catalog.Check, _ error) {
	for v := range s.State().ChecksOfNode(node) {
		all = append(all, v)
	}
	return all, nil
}

func (s servers) NodeInfo(_ context.Context, _, node string) (*catalog.Node, error) {
	return s.State().Node(node), nil
}

// pool is a gossip pool of one.
type pool struct{}

func (pool) Members() []agentrows.Member {
	return []agentrows.Member{{Name: "n1", Addr: "10.0.0.1", Port: 8301, Status: 1,
		Tags: map[string]string{"role": "consul",
			"dc": "dc1"}}}
}

func (pool) Join(context.Context, []string) (int, error) {
	return 0, errkind.New(errkind.Unavailable, "nobody there")
}

func (pool) ForceLeave(name string, _ bool) error {
	if name == "n1" {
		return nil
	}
	return errkind.New(errkind.NotFound, "unknown")
}

// group is a Raft group of one.
type group struct{ set operatorrows.AutopilotConfig }

func (*group) Leader() string { return "10.0.0.1:8300" }

func (*group) Peers() []string { return []string{"10.0.0.1:8300"} }

func (*group) Configuration() ([]operatorrows.RaftServer, uint64, error) {
	return []operatorrows.RaftServer{{ID: "id1", Node: "n1", Address: "10.0.0.1:8300", Leader: true, Voter: true,
		LastIndex: 7}}, 3, nil
}

func (*group) RemovePeer(context.Context, operatorrows.PeerRemoval) error { return nil }

func (*group) TransferLeader(context.Context, string) error {
	return errkind.New(errkind.Unavailable, "there is no peer")
}

func (g *group) Autopilot() operatorrows.AutopilotConfig {
	return operatorrows.AutopilotConfig{CleanupDeadServers: true, LastContactThreshold: 200 * time.Millisecond,
		MaxTrailingLogs:         250,
		ServerStabilizationTime: 10 * time.Second, ModifyIndex: 5}
}

func (g *group) SetAutopilot(_ context.Context, c operatorrows.AutopilotConfig, cas bool) (bool, error) {
	if cas && c.ModifyIndex != 5 {
		return false, nil
	}
	g.set = c
	return true, nil
}

func (*group) AutopilotHealth() operatorrows.AutopilotHealth {
	return operatorrows.AutopilotHealth{Healthy: false,
		Servers: []operatorrows.ServerHealth{{ID: "id1", Name: "n1", Leader: true, Voter: true,
			LastContact: time.Millisecond}}}
}

type process struct{ left, reloaded bool }

func (*process) DebugConfig() map[string]any {
	return map[string]any{"DataDir": "/d", "EncryptKey": "hidden"}
}

func (*process) Stats() map[string]map[string]string {
	return map[string]map[string]string{"raft": {"state": "Leader"}}
}

func (p *process) Reload(context.Context) error { p.reloaded = true; return nil }

func (p *process) Leave(context.Context) error { p.left = true; return nil }

// rig is an API with everything behind it.
type rig struct {
	*testing.T
	api   *API
	store *store
	proc  *process
	group *group
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{T: t, store: newStore(), proc: &process{}, group: &group{}}
	// a catalog of its own: indexes stay predictable
	l, err := local.New(local.Config{Node: catalog.Node{Name: "n1", Address: "10.0.0.1", Datacenter: "dc1"},
		Servers: servers{newStore()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	leaves := &keptLeaves{}
	cfg := Config{
		Config: rows.Config{Identity: rows.Identity{Datacenter: "dc1", NodeName: "n1", NodeID: "id1", Version: "1.21.4",
			Server: true, GRPCPort: 8502}, Registry: r.store},
		KV: kvrows.Config{Sessions: r.store}, Catalog: catalogrows.Config{Leases: r.store},
		Agent: agentrows.Config{Local: l, Members: pool{}, Info: r.proc,
			Events:      &firedEvents{list: []agentrows.Event{{ID: "00000000-0000-0000-0000-000000000001", Name: "deploy"}}},
			Connections: func([]uint16, time.Duration) (int, int, error) { return 3, 1, nil }},
		Operator: operatorrows.Config{Group: r.group, Snapshots: stateArchives{r.store}},
		Mesh:     meshrows.Config{CA: keptCA{r.store}, Leaves: leaves, Proxies: keptMesh{}},
		Peering:  peerrows.Config{Peers: keptPeers{}},
		Entries:  configrows.Config{TrustDomain: leaves.TrustDomain},
	}
	if change != nil {
		change(&cfg)
	}
	if r.api, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// tokens is an Authorizer that knows these secrets.
type tokens map[string]*acl.Grant

// Grant implements Authorizer.
func (t tokens) Grant(_ context.Context, secret string) (*acl.Grant, error) {
	if g := t[secret]; g != nil {
		return g, nil
	}
	return nil, errkind.New(errkind.Denied, "ACL not found")
}

// GrantWithin implements Authorizer.
func (t tokens) GrantWithin(ctx context.Context, secret string, _ time.Duration) (*acl.Grant, error) {
	return t.Grant(ctx, secret)
}

// rules is a grant of a policy's text under default_policy deny.
func rules(text string) *acl.Grant {
	parsed, err := acl.Parse(text)
	if err != nil {
		panic(err)
	}
	return &acl.Grant{Accessor: "the-accessor", Authorizer: acl.Compile(acl.Deny, parsed)}
}

// response is a response read to its end.
type response struct {
	status int
	header http.Header
	body   string
}

func (r *rig) do(method, target, body string) response {
	r.Helper()
	return r.send(httptest.NewRequest(method, target, strings.NewReader(body)))
}

func (r *rig) send(req *http.Request) response {
	rec := httptest.NewRecorder()
	r.api.ServeHTTP(rec, req)
	b, err := io.ReadAll(rec.Result().Body)
	if err != nil {
		r.Fatal(err)
	}
	return response{rec.Code, rec.Header(), string(b)}
}

// want fails unless the answer has the status and, unless it is "*", the body.
func (r *rig) want(method, target, body string, status int, text string) response {
	r.Helper()
	a := r.do(method, target, body)
	if a.status != status || text != "*" && a.body != text {
		r.Errorf("%s %s %s\n got %d %s\nwant %d %s", method, target, body, a.status, a.body, status, text)
	}
	return a
}

// node registers a node with a passing serfHealth, as the leader does for members.
func (r *rig) node(name string) {
	r.Helper()
	r.want("PUT", "/v1/catalog/register",
		`{"Node":"`+name+
			`","Address":"10.0.0.9","Check":{"CheckID":"serfHealth","Name":"Serf Health Status","Status":"passing"}}`, 200,
		"true")
}

// until polls a condition with a deadline.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(45 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// stubRegistry takes every command at no cost, so that only the handler is measured.
type stubRegistry struct{ *store }

func (*stubRegistry) Apply(context.Context, catalog.Command) (catalog.Result, error) {
	return catalog.Result{OK: true}, nil
}

// set changes what Read answers; a nil err is none.
func (s *store) set(c registry.Contact, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact, s.readErr = c, err
}

func (s *store) waits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awaits
}

// stateArchives are Snapshots of the store.
type stateArchives struct{ s *store }

func (a stateArchives) Save(context.Context) (io.ReadCloser, uint64, error) {
	var state, out bytes.Buffer
	st := a.s.State()
	n, err := st.WriteTo(&state)
	if err == nil {
		err = archive.Write(&out, &archive.Meta{Version: 1, Index: st.Index(), Size: n}, &state, time.Unix(1, 0))
	}
	return io.NopCloser(&out), st.Index(), err
}

func (a stateArchives) Restore(_ context.Context, in io.Reader) error {
	var raw bytes.Buffer
	if _, err := archive.Read(in, &raw, 1<<20); err != nil {
		return err
	}
	next, err := statestore.ReadState(&raw)
	if err == nil {
		a.s.restore(next)
	}
	return err
}

// firedEvents are Events that reach this agent alone.
type firedEvents struct {
	mu   sync.Mutex
	list []agentrows.Event
}

func (f *firedEvents) Fire(e agentrows.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, e)
	return nil
}

func (f *firedEvents) Recent() ([]agentrows.Event, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list), nil
}
