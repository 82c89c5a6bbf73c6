package host

import (
	"context"
	"errors"
	"slices"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/proxy"
)

// ErrNoToken is wrapped by what Open returns when no token came, or one that nobody knows.
var ErrNoToken = errors.New("the token is missing or unknown")

// Claim is what a stream says of itself.
type Claim struct {
	ID      string // of the proxy's service
	Node    string // "" is the host's own
	Version string // of Envoy, "" if it did not say
}

// Stream is an opened proxy, for one stream.
type Stream struct {
	h       *Host
	m       *member
	version string
	waker   mesh.Waker // set by Bind; guarded by Host.mu
}

// Open finds the proxy, checks that the token has service:write on the service
// that it stands for, and waits until everything is known that it needs. Kinds:
// Denied (with ErrNoToken), NotFound, Invalid, Overloaded, Unavailable.
func (h *Host) Open(ctx context.Context, c Claim, token string) (*Stream, error) {
	if c.ID == "" {
		return nil, errkind.New(errkind.Invalid, "node.id is empty: it must be the ID of the proxy's service")
	}
	if c.Node == "" {
		c.Node = h.cfg.Node
	}
	if token == "" {
		token = h.cfg.Token()
	}
	var grant *acl.Grant
	if h.cfg.Grant == nil {
		token = "" // all are the same
	} else {
		var err error
		if grant, err = h.cfg.Grant(ctx, token); err != nil {
			if errkind.Is(err, errkind.Denied) {
				err = errkind.E(errkind.Denied, err.Error(), ErrNoToken)
			}
			return nil, err
		}
	}
	svc := h.cfg.Directory.Find(c.Node, c.ID)
	if svc == nil {
		return nil, errkind.Errorf(errkind.NotFound,
			"no proxy %q is registered on node %q: register it first, and give its ID as node.id", c.ID, c.Node)
	}
	reg, err := proxy.ReadRegistration(svc)
	if err != nil {
		return nil, err
	}
	if grant != nil {
		if err := grant.Check(acl.Service, reg.Service(), acl.Write); err != nil {
			return nil, err
		}
	}
	return h.await(ctx, key{c.Node, c.ID, token}, grant, svc, reg, c.Version)
}

// await joins the member and waits until it is ready.
func (h *Host) await(ctx context.Context, k key, grant *acl.Grant, svc *catalog.Service, reg *proxy.Registration,
	version string) (*Stream, error) {
	m, err := h.enter(k, grant, svc, reg)
	if err != nil {
		return nil, err
	}
	defer h.left(m)
	select {
	case <-m.ready:
	case <-m.done:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case m.failed != nil:
		return nil, m.failed
	case m.ended:
		return nil, errkind.Errorf(errkind.Unavailable, "the registration of %q changed while it was opened: try again", k.id)
	case m.sets.Load() == nil:
		return nil, errkind.Errorf(errkind.Unavailable,
			"the servers have not yet told what %q needs (%d values missing, first %q)", k.id, len(m.proxy.Missing()),
			first(m.proxy.Missing()))
	}
	return &Stream{h: h, m: m, version: version}, nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// enter finds the member or makes it.
func (h *Host) enter(k key, grant *acl.Grant, svc *catalog.Service, reg *proxy.Registration) (*member, error) {
	var w work
	h.mu.Lock()
	m := h.proxies[k]
	switch {
	case h.stopped:
		h.mu.Unlock()
		return nil, errkind.New(errkind.Unavailable, "this process stops")
	case m == nil && len(h.proxies) >= h.cfg.MaxProxies:
		h.mu.Unlock()
		return nil, errkind.Errorf(errkind.Overloaded, "this host keeps %d proxies already: the most that it takes",
			h.cfg.MaxProxies)
	case m == nil:
		m = &member{key: k, service: svc, proxy: *proxy.New(reg, h.cfg.Datacenter, h.cache), ready: make(chan struct{}),
			done: make(chan struct{})}
		h.proxies[k] = m
		h.deltaLocked(m, proxy.Delta{Follow: m.proxy.Follows()}, &w)
	}
	m.grant = grant
	m.opening++
	h.mu.Unlock()
	h.do(&w)
	return m, nil
}

func (h *Host) left(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m.opening--
	m.used = h.cfg.Clock.Now()
}

// Bind registers who is woken after sets changed, with their types; with none, to have Done looked at.
// The first sets are read without it.
func (s *Stream) Bind(waker mesh.Waker) (unbind func()) {
	h, m := s.h, s.m
	h.mu.Lock()
	s.waker = waker
	m.boundLocked(append(m.streams, s))
	h.mu.Unlock()
	m.applied.begin(s.version, h.cfg.Clock.Now())
	return func() {
		h.mu.Lock()
		m.boundLocked(slices.DeleteFunc(m.streams, func(o *Stream) bool { return o == s }))
		m.used = h.cfg.Clock.Now()
		last := len(m.streams) == 0
		h.mu.Unlock()
		if last {
			m.applied.end(h.cfg.Clock.Now())
		}
	}
}

// Set returns the newest resources of a type.
func (s *Stream) Set(t mesh.Type) mesh.Set { return s.m.sets.Load()[t] }

// Done is closed when the proxy is no longer registered, or its token lost its right.
func (s *Stream) Done() <-chan struct{} { return s.m.done }
