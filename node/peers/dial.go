package peers

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

// Run keeps the connections while this server leads, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		changes := m.cfg.Leader.LeaderChanges()
		if !m.cfg.Leader.IsLeader() {
			select {
			case <-changes:
			case <-ctx.Done():
			}
			continue
		}
		m.term(ctx, changes)
	}
	return nil
}

// term does the leader's part until the leader changes.
func (m *Manager) term(ctx context.Context, changes <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		select {
		case <-changes:
			cancel()
		case <-ctx.Done():
		}
	})
	m.mu.Lock()
	m.since, m.links = m.cfg.Clock.Now(), map[string]*link{}
	m.mu.Unlock()
	defer func() {
		cancel()
		all.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.since = time.Time{}
		for _, l := range m.links {
			if l.kick != nil {
				l.kick()
			}
		}
	}()
	all.Go(func() { watch(ctx, m) })
	works := map[string]*work{}
	defer func() {
		for _, w := range works {
			w.end()
		}
	}()
	for ctx.Err() == nil {
		st := m.cfg.Catalog.State()
		m.assign(ctx, st, works)
		m.cfg.Catalog.Await(ctx, registry.RecordsSubject(catalog.RecordPeering), st.RecordsIndex(catalog.RecordPeering),
			time.Minute, func(s *statestore.State) uint64 { return s.RecordsIndex(catalog.RecordPeering) })
	}
}

// work is what the leader does for one peering.
type work struct {
	what   string
	cancel context.CancelFunc
	done   chan struct{}
}

func (w *work) end() {
	w.cancel()
	<-w.done
}

// assign starts and ends work as the peerings demand it.
func (m *Manager) assign(ctx context.Context, st *statestore.State, works map[string]*work) {
	wanted := map[string]bool{}
	for p := range peering.All(st) {
		what, do := m.duty(p)
		if do == nil {
			continue
		}
		wanted[p.ID] = true
		if w := works[p.ID]; w != nil {
			if w.what == what {
				continue
			}
			w.end()
		}
		w := &work{what: what, done: make(chan struct{})}
		var own context.Context
		own, w.cancel = context.WithCancel(ctx)
		go func() {
			defer close(w.done)
			do(own, p)
		}()
		works[p.ID] = w
	}
	for id, w := range works {
		if !wanted[id] {
			w.end()
			delete(works, id)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.links {
		if p, err := peering.ByID(st, id); err == nil && p == nil {
			delete(m.links, id)
		}
	}
}

// duty is what is to be done for a peering; the text changes when it is something else.
func (m *Manager) duty(p *peering.Peering) (string, func(context.Context, *peering.Peering)) {
	switch {
	case p.State == peering.Deleting:
		return "delete", m.finish
	case p.State == peering.Terminated:
		return "forget", func(ctx context.Context, p *peering.Peering) {
			m.insist(ctx, p, func() error { return m.forget(ctx, p.Name) })
		}
	case p.Lives() && p.Dials():
		return "dial " + p.Dial.Secret, m.dial
	}
	return "", nil
}

// insist tries again what the log did not take.
func (m *Manager) insist(ctx context.Context, p *peering.Peering, do func() error) {
	delay := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for ctx.Err() == nil {
		err := do()
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			m.trouble(p, err)
		}
		pause(ctx, m.cfg.Clock, delay.Next())
	}
}

// finish ends a peering that was deleted here. Its peer is told if it can be, within tellWithin.
func (m *Manager) finish(ctx context.Context, p *peering.Peering) {
	telling, cancel := context.WithTimeout(ctx, tellWithin)
	switch {
	case p.PeerID == "":
	case p.Dials():
		_, err := m.anyAddress(telling, p, peering.MethodPush, &peering.Ask{ID: p.PeerID, Secret: p.Dial.Secret,
			Terminated: true})
		if err != nil {
			m.cfg.Log.Warn("a peer could not be told that the peering is deleted", "peer", p.Name, "error", err)
		}
	default:
		m.awaitTold(telling, p)
	}
	cancel()
	m.insist(ctx, p, func() error { return m.remove(ctx, p) })
}

// awaitTold has the peer's waiting request answered, and waits until it was, if the peer has been heard lately.
func (m *Manager) awaitTold(ctx context.Context, p *peering.Peering) {
	m.mu.Lock()
	l := m.of(p.ID)
	lately := m.cfg.Clock.Since(l.status.LastReceive) < silent || m.cfg.Clock.Since(m.since) < silent
	if l.kick != nil {
		l.kick()
	}
	m.mu.Unlock()
	if !lately {
		return
	}
	select {
	case <-l.told:
	case <-ctx.Done():
	}
}

// dial keeps the connection to a peer whose token was used here, at one address after the other.
func (m *Manager) dial(ctx context.Context, p *peering.Peering) {
	delay := backoff.Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}
	for next := rand.IntN(len(p.Dial.Addresses)); ctx.Err() == nil; next++ {
		addr := p.Dial.Addresses[next%len(p.Dial.Addresses)]
		begun := m.cfg.Clock.Now()
		err := m.connect(ctx, p, addr)
		if ctx.Err() != nil || errors.Is(err, errGone) {
			return
		}
		m.trouble(p, err)
		if m.cfg.Clock.Since(begun) > heartbeat {
			delay.Reset()
		}
		pause(ctx, m.cfg.Clock, delay.Next())
	}
}

