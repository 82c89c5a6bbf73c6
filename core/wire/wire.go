// Package wire is the one network listener of a process: connections from peers
// arrive on one address, are secured once, and are sorted by the two bytes that
// each begins with (protocol, group) to the part of the program that owns them.
//
// What always holds:
//   - Who is at the other end is worked out once for each connection (Peer), and a listener is handed those alone whose
//     role it named: Listen without roles does not compile, and without a listener nothing is let in.
//   - A connection is handed over only after its TLS handshake (when TLS is
//     configured) and its header; both share one deadline, so that a peer that
//     sends nothing or drips bytes costs one bounded slot for HeaderTimeout.
//   - Connections that wait for their header are bounded (MaxPending, and a
//     quarter of that per source address); each virtual listener holds at most
//     Backlog accepted connections. Whatever is over a bound is closed and
//     counted, never queued: the dialler sees a closed connection and backs off.
//   - Without a Faults hook a connection of the feed or the secrets plane is the bare *net.TCPConn or *tls.Conn; the
//     others are wrapped once, so that PeerOf knows them and resets are counted.
//
// New binds the address (so that Addr is known and a taken port is an early
// error) but accepts nothing; Run accepts and owns every goroutine. Listen, Dial,
// Reload, Addr and Stats are safe for concurrent use. Wire does not multiplex: a
// stream is a connection. It owns no connection after handing it over.
package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

// Protocol is the first byte of a connection.
type Protocol uint8

// The protocols. 22 stays free: it is the first byte of a TLS handshake, and
// lets a plain listener tell a TLS client apart from noise.
const (
	ProtoRaft Protocol = 1
	ProtoRPC  Protocol = 2
	ProtoFeed Protocol = 3
	// ProtoEnroll is what a peer without a certificate may speak, where TLS.Guests lets it in, to get one.
	ProtoEnroll Protocol = 4
	// ProtoSecrets is HTTP between the servers of the secrets plane.
	ProtoSecrets Protocol = 5
	// ProtoPeering is what servers of peered clusters ask, who show no certificate: see TLS.Peers.
	ProtoPeering Protocol = 6
)

const firstByteOfTLS = 22

