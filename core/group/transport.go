package group

import (
	"context"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/kit/errkind"
)

// errGateClosed is what every call gets while the watchdog holds the gate shut.
var errGateClosed = errkind.New(errkind.Unavailable,
	"this server's disk does not answer; its Raft transport is closed until it does")

// streams is one instance's raft.StreamLayer. The Group's accept loop hands it
// connections; it knows all open ones, so that the watchdog can drop those of one
// peer or, shutting the gate, all. All methods are safe for concurrent use.
type streams struct {
	addr     string
	dialFunc func(ctx context.Context, addr string) (net.Conn, error)
	// dialTimeout bounds dialFunc; now is the clock of peers.
	dialTimeout time.Duration
	now         func() int64
	// lostIncoming hears that a connection from outside ended.
	lostIncoming func()
	self         string
	// member returns the id of the member at an address, "" when none is known.
	member func(addr string) string
	// statement is what this server says of itself.
	statement func() Statement

	incoming chan net.Conn // unbuffered: a connection has an owner at every moment
	done     chan struct{}
	close1   sync.Once
	shut     atomic.Bool

	mu    sync.Mutex
	conns map[*trackedConn]struct{}
}

type trackedConn struct {
	net.Conn
	owner  *streams
	target string      // the address that was dialled, "" when it came in
	since  int64       // when it was made, by the streams' clock
	met    bool        // the greeting was read; used by the one goroutine that reads
	asked  atomic.Bool // it was made to ask who this server is: its end says nothing of a leader
}

// A connection begins with a greeting: its version, and whom it is for by id, with the length before it; no id
// means that the caller does not know. A server that lost its data and comes back as somebody new has the address
// of the member that it was: without the greeting it would acknowledge and vote in that one's name.
const greetingVersion = 1

func greeting(id string) []byte {
	if len(id) > math.MaxUint8 {
		id = ""
	}
	return append([]byte{greetingVersion, byte(len(id))}, id...)
}

// Read implements net.Conn. The first one on a connection from outside reads the greeting too.
func (c *trackedConn) Read(p []byte) (int, error) {
	if c.target == "" && !c.met {
		if err := c.meet(); err != nil {
			return 0, err
		}
		c.met = true
	}
	return c.Conn.Read(p)
}

func (c *trackedConn) meet() error {
	var head [2]byte
	if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
		return err
	}
	if head[0] == askingVersion {
		c.asked.Store(true)
		_ = c.SetWriteDeadline(time.Now().Add(askTimeout))
		if _, err := c.Write(c.owner.statement().encode()); err != nil {
			return err
		}
		return io.EOF // nothing else is said here
	}
	if head[0] != greetingVersion {
		return errkind.Errorf(errkind.Invalid, "a Raft connection with greeting version %d: its server runs another program",
			head[0])
	}
	id := make([]byte, head[1])
	if _, err := io.ReadFull(c.Conn, id); err != nil {
		return err
	}
	if len(id) > 0 && string(id) != c.owner.self {
		return errkind.Errorf(errkind.Invalid,
			"a Raft connection for the member %s, which had this address before; this is %s", id, c.owner.self)
	}
	return nil
}

// Close implements net.Conn. The end of a connection from outside, whichever side
// noticed it, is the first sign that a leader died.
func (c *trackedConn) Close() error {
	c.owner.mu.Lock()
	_, open := c.owner.conns[c]
	delete(c.owner.conns, c)
	c.owner.mu.Unlock()
	if open && c.target == "" && !c.asked.Load() {
		c.owner.lostIncoming()
	}
	return c.Conn.Close()
}