// client is for one peer; close it.
func (m *Manager) client(p *peering.Peering) (*rpc.Client, error) {
	roots, err := peering.Roots(p.Dial.CAPems)
	if err != nil {
		return nil, err
	}
	return rpc.NewClient(rpc.ClientConfig{Timeout: answerWithin, MaxMessageBytes: peering.MaxMessageBytes,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return m.cfg.Wire.DialPeer(ctx, addr, p.Dial.ServerName, roots)
		}}), nil
}

// anyAddress asks the peer's servers one after the other, until one answers.
func (m *Manager) anyAddress(ctx context.Context, p *peering.Peering, method string, a *peering.Ask) (*peering.Reply,
	error) {
	c, err := m.client(p)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	var errs []error
	for _, n := range rand.Perm(len(p.Dial.Addresses)) {
		addr := p.Dial.Addresses[n]
		reply, err := ask(ctx, c.Call, addr, method, a)
		if err == nil {
			return reply, nil
		}
		errs = append(errs, errkind.E(errkind.Of(err), addr, err))
		if refused(err) || ctx.Err() != nil {
			return nil, err
		}
	}
	return nil, errkind.E(errkind.Unavailable, "no server of the peer answers", errors.Join(errs...))
}

// refused tells that the peer has answered: it does not know us by this secret.
func refused(err error) bool {
	return errkind.Is(err, errkind.Denied) && errkind.Text(err) == errkind.Text(errStranger)
}

// ask makes one call, within answerWithin.
func ask(ctx context.Context, call func(context.Context, string, string, []byte) ([]byte, error), addr, method string,
	a *peering.Ask) (*peering.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	b, err := call(ctx, addr, method, a.Encode())
	if err != nil {
		return nil, err
	}
	return peering.ReadReply(b)
}

// connect pulls and pushes over one connection, until either fails.
func (m *Manager) connect(ctx context.Context, p *peering.Peering, addr string) error {
	c, err := m.client(p)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	both := sync.WaitGroup{}
	for _, do := range []func(context.Context, *rpc.Client, *peering.Peering, string) error{m.pull, m.push} {
		both.Go(func() { cancel(do(ctx, c, p, addr)) })
	}
	both.Wait()
	return context.Cause(ctx)
}

// pull takes in what the peer exports, until that fails.
func (m *Manager) pull(ctx context.Context, c *rpc.Client, p *peering.Peering, addr string) error {
	im := m.importer()
	for session := uint64(0); ; {
		reply, err := ask(ctx, c.Wait, addr, peering.MethodPull, &peering.Ask{ID: p.PeerID, Secret: p.Dial.Secret,
			Session: session})
		if err != nil {
			return err
		}
		if reply.Terminated {
			m.insist(ctx, p, func() error { return m.terminated(ctx, p.ID) })
			return errGone
		}
		if session == 0 {
			if err := m.activate(ctx, p.ID); err != nil {
				return err
			}
		}
		session = reply.Session
		if !reply.Batch.Empty() {
			if err := m.take(ctx, p.ID, im, &reply.Batch); err != nil {
				return err
			}
		}
		if !reply.Batch.Snapshot || reply.Batch.Done { // a snapshot of which a part is refused begins over and over
			m.note(p.ID, heard)
		}
	}
}

// push sends the peer what this cluster exports to it, until that fails.
func (m *Manager) push(ctx context.Context, c *rpc.Client, p *peering.Peering, addr string) error {
	e := m.exporter(p)
	for session := uint64(0); ; {
		b := m.changes(ctx, e)
		if b == nil {
			b = &peering.Batch{} // a heartbeat
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		reply, err := ask(ctx, c.Call, addr, peering.MethodPush, &peering.Ask{ID: p.PeerID, Secret: p.Dial.Secret,
			Session: session, Batch: *b})
		if err != nil {
			if ctx.Err() == nil {
				m.note(p.ID, refusedAt)
			}
			return err
		}
		if reply.Terminated {
			m.insist(ctx, p, func() error { return m.terminated(ctx, p.ID) })
			return errGone
		}
		session = reply.Session
		if b.Done || b.Empty() {
			m.note(p.ID, taken)
		} else {
			m.note(p.ID, func(s *peering.Status, now time.Time) { s.LastSend = now })
		}
	}
}