func (p Protocol) String() string {
	switch p {
	case ProtoRaft:
		return "Raft"
	case ProtoRPC:
		return "RPC"
	case ProtoFeed:
		return "the feed"
	case ProtoEnroll:
		return "enrolment"
	case ProtoSecrets:
		return "the secrets plane's protocol"
	case ProtoPeering:
		return "cluster peering"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// Dialer makes connections; *net.Dialer and a Memory's Host are Dialers.
type Dialer interface {
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
}

// Config says where and how to listen. The zero value of each field means its default.
type Config struct {
	// Bind is the host:port to listen on. Required unless Listener is given.
	Bind string
	// Source is the local IP that dialled connections come from; "" lets the kernel choose.
	Source string
	// TLS secures both directions; nil means plain TCP.
	TLS *TLS

	// HeaderTimeout bounds handshake and header of an accepted connection; 5 s.
	HeaderTimeout time.Duration
	// DialTimeout bounds Dial where its context has no earlier deadline; 5 s.
	DialTimeout time.Duration
	// Conns bounds the connections of RPC, Raft and enrolment by address, guests as strangers; nil does not.
	Conns *limit.Conns
	// MaxPending bounds the connections that wait for their header; 1024.
	MaxPending int
	// Backlog bounds the accepted connections of one virtual listener; 256.
	Backlog int
	// KeepAlive is the idle time before TCP keepalive probes begin; 15 s.
	KeepAlive time.Duration
	// UserTimeout closes a connection whose sent bytes stay unacknowledged; 20 s.
	UserTimeout time.Duration

	// Listener and Dialer replace TCP: the memory twin in tests.
	Listener net.Listener
	Dialer   Dialer
	// Faults is asked before each dial, read and write; nil (always, outside of fault runs) costs nothing.
	Faults  Faults
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

func (c *Config) complete() error {
	var wrong []error
	if c.Bind == "" && c.Listener == nil {
		wrong = append(wrong, errors.New("bind address is empty"))
	}
	if c.Source != "" {
		if _, err := netip.ParseAddr(c.Source); err != nil {
			wrong = append(wrong, fmt.Errorf("source address: %w", err))
		}
	}
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{{&c.HeaderTimeout, 5 * time.Second}, {&c.DialTimeout, 5 * time.Second}, {&c.KeepAlive, 15 * time.Second},
		{&c.UserTimeout, 20 * time.Second}} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	if c.MaxPending == 0 {
		c.MaxPending = 1024
	}
	if c.Backlog == 0 {
		c.Backlog = 256
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.TLS != nil {
		if err := c.TLS.check(); err != nil {
			wrong = append(wrong, err)
		}
	}
	return errkind.E(errkind.Invalid, "wire", errors.Join(wrong...))
}

// Wire is one listener and one identity.
type Wire struct {
	cfg    Config
	accept net.Listener
	dialer Dialer
	tls    *identity // nil: plain
	stats  counters
	notes  notes // rate-limited log lines
	resets resets
	held   held
	// servers is KnowServers' function.
	servers atomic.Pointer[func(netip.Addr, Protocol) Role]

	// mu guards routes and closed. It is held for map operations only.
	mu     sync.Mutex
	routes map[route]*listener
	closed bool

	pending pending
}

type route struct {
	proto Protocol
	group uint8
}

// Stats are totals since New.
type Stats struct {
	Accepted, Dialed    uint64 // connections that passed their handshake and header
	Rejected            uint64 // failed handshake, header or unknown route
	ShedPending         uint64 // closed because too many waited for their header
	ShedBacklog         uint64 // closed because the owner did not accept in time
	DialErrors, Pending uint64
}

// count is a total that Stats reads and the registry exports.
type count struct {
	n   atomic.Uint64
	out *telemetry.Counter
}

func (c *count) Add(n uint64) {
	c.n.Add(n)
	c.out.Add(n)
}

func (c *count) Load() uint64 { return c.n.Load() }

type counters struct {
	accepted, dialed, rejected, shedPending, shedBacklog, dialErrors, cut count
	rpc                                                                   *telemetry.Counter
}

func (w *Wire) export(m *telemetry.Registry) {
	c := &w.stats
	c.accepted.out, c.dialed.out = m.Counter("wire.accepted"), m.Counter("wire.dialed")
	c.rejected.out, c.dialErrors.out = m.Counter("wire.rejected"), m.Counter("wire.dial_errors")
	c.shedPending.out, c.shedBacklog.out = m.Counter("wire.shed", "queue", "header"),
		m.Counter("wire.shed", "queue", "accept")
	c.cut.out = m.Counter("wire.cut")
	c.rpc = m.Counter("rpc.accept_conn")
	m.GaugeFunc("wire.pending", func() float64 { return float64(w.pending.count()) })
}

// New checks cfg and binds the address. Nothing is accepted before Run.
func New(cfg Config) (*Wire, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	w := &Wire{cfg: cfg, accept: cfg.Listener, dialer: cfg.Dialer, routes: map[route]*listener{}}
	w.pending = pending{limit: cfg.MaxPending, perSource: max(1, cfg.MaxPending/4), conns: map[net.Conn]string{},
		sources: map[string]int{}}
	w.notes.log = cfg.Log
	w.resets = resets{metrics: cfg.Metrics, peers: map[string]*telemetry.Counter{}}
	w.export(cfg.Metrics)
	if cfg.TLS != nil {
		w.tls = newIdentity(cfg.TLS)
	}
	if w.dialer == nil {
		d := &net.Dialer{KeepAliveConfig: keepAlive(cfg.KeepAlive), Control: controlUserTimeout(cfg.UserTimeout)}
		if cfg.Source != "" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(cfg.Source)}
		}
		w.dialer = d
	}
	if w.accept == nil {
		// Accepted sockets inherit TCP_USER_TIMEOUT and keepalive from the listening one.
		lc := net.ListenConfig{KeepAliveConfig: keepAlive(cfg.KeepAlive), Control: controlUserTimeout(cfg.UserTimeout)}
		l, err := lc.Listen(context.Background(), "tcp", cfg.Bind)
		if err != nil {
			return nil, errkind.E(errkind.Unavailable, "wire: listen", err)
		}
		w.accept = l
	}
	return w, nil
}

func keepAlive(idle time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: idle, Interval: max(time.Second, idle/3), Count: 3}
}

// Addr is the address that was bound.
func (w *Wire) Addr() net.Addr { return w.accept.Addr() }

// Stats returns the totals.
func (w *Wire) Stats() Stats {
	c := &w.stats
	return Stats{
		Accepted: c.accepted.Load(), Dialed: c.dialed.Load(), Rejected: c.rejected.Load(),
		ShedPending: c.shedPending.Load(), ShedBacklog: c.shedBacklog.Load(), DialErrors: c.dialErrors.Load(),
		Pending: uint64(w.pending.count()),
	}
}

// Close releases the address of a Wire that will never Run.
func (w *Wire) Close() error { return w.accept.Close() }

// Run accepts until ctx ends, then closes the address, the virtual listeners and
// what still waits for its header. Connections already handed over live on.
func (w *Wire) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	stop := context.AfterFunc(ctx, func() {
		w.accept.Close()
		w.pending.closeAll()
	})
	defer stop()
	judging, end := context.WithCancel(ctx)
	defer end()
	if w.tls != nil {
		wg.Go(func() { w.judge(judging) })
	}
	var err error
	for pause := time.Duration(0); ; {
		conn, acceptErr := w.accept.Accept()
		if acceptErr != nil {
			if ctx.Err() != nil {
				break
			}
			if errors.Is(acceptErr, net.ErrClosed) {
				err = errkind.E(errkind.Unavailable, "wire: accept", acceptErr)
				break
			}
			// Out of descriptors, most likely: wait instead of spinning, and say so.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			w.cfg.Metrics.Counter("net.accept_errors").Add(1)
			w.notes.warn("accept", "cannot accept connections", "error", acceptErr)
			wait(ctx, pause)
			continue
		}
		pause = 0
		if !w.pending.add(conn) {
			w.stats.shedPending.Add(1)
			w.notes.warn("pending", "too many connections wait for their header, closing new ones", "remote", conn.RemoteAddr())
			conn.Close()
			continue
		}
		wg.Go(func() { w.sort(ctx, conn) })
	}
	end()
	w.accept.Close()
	w.pending.closeAll()
	w.mu.Lock()
	w.closed = true
	routes := w.routes
	w.routes = map[route]*listener{}
	w.mu.Unlock()
	for _, l := range routes {
		l.shut()
	}
	wg.Wait()
	return err
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// sort takes one accepted connection through handshake and header to its owner.
func (w *Wire) sort(ctx context.Context, raw net.Conn) {
	conn, l, err := w.greet(ctx, raw)
	w.pending.remove(raw)
	if err != nil {
		w.stats.rejected.Add(1)
		w.notes.warn(reason(err), "rejected a connection", "remote", raw.RemoteAddr(), "error", err)
		raw.Close()
		return
	}
	if !l.offer(conn) {
		w.stats.shedBacklog.Add(1)
		w.notes.warn("backlog", "a listener does not accept in time, closing new connections", "proto", l.proto,
			"group", l.group)
		raw.Close() // first, or the connection would wait to say goodbye
		conn.Close()
		return
	}
	w.stats.accepted.Add(1)
	if l.proto == ProtoRPC {
		w.stats.rpc.Add(1)
	}
}

func (w *Wire) greet(ctx context.Context, raw net.Conn) (net.Conn, *listener, error) {
	conn := raw
	if w.cfg.Faults != nil {
		conn = newFaulty(conn, w.cfg.Faults, raw.RemoteAddr().String())
	}
	deadline := time.Now().Add(w.cfg.HeaderTimeout)
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, nil, err
	}
	var state *tls.ConnectionState
	var by basis
	if w.tls != nil {
		now := w.tls.now.Load()
		by = now.basis() // before the handshake: what changes meanwhile is looked at again
		secured := tls.Server(conn, now.serverTLS)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, nil, explainHandshake(err)
		}
		s := secured.ConnectionState()
		conn, state = secured, &s
	}
	proto, group, err := readHeader(conn)
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	l := w.routes[route{proto, group}]
	w.mu.Unlock()
	if l == nil {
		if w.tls == nil && proto == firstByteOfTLS {
			return nil, nil, errSpeaksTLS
		}
		return nil, nil, fmt.Errorf("no listener for protocol %d group %d", proto, group)
	}
	var peer *Peer
	if state != nil {
		peer = w.tls.peer(raw, state)
	} else {
		peer = w.plainPeer(raw, false)
	}
	if !peer.may(l.roles, proto) {
		return nil, nil, fmt.Errorf("%s is for %s, and the peer is %s: %s", proto, l.roles, peer.Role(), peer.Why)
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	under := conn
	conn = w.admit(conn, proto, peer, nil)
	if c, ok := conn.(*admitted); ok {
		if c.place, ok = w.cfg.Conns.Take(limit.AddrOf(raw.RemoteAddr()), peer.Role() == Stranger); !ok {
			return nil, nil, errTooMany
		}
	}
	if secure, ok := under.(*tls.Conn); ok {
		conn = w.held.add(conn, secure, peer, by)
	}
	return conn, l, nil
}

