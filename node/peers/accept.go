package peers

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// Strangers answers the servers of other clusters, on a protocol of their own.
func (m *Manager) Strangers() *rpc.Server {
	srv := rpc.NewServer(rpc.ServerConfig{Log: m.cfg.Log, MaxMessageBytes: peering.MaxMessageBytes, MaxStreams: 8})
	m.handle(srv, wire.Anyone, false)
	return srv
}

// Register has srv answer what servers that do not lead pass on.
func (m *Manager) Register(srv *rpc.Server) { m.handle(srv, wire.Servers, true) }

func (m *Manager) handle(srv *rpc.Server, roles wire.Roles, relayed bool) {
	for method, h := range map[string]func(context.Context, *peering.Ask, *peering.Peering) (*peering.Reply, error){
		peering.MethodEstablish: m.answerEstablish,
		peering.MethodPull:      m.answerPull,
		peering.MethodPush:      m.answerPush,
	} {
		srv.Handle(roles, method, func(ctx context.Context, req []byte) ([]byte, error) {
			return m.answer(ctx, method, relayed, req, h)
		})
	}
}

// answer reads a request, passes it on where another server leads, and finds out who asks.
func (m *Manager) answer(ctx context.Context, method string, relayed bool, req []byte,
	h func(context.Context, *peering.Ask, *peering.Peering) (*peering.Reply, error)) ([]byte, error) {
	permit, err := m.gate.Acquire(ctx, hostOf(rpc.Peer(ctx)))
	if err != nil {
		return nil, err
	}
	a, err := peering.ReadAsk(req)
	permit.Release()
	if err != nil {
		return nil, err
	}
	if !m.cfg.Leader.IsLeader() {
		if relayed {
			return nil, errNotLeader
		}
		return m.cfg.CallLeader(ctx, method, req)
	}
	p, err := m.known(a, method == peering.MethodEstablish)
	if err != nil {
		return nil, err
	}
	reply, err := h(ctx, a, p)
	if err != nil {
		return nil, err
	}
	return reply.Encode(), nil
}

func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// errStranger says the same whether the peering is not known or the secret is another one.
var errStranger = errkind.New(errkind.Denied, "the peering is not known here, or its secret is wrong or was used: "+
	"generate a new token and establish the peering with it")

// known is the peering that a request is about, if its secret is that peering's.
func (m *Manager) known(a *peering.Ask, establishes bool) (*peering.Peering, error) {
	p, err := peering.ByID(m.cfg.Catalog.State(), a.ID)
	if err != nil {
		return nil, err
	}
	accept := &peering.Accept{}
	if p != nil && p.Accept != nil {
		accept = p.Accept
	}
	ok := peering.Is(accept.Stream, a.Secret)
	if establishes {
		// The second is the same request again, whose answer was lost.
		ok = peering.Is(accept.Pending, a.Secret)
		again := peering.Is(accept.Stream, a.Stream)
		ok = ok || again
	}
	if !ok {
		return nil, errStranger
	}
	return p, nil
}

func (m *Manager) answerEstablish(ctx context.Context, a *peering.Ask, p *peering.Peering) (*peering.Reply, error) {
	if a.From == "" || len(a.Stream) < 32 || p.State == peering.Deleting {
		return nil, errStranger
	}
	reply := &peering.Reply{Remote: self(m.cfg.Datacenter)}
	if peering.Is(p.Accept.Stream, a.Stream) {
		return reply, nil
	}
	p.Accept.Pending, p.Accept.Stream = nil, peering.Hash(a.Stream)
	p.State, p.PeerID, p.Remote = peering.Establishing, a.From, a.Remote
	m.cfg.Log.Info("a cluster has used the token of a peering", "peer", p.Name, "datacenter", a.Remote.Datacenter)
	return reply, m.put(ctx, p)
}

// errSession ends a connection that was taken over by another one, or by another leader.
var errSession = errkind.New(errkind.Conflict, "the connection of the peering was replaced: begin anew")

// pulling is what a peer has been sent. One request at a time is answered.
type pulling struct {
	mu       sync.Mutex
	session  uint64
	exporter *source
}

// source is an exporter that is not asked more often than pace allows.
type source struct {
	peering.Exporter
	looked time.Time // when it had something last
}

// pushing is what a peer sends.
type pushing struct {
	mu       sync.Mutex
	session  uint64
	importer *peering.Importer
}

func newSession() uint64 { return rand.Uint64() | 1 }

