package feed

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
)

// press is a Source whose values tests write by hand; several servers may share one, or each have its own.
type press struct {
	mu         sync.Mutex
	generation uint64
	newest     uint64
	values     map[string]Value
	followers  map[string]map[*follower]struct{}
	denied     map[string]bool // by token
	follows    int             // made in all
}

type follower struct {
	token  string
	set    func(Value)
	denied func(error)
}

func newPress() *press {
	return &press{values: map[string]Value{}, followers: map[string]map[*follower]struct{}{}, denied: map[string]bool{}}
}

var errDenied = errkind.New(errkind.Denied, "Permission denied")

func (p *press) Follow(who Identity, subject string, set func(Value), denied func(error)) (func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.follows++
	if p.denied[who.Token] {
		return nil, errDenied
	}
	f := &follower{who.Token, set, denied}
	if p.followers[subject] == nil {
		p.followers[subject] = map[*follower]struct{}{}
	}
	p.followers[subject][f] = struct{}{}
	v := p.values[subject]
	if v.Index == 0 {
		v = Value{Index: 1, Generation: p.generation}
	}
	set(v)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.followers[subject], f)
	}, nil
}

func (p *press) Newest() (uint64, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generation, p.newest
}

// publish writes a value under the next index, which it returns.
func (p *press) publish(subject string, body []byte) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publishLocked(subject, body, p.newest+1)
	return p.newest
}

func (p *press) publishAt(subject string, body []byte, index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publishLocked(subject, body, index)
}

func (p *press) publishLocked(subject string, body []byte, index uint64) {
	v := Value{Index: index, At: time.Now(), Body: body, Generation: p.generation}
	p.values[subject] = v
	for f := range p.followers[subject] {
		f.set(v)
	}
	p.newest = max(p.newest, index)
}

// renew says what the subject said before again, under a newer index: the press looked after two changes.
func (p *press) renew(subject string, index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.values[subject]
	v.Since, v.Index = v.Index, index
	p.values[subject] = v
	for f := range p.followers[subject] {
		f.set(v)
	}
	p.newest = max(p.newest, index)
}

// restart begins another history, with nothing in it.
func (p *press) restart(generation uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.generation, p.newest = generation, 1
	clear(p.values)
	for subject, list := range p.followers {
		v := Value{Index: 1, Generation: generation}
		p.values[subject] = v
		for f := range list {
			f.set(v)
		}
	}
}

// deny refuses a token from now on, and ends what it follows.
func (p *press) deny(token string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied[token] = true
	for _, list := range p.followers {
		for f := range list {
			if f.token == token {
				f.denied(errDenied)
			}
		}
	}
}

func (p *press) allow(token string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied[token] = false
}

// count is how many follow, over all subjects.
func (p *press) count() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.followers {
		n += len(list)
	}
	return n
}

// body is a value's content that tells its index and proves that it is whole.
func body(index uint64, size int) []byte {
	b := make([]byte, max(size, 8))
	binary.LittleEndian.PutUint64(b, index)
	for i := 8; i < len(b); i++ {
		b[i] = byte(index) + byte(i)
	}
	return b
}

// seen is what one follower was told.
type seen struct {
	mu      sync.Mutex
	values  []Value
	errs    []error
	trouble string
}

func (s *seen) set(v Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.values); n > 0 && s.values[n-1].Generation == v.Generation && s.values[n-1].Index > v.Index {
		s.trouble = fmt.Sprintf("%d after %d", v.Index, s.values[n-1].Index)
	}
	if len(v.Body) > 8 && !slices.Equal(v.Body, body(v.Index, len(v.Body))) {
		s.trouble = fmt.Sprintf("the body of %d is damaged", v.Index)
	}
	v.Body = append([]byte(nil), v.Body[:min(8, len(v.Body))]...) // tests keep thousands
	s.values = append(s.values, v)
}

func (s *seen) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}

// last is the index of the newest value; 0 for none.
func (s *seen) last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.values) == 0 {
		return 0
	}
	return s.values[len(s.values)-1].Index
}

func (s *seen) counts() (values, errs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.values), len(s.errs)
}

func (s *seen) check(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble != "" {
		t.Error(s.trouble)
	}
}

// site is a network in memory with servers on it, named s0, s1 and so on.
type site struct {
	t       testing.TB
	memory  *wire.Memory
	metrics *telemetry.Registry
	mu      sync.Mutex
	addrs   []string
	servers map[string]*testServer
}

type testServer struct {
	*Server
	host string
	stop func()
}

func newSite(t testing.TB) *site {
	return &site{t: t, memory: wire.NewMemory(), metrics: telemetry.New(telemetry.Config{}),
		servers: map[string]*testServer{}}
}

func (s *site) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.addrs)
}

// serve starts a server on its host; it ends with the test, or when stop is called.
func (s *site) serve(host string, cfg ServerConfig) *testServer {
	s.t.Helper()
	cfg.Metrics = s.metrics
	server, err := NewServer(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := s.memory.Host(host).Listen(host + ":1")
	if err != nil {
		s.t.Fatal(err)
	}
	stop := run(s.t, func(ctx context.Context) error { return server.Run(ctx, l) })
	ts := &testServer{server, host, stop}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.addrs, host+":1") {
		s.addrs = append(s.addrs, host+":1")
	}
	s.servers[host+":1"] = ts
	return ts
}

// client starts a client on its host.
func (s *site) client(host string, cfg ClientConfig) *Client {
	s.t.Helper()
	cfg.Node, cfg.Metrics = host, s.metrics
	if cfg.Servers == nil {
		cfg.Servers = s.list
	}
	from := s.memory.Host(host)
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return from.DialContext(ctx, "tcp", addr) }
	c, err := NewClient(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	run(s.t, c.Run)
	return c
}

// run runs f until the test ends or stop is called, which wait for it.
func run(t testing.TB, f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func reaches(t testing.TB, s *seen, index uint64) {
	t.Helper()
	polltest.Until(t, func() bool { return s.last() == index }, "index %d", index)
	s.check(t)
}

// hostOf is the host that an address of a site belongs to.
func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}