// Dial connects to addr, secures the connection and sends the header. ctx bounds
// all of it, and so does DialTimeout. Errors are of kind Unavailable (nobody
// answers) or Denied (the peer's certificate is not acceptable).
func (w *Wire) Dial(ctx context.Context, addr string, proto Protocol, group uint8) (net.Conn, error) {
	return w.DialNamed(ctx, addr, "", proto, group)
}

// DialNamed is Dial to a peer whose certificate must show another name than TLS.ServerName: a
// server of another datacenter. The name is ignored where TLS checks none, and "" is TLS.ServerName.
func (w *Wire) DialNamed(ctx context.Context, addr, serverName string, proto Protocol, group uint8) (net.Conn, error) {
	return w.dialAs(ctx, addr, proto, group, func(id *identity) *tls.Config { return id.clientFor(proto, serverName) })
}

// DialServer is Dial to a peer whose certificate must show serverName, whatever TLS checks else: what it
// answers decides who is a server.
func (w *Wire) DialServer(ctx context.Context, addr, serverName string, proto Protocol, group uint8) (net.Conn, error) {
	return w.dialAs(ctx, addr, proto, group, func(id *identity) *tls.Config { return id.strict(serverName) })
}

// DialMember is Dial to a peer that may be an agent: its certificate must be of the authority, or one that servers
// gave out, whatever name it shows. Nothing that a server alone may know goes there.
func (w *Wire) DialMember(ctx context.Context, addr string, proto Protocol, group uint8) (net.Conn, error) {
	return w.dialAs(ctx, addr, proto, group, (*identity).anyMember)
}