// answerPull waits for what the peer does not have yet, or for the next heartbeat.
func (m *Manager) answerPull(ctx context.Context, a *peering.Ask, p *peering.Peering) (*peering.Reply, error) {
	if p.State == peering.Deleting {
		m.tellGone(p.ID)
		return &peering.Reply{Terminated: true}, nil
	}
	if p.State == peering.Establishing {
		if err := m.activate(ctx, p.ID); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	l := m.of(p.ID)
	if l.kick != nil {
		l.kick() // a request whose asker is gone
	}
	waiting, kick := context.WithCancel(ctx)
	defer kick()
	l.kick = kick
	heard(&l.status, m.cfg.Clock.Now())
	m.mu.Unlock()

	l.pull.mu.Lock()
	defer l.pull.mu.Unlock()
	if a.Session == 0 {
		l.pull.session, l.pull.exporter = newSession(), m.exporter(p)
	} else if a.Session != l.pull.session {
		return nil, errSession
	}
	b := m.changes(waiting, l.pull.exporter)
	if b == nil {
		b = &peering.Batch{}
	}
	if now, err := m.known(a, false); err != nil {
		return nil, err // deleted meanwhile, or another token was used
	} else if now.State == peering.Deleting {
		m.tellGone(p.ID)
		return &peering.Reply{Terminated: true}, nil
	}
	m.note(p.ID, func(s *peering.Status, now time.Time) { s.LastSend = now })
	return &peering.Reply{Session: l.pull.session, Batch: *b}, nil
}

// changes waits for what an exporter's peer does not have yet; nil after a heartbeat's time, or when ctx ends.
func (m *Manager) changes(ctx context.Context, e *source) *peering.Batch {
	until := m.cfg.Clock.Now().Add(heartbeat)
	if since := m.cfg.Clock.Since(e.looked); since < pace {
		pause(ctx, m.cfg.Clock, pace-since)
	}
	for {
		st := m.cfg.Catalog.State()
		if b, more := e.Next(st); !b.Empty() {
			if !more {
				e.looked = m.cfg.Clock.Now()
			}
			if large := e.Large(); len(large) > 0 {
				m.cfg.Log.Warn("services are too large to be exported to a peer", "peer", e.Peer, "services", large,
					"bytes", peering.MaxServiceBytes)
			}
			return b
		}
		left := until.Sub(m.cfg.Clock.Now())
		if left <= 0 || ctx.Err() != nil {
			return nil
		}
		m.cfg.Catalog.Await(ctx, registry.Subject{Topic: registry.TopicCatalog}, st.Index(), left,
			(*statestore.State).Index)
		pause(ctx, m.cfg.Clock, pace)
	}
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, c clock.Clock, d time.Duration) {
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// tellGone notes that a peer knows of the end.
func (m *Manager) tellGone(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.of(id)
	select {
	case <-l.told:
	default:
		close(l.told)
	}
}

// answerPush takes in what the peer exports.
func (m *Manager) answerPush(ctx context.Context, a *peering.Ask, p *peering.Peering) (*peering.Reply, error) {
	if a.Terminated {
		return &peering.Reply{Terminated: true}, m.terminated(ctx, p.ID)
	}
	if p.State == peering.Deleting {
		return &peering.Reply{Terminated: true}, nil
	}
	m.mu.Lock()
	l := m.of(p.ID)
	heard(&l.status, m.cfg.Clock.Now())
	m.mu.Unlock()
	l.push.mu.Lock()
	defer l.push.mu.Unlock()
	if a.Session == 0 {
		l.push.session, l.push.importer = newSession(), m.importer()
	} else if a.Session != l.push.session {
		return nil, errSession
	}
	if !a.Batch.Empty() {
		if err := m.take(ctx, p.ID, l.push.importer, &a.Batch); err != nil {
			l.push.session = 0 // what it knows of the peer is wrong from here
			m.note(p.ID, refusedAt)
			m.trouble(p, err)
			return nil, err
		}
	}
	if a.Batch.Done || a.Batch.Empty() {
		m.note(p.ID, taken)
	}
	return &peering.Reply{Session: l.push.session}, nil
}

// trouble notes and logs why a peering fails.
func (m *Manager) trouble(p *peering.Peering, err error) {
	changed := false
	m.note(p.ID, func(s *peering.Status, _ time.Time) {
		changed, s.Trouble = s.Trouble != errkind.Text(err), errkind.Text(err)
	})
	if changed {
		m.cfg.Log.Warn("a peering does not work", "peer", p.Name, "error", err)
	}
}
