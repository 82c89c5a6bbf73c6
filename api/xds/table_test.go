package xds

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"google.golang.org/protobuf/encoding/protowire"
)

// table is a Plane of proxies that tests fill by hand.
type table struct {
	mu      sync.Mutex
	proxies map[string]*proxy
	// gate, if set, holds Open back until it is closed.
	gate chan struct{}
}

// proxy is one of them.
type proxy struct {
	mu      sync.Mutex
	sets    [mesh.TypeRoute + 1]mesh.Set
	wakes   map[int]mesh.Waker
	next    int
	done    chan struct{}
	reports []Report
}

func newTable() *table { return &table{proxies: map[string]*proxy{}} }

func (t *table) add(id string, list ...*mesh.Resource) *proxy {
	p := &proxy{wakes: map[int]mesh.Waker{}, done: make(chan struct{})}
	p.put(list...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.proxies[id] = p
	return p
}

func (t *table) Open(ctx context.Context, n Node, token string) (Proxy, error) {
	if t.gate != nil {
		select {
		case <-t.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch token {
	case "unknown":
		return nil, ErrUnauthenticated
	case "weak":
		return nil, errkind.New(errkind.Denied, "the token lacks service:write")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.proxies[n.ID]; p != nil {
		return p, nil
	}
	return nil, errkind.Errorf(errkind.NotFound, "no proxy %q is registered here", n.ID)
}

func (p *proxy) Bind(wake mesh.Waker) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	id := p.next
	p.wakes[id] = wake
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.wakes, id)
	}
}

func (p *proxy) Set(t mesh.Type) mesh.Set {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sets[t]
}

func (p *proxy) Applied(r Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Resources = append([]*mesh.Resource(nil), r.Resources...)
	p.reports = append(p.reports, r)
}

func (p *proxy) Done() <-chan struct{} { return p.done }

func (p *proxy) bound() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.wakes)
}

func (p *proxy) heard() []Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Report(nil), p.reports...)
}

// put adds resources and wakes the streams, under the lock as a plane may.
func (p *proxy) put(list ...*mesh.Resource) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var changed mesh.Types
	for _, r := range list {
		p.sets[r.Type] = p.sets[r.Type].With(r)
		changed = changed.With(r.Type)
	}
	for _, wake := range p.wakes {
		wake.Wake(changed)
	}
}

func (p *proxy) remove(t mesh.Type, names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sets[t] = p.sets[t].Without(names...)
	for _, wake := range p.wakes {
		wake.Wake(mesh.Types(0).With(t))
	}
}

func (p *proxy) finish() {
	close(p.done)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, wake := range p.wakes {
		wake.Wake(0)
	}
}

// encoded makes a resource of an encoded Envoy message, as mesh/envoy does.
func encoded(t mesh.Type, name, version string, value []byte) *mesh.Resource {
	text := func(b []byte, num protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
	}
	a := text(nil, 1, t.URL())
	a = protowire.AppendBytes(protowire.AppendTag(a, 2, protowire.BytesType), value)
	body := text(nil, 1, version)
	body = protowire.AppendBytes(protowire.AppendTag(body, 2, protowire.BytesType), a)
	at := len(body)
	body = text(body, 3, name)
	return &mesh.Resource{Type: t, Name: name, Version: version, Body: body, Any: body[at-len(a) : at : at],
		Changed: time.Now()}
}

// cluster is a small resource of any type.
func small(t mesh.Type, name, version string) *mesh.Resource {
	return encoded(t, name, version, protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name))
}

// serve runs a server on a port of the kernel's choice until the test ends.
func serve(t testing.TB, cfg Config, wrap ...func(net.Listener) net.Listener) (*Server, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	for _, w := range wrap {
		listener = w(listener)
	}
	s := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error("Run:", err)
			}
		case <-time.After(time.Minute):
			t.Error("Run did not return within a minute")
		}
	})
	return s, address
}
