package registry

import (
	"context"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/clock"
)

// LeaseMeta is the key of a node's metadata that gives it a lease: a duration. A node
// with one is deregistered, with all its services, when nothing of it was registered for
// that long. Any registration of the node renews it, also one that changes nothing.
const LeaseMeta = "corbel-lease-ttl"

// MinLease is the shortest lease; a shorter one counts as this.
const MinLease = time.Second

// leaseStep is how often the leader looks for leases that ran out.
const leaseStep = 500 * time.Millisecond

// LeaseOf is a node's lease, 0 for none.
func LeaseOf(n *catalog.Node) time.Duration {
	text := n.Meta[LeaseMeta]
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0
	}
	return max(d, MinLease)
}

// leases holds when the leases of nodes end, while this server leads. They are in
// memory alone: a new leader gives each its full time. There are as many as nodes that
// have one.
type leases struct {
	clock   clock.Clock
	mu      sync.Mutex // guards all below
	leading bool
	ends    map[string]time.Time     // by name in lower case
	ending  map[string]chan struct{} // being deregistered; closed when that was tried
}

// lead begins with the nodes of the state.
func (l *leases) lead(st *statestore.State) {
	l.mu.Lock()
	l.leading, l.ends, l.ending = true, map[string]time.Time{}, map[string]chan struct{}{}
	l.mu.Unlock()
	for n := range st.Nodes() {
		l.renew(n)
	}
}

func (l *leases) follow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leading, l.ends = false, nil
}

// renew gives the node its lease anew. A node that is just being deregistered gives the
// channel to wait for instead.
func (l *leases) renew(n *catalog.Node) <-chan struct{} {
	lease, name := LeaseOf(n), strings.ToLower(n.Name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading {
		return nil
	}
	if end := l.ending[name]; end != nil {
		return end
	}
	if lease == 0 {
		delete(l.ends, name)
	} else {
		l.ends[name] = l.clock.Now().Add(lease)
	}
	return nil
}

// expired takes the nodes whose lease ran out. Each is to be given to ended.
func (l *leases) expired() (names []string) {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, end := range l.ends {
		if !end.After(now) {
			names = append(names, name)
			delete(l.ends, name)
			l.ending[name] = make(chan struct{})
		}
	}
	return names
}

// ended lets those go on who registered the node meanwhile. When it was not
// deregistered it is tried again.
func (l *leases) ended(name string, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.ending[name])
	delete(l.ending, name)
	if !done && l.leading {
		l.ends[name] = l.clock.Now().Add(MinLease)
	}
}

// expireLeases deregisters the nodes whose lease ran out and lifts the bars that are over, until ctx ends.
func (r *Registry) expireLeases(ctx context.Context) {
	r.leases.lead(r.State())
	defer r.leases.follow()
	for pause(ctx, r.cfg.Clock, leaseStep) {
		r.expireBars(ctx)
		each(r.leases.expired(), func(name string) {
			done := true
			if n := r.State().Node(name); n != nil && LeaseOf(n) > 0 {
				err := r.duty(ctx, &catalog.Deregister{Node: n.Name})
				if done = err == nil; done {
					r.cfg.Logger.Info("a node's lease expired; deregistered it", "node", n.Name, "lease", LeaseOf(n))
				} else if ctx.Err() == nil {
					r.cfg.Logger.Warn("cannot deregister a node whose lease expired; trying again", "node", n.Name, "err", err)
				}
			}
			r.leases.ended(name, done)
		})
	}
}

// renewLeases renews what a command registered. It is false when one of the nodes was
// being deregistered meanwhile: then the command is to be applied once more.
func (r *Registry) renewLeases(ctx context.Context, c catalog.Command) bool {
	var list []*catalog.Register
	switch c := c.(type) {
	case *catalog.Register:
		list = []*catalog.Register{c}
	case *catalog.RegisterBatch:
		list = c.Registrations
	}
	settled := true
	for _, reg := range list {
		n := r.State().Node(reg.Node.Name)
		if n == nil {
			n = &reg.Node
		}
		end := r.leases.renew(n)
		if end == nil {
			continue
		}
		settled = false
		select {
		case <-end:
		case <-ctx.Done():
			return true // the caller has left
		}
	}
	return settled
}
