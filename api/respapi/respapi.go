// Package respapi speaks the Redis protocol (RESP2 and RESP3) for the cache of the usage plane: errors, nil, types and
// edge cases as Redis 7 has them, for the commands of its table; any other is an unknown command.
//
// What always holds:
//   - Nothing that a client sends takes memory before its bytes have come: a length is a promise, not a fact. A
//     command, an argument, a line, a transaction and the answers that wait are bounded in bytes, all connections
//     together by Config.Memory, and each address by half of it.
//   - A client that does not read its answers is cut after WriteTimeout, one that does not end its command after
//     ReadTimeout, one that says nothing after IdleTimeout.
//   - A client that has not shown its password gets nothing but HELLO, AUTH and QUIT, and may send little.
//   - A client whose right is taken is cut within 5 s, whatever it sends meanwhile.
//   - EXEC and MSET are atomic: no other command sees a part.
//   - One cache is the owner of all slots, and never answers CROSSSLOT.
//   - Where other hosts have copies, what changed something is answered when they have the change.
//
// While it drains, EXISTS of the maintenance key answers 1, so that Envoy's health checker takes this host out, and
// clients of RESP3 get a push; every connection is served on. New starts nothing; Serve owns a goroutine for each
// connection, one that sweeps the cache and one that judges rights again, and waits for all.
package respapi

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/usage/cache"
	"corbel.dev/corbel/usage/slots"
)

// Config of a server.
type Config struct {
	Cache *cache.Cache
	// Authenticate says whether a user may come in; nil lets everybody in. The user of AUTH with a password alone is
	// "default". Of a client that comes it is asked without both, and where that is enough, no password is needed.
	Authenticate func(user, password string) bool
	// Still judges again those that Authenticate let in: an error of kind Denied refuses them, and any other says that
	// nothing is known now. nil means that Authenticate is asked again.
	Still func(user, password string) error
	// MaintenanceKey exists while the server drains; empty means MAINTENANCE_MODE.
	MaintenanceKey string
	// MaxBulkBytes bounds an argument, zero means 16 MiB; MaxCommandBytes all arguments of a command, or of a
	// transaction, and the answers of one, zero means 64 MiB.
	MaxBulkBytes, MaxCommandBytes int
	// Memory bounds what all connections hold beyond a little; nil has no end. Conns bounds the connections of an
	// address.
	Memory *limit.Bytes
	Conns  *limit.Conns
	// IdleTimeout ends a connection that says nothing, zero means an hour; ReadTimeout one that stops in the middle of a
	// command, zero means 30 s; WriteTimeout one that does not read, zero means 10 s.
	IdleTimeout, ReadTimeout, WriteTimeout time.Duration
	// IdleAfter is how long a client has to be quiet to count as idle while the server drains; zero means 2 s.
	IdleAfter time.Duration
	// Announce is the address that CLUSTER tells; zero means that which the client came to.
	Announce string
	// Node is the name of this host in a cluster, 40 hexadecimal digits; empty means any.
	Node string
	// Cluster says which host owns which slot: clients are sent there with MOVED. nil means that this host owns all keys
	// that come to it, as behind a proxy that divides them.
	Cluster func() *slots.Map
	// Copies are the copies that other hosts of the cluster have of this one's keys. nil: there are none.
	Copies  Copies
	Version string
	Clock   clock.Clock
	Log     *slog.Logger
}

// Server serves a cache.
type Server struct {
	cfg      Config
	table    map[string]*command
	started  time.Time
	node     string // its name in a cluster: 40 hexadecimal digits
	draining atomic.Bool
	ids      atomic.Int64
	commands atomic.Uint64

	mu    sync.Mutex // guards conns
	conns map[*conn]bool
}

// New makes a server.
func New(cfg Config) *Server {
	cfg.MaintenanceKey = cmp.Or(cfg.MaintenanceKey, "MAINTENANCE_MODE")
	cfg.MaxBulkBytes = cmp.Or(cfg.MaxBulkBytes, 16<<20)
	cfg.MaxCommandBytes = cmp.Or(cfg.MaxCommandBytes, 64<<20)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, time.Hour)
	cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, 30*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 10*time.Second)
	cfg.IdleAfter = cmp.Or(cfg.IdleAfter, 2*time.Second)
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, table: tableOf(), started: cfg.Clock.Now(), node: cmp.Or(cfg.Node, nodeID()),
		conns: map[*conn]bool{}}
}

// Serve takes connections until ctx ends or the listener fails; then it ends all of them and waits for them.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { s.sweep(ctx) })
	if s.cfg.Authenticate != nil {
		wg.Go(func() { s.keepRights(ctx) })
	}
	context.AfterFunc(ctx, func() { // by cancel at the latest
		_ = ln.Close() // ends Accept
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			_ = c.net.Close() // ends its read
		}
	})
	for {
		nc, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = nc.Close() // it came too late
			}
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // no file descriptors, most often: others need time to end
			s.cfg.Log.Warn("the cache could not take a connection", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		place, ok := s.cfg.Conns.Take(limit.AddrOf(nc.RemoteAddr()), false)
		if !ok {
			_ = nc.Close() // one too many
			continue
		}
		wg.Go(func() {
			defer place.Release()
			s.serve(ctx, nc)
		})
	}
}

const acceptPause = 50 * time.Millisecond

