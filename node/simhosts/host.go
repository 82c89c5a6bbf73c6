package simhosts

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/core/hedge"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/host"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/mesh/leaf"
	"corbel.dev/corbel/mesh/proxy"
)

// simulated is one host: what an agent has between a server and its Envoys.
type simulated struct {
	feed   *feed.Client
	leaves *leaf.Leaves
	host   *host.Host
	roots  roots
}

// build makes the host at a place of the fleet.
func (f *fleet) build(place int, h hostConfig) (*simulated, error) {
	ip := net.ParseIP(h.Bind)
	follow, err := dialFrom(&origin{net: f.net, ip: ip, host: place, feed: true}, wire.ProtoFeed)
	if err != nil {
		return nil, err
	}
	call, err := dialFrom(&origin{net: f.net, ip: ip, host: place}, wire.ProtoRPC)
	if err != nil {
		return nil, err
	}
	s := &simulated{roots: roots{news: make(chan struct{})}}
	if s.feed, err = feed.NewClient(feed.ClientConfig{Node: h.Node, Servers: func() []string { return f.cfg.Servers },
		Dial: follow, Hedge: f.cfg.Hedged, Metrics: f.metrics}); err != nil {
		return nil, err
	}
	// Certificates are asked for over a connection of its own, as an agent's calls are; it is closed when it was idle.
	calls := rpc.NewClient(rpc.ClientConfig{Dial: call, IdleTimeout: 5 * time.Second})
	server := func() (string, error) { return f.cfg.Servers[rand.IntN(len(f.cfg.Servers))], nil }
	sign := func(ctx context.Context, r issue.Request) (issue.Certificate, error) {
		reply, err := hedge.Repeat(ctx, calls, server, issue.Method, r.AppendPack(nil))
		if err != nil {
			return issue.Certificate{}, err
		}
		return issue.ReadCertificate(reply)
	}
	if s.leaves, err = leaf.New(leaf.Config{Sign: sign, Roots: s.roots.newer, Datacenter: f.cfg.Datacenter,
		Metrics: f.metrics}); err != nil {
		return nil, err
	}
	directory, err := f.register(h)
	if err != nil {
		return nil, err
	}
	s.host, err = host.New(host.Config{Node: h.Node, Datacenter: f.cfg.Datacenter, Follower: s.feed, Leaves: s.leaves,
		Directory: directory, Metrics: f.metrics})
	return s, err
}

// dialFrom dials servers from a place. Nobody comes to its wire: it is for dialling alone.
func dialFrom(o *origin, proto wire.Protocol) (func(context.Context, string) (net.Conn, error), error) {
	w, err := wire.New(wire.Config{Listener: nobody{}, Dialer: o})
	return func(ctx context.Context, addr string) (net.Conn, error) { return w.Dial(ctx, addr, proto, 0) }, err
}

// nobody is a listener to which nobody comes.
type nobody struct{ net.Listener }

// register makes the registrations that the host's agent would have.
func (f *fleet) register(h hostConfig) (directory, error) {
	d := make(directory, len(h.Proxies))
	for _, p := range h.Proxies {
		own, err := json.Marshal(proxy.Registration{DestinationServiceName: p.Service, DestinationServiceID: p.ID,
			LocalServiceAddress: "127.0.0.1", LocalServicePort: p.Port,
			Upstreams: []proxy.Upstream{{DestinationType: "service", DestinationName: f.cfg.Upstream,
				LocalBindPort: f.cfg.UpstreamPort}}})
		if err != nil {
			return nil, err
		}
		id := p.ID + "-sidecar-proxy"
		d[id] = &catalog.Service{Node: h.Node, Kind: catalog.KindConnectProxy, ID: id, Name: p.Service + "-sidecar-proxy",
			Port: p.Port + 1, Connect: catalog.Connect{Proxy: own, ProxyDestination: p.Service}}
	}
	for _, e := range h.Extras {
		r := proxy.Registration{DestinationServiceName: e.Service, DestinationServiceID: e.ID,
			LocalServiceAddress: "127.0.0.1",
			LocalServicePort:    e.LocalPort}
		r.Config = map[string]any{"bind_address": "0.0.0.0"}
		if e.UpstreamPort > 0 {
			r.Upstreams = []proxy.Upstream{{DestinationType: "service", DestinationName: f.cfg.Upstream,
				LocalBindPort: e.UpstreamPort}}
		}
		own, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		d[e.ID] = &catalog.Service{Node: h.Node, Kind: catalog.KindConnectProxy, ID: e.ID, Name: e.Service + "-sidecar-proxy",
			Port: e.Port, Connect: catalog.Connect{Proxy: own, ProxyDestination: e.Service}}
	}
	return d, nil
}

// run runs the host's parts until ctx ends.
func (s *simulated) run(ctx context.Context) error {
	stop := s.feed.Follow(mesh.Subject{Kind: mesh.SubjectRoots}.String(), "", s.roots.set, func(error) {})
	defer stop()
	g := &life.Group{}
	g.Add("feed", s.feed.Run)
	g.Add("leaves", s.leaves.Run)
	g.Add("host", s.host.Run)
	return g.Run(ctx)
}

// directory is the registrations of a host: they stay as they are.
type directory map[string]*catalog.Service

// Find implements host.Directory.
func (d directory) Find(_, id string) *catalog.Service { return d[id] }

// List implements host.Directory.
func (d directory) List() []*catalog.Service {
	var out []*catalog.Service
	for _, s := range d {
		out = append(out, s)
	}
	return out
}

// Await implements host.Directory.
func (d directory) Await(ctx context.Context, since uint64) uint64 {
	if since == 0 {
		return 1
	}
	<-ctx.Done()
	return since
}

// roots is the authority's roots as the host's own feed tells them.
type roots struct {
	mu   sync.Mutex // guards news
	news chan struct{}
	now  atomic.Pointer[leaf.Roots]
}

func (r *roots) set(v feed.Value) {
	roots, err := mesh.ReadRoots(v.Body)
	if v.Body == nil || err != nil {
		return // no authority yet
	}
	r.now.Store(&leaf.Roots{TrustDomain: roots.TrustDomain, Active: roots.ActiveID, Index: v.Index})
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.news)
	r.news = make(chan struct{})
}

// newer waits for roots that are newer than index.
func (r *roots) newer(ctx context.Context, index uint64) (leaf.Roots, error) {
	for {
		r.mu.Lock()
		news := r.news
		r.mu.Unlock()
		if now := r.now.Load(); now != nil && now.Index != index {
			return *now, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return leaf.Roots{}, ctx.Err()
		}
	}
}