// DialPeer is Dial to a server of another cluster, which is known by the authorities that the other cluster named: its
// certificate must be of one of roots and show serverName. This process shows none. Without roots nothing is secured,
// as in the whole of a cluster without TLS.
func (w *Wire) DialPeer(ctx context.Context, addr, serverName string, roots *x509.CertPool) (net.Conn, error) {
	var c *tls.Config
	if roots != nil {
		c = &tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS12,
			NextProtos: []string{peeringALPN}}
	}
	return w.dialWith(ctx, addr, ProtoPeering, 0, c)
}

// dialAs dials with the TLS that pick takes of the identity in force.
func (w *Wire) dialAs(ctx context.Context, addr string, proto Protocol, group uint8,
	pick func(*identity) *tls.Config) (net.Conn, error) {
	var c *tls.Config
	if w.tls != nil {
		c = pick(w.tls)
	}
	return w.dialWith(ctx, addr, proto, group, c)
}

// dialWith dials with a TLS, in plain text without one.
func (w *Wire) dialWith(ctx context.Context, addr string, proto Protocol, group uint8, c *tls.Config) (net.Conn,
	error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.DialTimeout)
	defer cancel()
	conn, err := w.dial(ctx, addr, proto, group, c)
	if err != nil {
		w.stats.dialErrors.Add(1)
		return nil, err
	}
	w.stats.dialed.Add(1)
	return conn, nil
}

func (w *Wire) dial(ctx context.Context, addr string, proto Protocol, group uint8,
	c *tls.Config) (_ net.Conn, err error) {
	if w.cfg.Faults != nil {
		if err := w.cfg.Faults.await(ctx, OpDial, addr); err != nil {
			return nil, errkind.E(errkind.Unavailable, "dial "+addr, err)
		}
	}
	raw, err := w.dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "dial "+addr, err)
	}
	defer func() {
		if err != nil {
			raw.Close()
		}
	}()
	conn := raw
	if w.cfg.Faults != nil {
		conn = newFaulty(conn, w.cfg.Faults, addr)
	}
	ask := func() *Peer { return w.plainPeer(raw, true) }
	deadline, _ := ctx.Deadline()
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, errkind.E(errkind.Unavailable, "dial "+addr, err)
	}
	if c != nil {
		secured := tls.Client(conn, c)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, errkind.E(handshakeKind(err), "dial "+addr, explainHandshake(err))
		}
		conn = secured
		state := secured.ConnectionState()
		if w.tls != nil {
			ask = func() *Peer { return w.tls.peer(raw, &state) }
		}
	}
	header := [headerBytes]byte{byte(proto), group}
	if _, err := conn.Write(header[:]); err != nil {
		return nil, errkind.E(errkind.Unavailable, "dial "+addr, err)
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, errkind.E(errkind.Unavailable, "dial "+addr, err)
	}
	return w.admit(conn, proto, nil, ask), nil
}