// sweep removes what has expired.
func (s *Server) sweep(ctx context.Context) {
	timer := s.cfg.Clock.NewTimer(cache.SweepEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		const most = 200 // of each shard: a lock is held that long
		for s.cfg.Cache.Sweep(most) >= most && ctx.Err() == nil {
			continue // there may be as many again
		}
		timer.Reset(cache.SweepEvery)
	}
}

// conn is a client's connection.
type conn struct {
	s       *Server
	net     net.Conn
	id      int64
	since   time.Time
	name    string
	shown   atomic.Pointer[credentials] // by which it came in; nil while it has not
	out     reply
	hold    limit.Hold
	queue   *transaction // between MULTI and EXEC
	do      func(key []byte, fn func(e *cache.Entry))
	leaving bool
	copying copying
	seen    seen
	told    atomic.Pointer[string] // its name, for others
	send    sender
}

// seen is what a client did that matters to a drain.
type seen struct {
	busy   atomic.Int64 // when it said something that counts, in Unix nanoseconds
	checks atomic.Bool  // it asks for the maintenance key
	knows  atomic.Bool  // it was told that the key exists
}

// sender is the way out of a connection: of its own goroutine, and of the one that tells of a drain.
type sender struct {
	push atomic.Bool // the client is to hear that the server drains

	mu      sync.Mutex // guards what follows, and writes
	partial bool       // a part of an answer is sent
	third   bool       // the client speaks RESP3
}

// flushBytes is how much waits to be sent at most while there are more commands.
const flushBytes = 64 << 10

func (s *Server) serve(ctx context.Context, nc net.Conn) {
	c := &conn{s: s, net: nc, id: s.ids.Add(1), since: s.cfg.Clock.Now(),
		hold: s.cfg.Memory.Hold(limit.AddrOf(nc.RemoteAddr())), do: s.cfg.Cache.Do}
	if s.open() {
		c.shown.Store(&credentials{})
	}
	s.mu.Lock()
	s.conns[c] = true
	s.mu.Unlock()
	defer func() {
		_ = nc.Close() // whatever ended it
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		c.hold.End()
	}()
	if ctx.Err() != nil {
		return
	}
	r := &reader{in: bufio.NewReaderSize(nc, maxLineBytes), mostBulk: s.cfg.MaxBulkBytes,
		mostBytes: s.cfg.MaxCommandBytes, gather: c.hold.Gather, hurry: func() error {
			return nc.SetReadDeadline(time.Now().Add(s.cfg.ReadTimeout))
		}}
	for !c.leaving {
		if r.in.Buffered() == 0 { // a new burst of commands
			if c.queue == nil {
				c.hold.End()
			}
			if err := nc.SetReadDeadline(time.Now().Add(s.cfg.IdleTimeout)); err != nil {
				return
			}
		}
		args, err := r.command(!c.known())
		if err != nil {
			c.end(err)
			return
		}
		if len(args) > 0 {
			s.commands.Add(1)
			c.run(args)
		}
		if len(c.out.buf) > flushBytes || r.in.Buffered() == 0 || c.leaving {
			if c.flush(false) != nil {
				return
			}
		}
	}
}

// end tells a client why it is cut, where it is to blame.
func (c *conn) end(err error) {
	var wrong protocolError
	switch {
	case errors.As(err, &wrong):
		c.out.fail("ERR " + wrong.Error())
	case errors.Is(err, limit.ErrBytes):
		c.out.fail("OOM " + errkind.Text(limit.ErrBytes))
	case !errors.Is(err, io.EOF):
		c.s.cfg.Log.Debug("a client of the cache is gone", "client", c.net.RemoteAddr(), "error", err)
	}
	_ = c.flush(false) // it is being closed
}

// flush sends what waits. partial says that the answer goes on. Who wanted to push something meanwhile could not, and
// relies on it.
func (c *conn) flush(partial bool) error {
	if err := c.copying.settle(c.s.cfg.Copies); err != nil {
		c.s.cfg.Log.Info("a client of the cache is cut: it is not known whether what it changed has its copies",
			"client", c.net.RemoteAddr(), "error", err)
		c.leaving, c.out.buf = true, c.out.buf[:0]
		return err
	}
	err := c.sendAll(partial)
	if err == nil && c.out.third && c.send.push.Load() {
		c.tell()
	}
	return err
}

func (c *conn) sendAll(partial bool) error {
	c.send.mu.Lock()
	defer c.send.mu.Unlock()
	c.send.partial, c.send.third = partial, c.out.third
	if !partial && c.send.third && c.send.push.Swap(false) {
		c.out.raw(pushDraining)
	}
	err := c.write(c.out.buf, c.s.cfg.WriteTimeout)
	if cap(c.out.buf) > 4*flushBytes {
		c.out.buf = nil
	}
	c.out.buf = c.out.buf[:0]
	return err
}

// write needs send.mu.
func (c *conn) write(b []byte, patience time.Duration) error {
	if len(b) == 0 {
		return nil
	}
	if err := c.net.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := c.net.Write(b)
	return err
}

// room says whether the answers that wait may have so many bytes more, and tells the client when not.
func (c *conn) room(bytes int) bool {
	if err := c.hold.Gather(len(c.out.buf) + bytes); err != nil {
		c.out.fail("OOM " + errkind.Text(err))
		return false
	}
	return true
}

// more sends a part of a long answer; an error has ended the connection.
func (c *conn) more() {
	if len(c.out.buf) > flushBytes && c.queue == nil && !c.leaving && c.flush(true) != nil {
		c.leaving = true
	}
}