// track takes the connection into care, or closes it when the gate is shut.
func (s *streams) track(conn net.Conn, target string) (net.Conn, error) {
	c := &trackedConn{Conn: conn, owner: s, target: target, since: s.now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut.Load() || s.ended() {
		_ = conn.Close()
		return nil, errGateClosed
	}
	s.conns[c] = struct{}{}
	return c, nil
}

func (s *streams) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// offer gives an accepted connection to the instance, or closes it.
func (s *streams) offer(conn net.Conn) {
	c, err := s.track(conn, "")
	if err != nil {
		return
	}
	select {
	case s.incoming <- c:
	case <-s.done:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.incoming:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Dial implements raft.StreamLayer.
func (s *streams) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if s.shut.Load() {
		return nil, errGateClosed
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(timeout, s.dialTimeout))
	defer cancel()
	conn, err := s.dialFunc(ctx, string(addr))
	if err != nil {
		return nil, err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(timeout)) // a connection without deadlines is bounded by the watchdog
	if _, err := conn.Write(greeting(s.member(string(addr)))); err != nil {
		_ = conn.Close() // the first error is the one to report
		return nil, err
	}
	_ = conn.SetWriteDeadline(time.Time{})
	return s.track(conn, string(addr))
}

// Close implements net.Listener: it ends the instance's connections, not the Group's listener.
func (s *streams) Close() error {
	s.close1.Do(func() { close(s.done) })
	s.drop(func(*trackedConn) bool { return true })
	return nil
}

// drop closes the connections that which picks.
func (s *streams) drop(which func(*trackedConn) bool) int {
	s.mu.Lock()
	var picked []*trackedConn
	for c := range s.conns {
		if which(c) {
			picked = append(picked, c)
		}
	}
	s.mu.Unlock()
	for _, c := range picked {
		_ = c.Close() // to end it is the purpose
	}
	return len(picked)
}

// setGate shuts or opens the gate; shutting ends all connections.
func (s *streams) setGate(shut bool) {
	if s.shut.Swap(shut) != shut && shut {
		s.drop(func(*trackedConn) bool { return true })
	}
}

type streamAddr string

func (a streamAddr) Network() string { return "raft" }
func (a streamAddr) String() string  { return string(a) }

// Addr implements net.Listener.
func (s *streams) Addr() net.Addr { return streamAddr(s.addr) }

// transport is the library's network transport plus what it does not tell: when
// each peer last answered, how far its log is, and whether one knows a newer term.
type transport struct {
	*raft.NetworkTransport
	streams *streams
	peers   *peers
	inbox   *inbox
	// committed is instance.committed.
	committed func(term uint64) (index uint64, age time.Duration)
	// mute refuses to vote and to ask for votes: a member that lost part of its log, until it has it back.
	mute       *raftdisk.Mute
	succession *succession
	reach      *reach
}

var errYields = errkind.New(errkind.Unavailable, "this server lets another candidate go first")

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
)

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC {
	return t.inbox.out
}

// AppendEntries implements raft.Transport; heartbeats pass here too.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	if !replicates(args) {
		return t.appendEntries(id, target, args, resp)
	}
	return t.reach.persist(args.Term, id, target, func() error { return t.appendEntries(id, target, args, resp) })
}

func (t *transport) appendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	if t.streams.shut.Load() {
		return errGateClosed
	}
	// The order counts: what is read after the echo is true later than what the echo stands for.
	told := mark{number: t.peers.number.Add(1), echo: t.peers.echo(string(id), args.Term)}
	told.commit, told.age = t.committed(args.Term)
	marked := *args
	//lint:ignore SA1019 the field that the library no longer reads carries the mark
	marked.Leader = told.encode() // the library reads the address from the header
	sent := t.peers.now()
	if err := t.NetworkTransport.AppendEntries(id, target, &marked, resp); err != nil {
		return err
	}
	t.peers.answered(string(id), sent, told.number, args, resp)
	return nil
}

// SetHeartbeatHandler implements raft.Transport: heartbeats go past the consumer.
func (t *transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		if m, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
			t.inbox.fresh.heard(m, time.Now())
		}
		handle(rpc)
	})
}

// RequestVote implements raft.Transport.
func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	if err := t.mayElect(); err != nil {
		return err
	}
	return t.NetworkTransport.RequestVote(id, target, args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	if err := t.mayElect(); err != nil {
		return err
	}
	if t.succession.yields() {
		return errYields
	}
	return t.NetworkTransport.RequestPreVote(id, target, args, resp)
}

func (t *transport) mayElect() error {
	if t.streams.shut.Load() {
		return errGateClosed
	}
	if t.mute != nil && t.mute.Active.Load() {
		return raftdisk.ErrMuted
	}
	return nil
}

// InstallSnapshot implements raft.Transport.
func (t *transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if t.streams.shut.Load() {
		return errGateClosed
	}
	t.reach.await(args.Term, id, target)
	return t.NetworkTransport.InstallSnapshot(id, target, args, resp, data)
}
