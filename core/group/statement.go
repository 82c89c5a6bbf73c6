package group

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

// Statement is what a server says of itself when it is asked at its address, over the group's own protocol. Gossip
// suggests changes of membership; the statement of the server itself decides: see Membership.
type Statement struct {
	ID string
	// Datacenter is where the server belongs.
	Datacenter string
	// Leaving says that the server is on its way out, because its operator told it to.
	Leaving bool
	// Replica says that the server never gets a vote.
	Replica bool
}

// askingVersion is the first byte of a connection on which nothing is said but a statement. The second byte is 0.
//
//	answer: version, id, flags (1 byte), datacenter; the two texts with their length (1 byte) before them
const askingVersion = 2

const (
	flagLeaving = 1 << iota
	flagReplica
)

// askTimeout bounds one question, from dialling to the answer.
const askTimeout = 2 * time.Second

func (s Statement) encode() []byte {
	b := []byte{askingVersion}
	if len(s.ID) > math.MaxUint8 || len(s.Datacenter) > math.MaxUint8 {
		s = Statement{} // nobody believes an empty id
	}
	b = append(append(b, byte(len(s.ID))), s.ID...)
	flags := byte(0)
	if s.Leaving {
		flags |= flagLeaving
	}
	if s.Replica {
		flags |= flagReplica
	}
	return append(append(b, flags, byte(len(s.Datacenter))), s.Datacenter...)
}

func readStatement(r io.Reader) (s Statement, err error) {
	var one [1]byte
	next := func() byte {
		if err == nil {
			_, err = io.ReadFull(r, one[:])
		}
		return one[0]
	}
	text := func() string {
		b := make([]byte, next())
		if err == nil {
			_, err = io.ReadFull(r, b)
		}
		return string(b)
	}
	if v := next(); err == nil && v != askingVersion {
		return s, errkind.Errorf(errkind.Invalid, "the answer has version %d: its server runs another program", v)
	}
	s.ID = text()
	flags := next()
	s.Leaving, s.Replica = flags&flagLeaving != 0, flags&flagReplica != 0
	s.Datacenter = text()
	return s, err
}

// Ask has the server at addr say who it is. The connection is made with Config.DialServer, so an answer is that of a
// server. It is of this datacenter, or Ask fails with kind Denied.
func Ask(ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error), datacenter,
	addr string) (Statement, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := dial(ctx, addr)
	if err != nil {
		return Statement{}, errkind.E(errkind.Of(err), "ask the server at "+addr+" who it is", err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return Statement{}, errkind.E(errkind.Unavailable, "ask the server at "+addr+" who it is", err)
	}
	_, err = conn.Write([]byte{askingVersion, 0})
	var s Statement
	if err == nil {
		s, err = readStatement(conn)
	}
	switch {
	case err != nil:
		return Statement{}, errkind.E(errkind.Unavailable, "ask the server at "+addr+" who it is", err)
	case s.Datacenter != datacenter:
		return Statement{}, errkind.Errorf(errkind.Denied, "the server at %s belongs to datacenter %q", addr, s.Datacenter)
	}
	return s, nil
}

// Ask has the server at addr say who it is.
func (g *Group) Ask(ctx context.Context, addr string) (Statement, error) {
	return Ask(ctx, g.cfg.DialServer, g.cfg.statement().Datacenter, addr)
}

// answer reads the greeting of a connection that came in while there is no group to serve it, tells
// whoever asks who this server is, and closes it.
func answer(conn net.Conn, s Statement) {
	defer conn.Close()
	var head [2]byte
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return
	}
	if _, err := io.ReadFull(conn, head[:]); err == nil && head[0] == askingVersion {
		_, _ = conn.Write(s.encode()) // whoever asked asks again
	}
}

// answerSlots bounds the connections that are answered at once while there is no group.
const answerSlots = 32

// Answer tells whoever asks who this server is, until the listener is closed: the servers of a new cluster ask each
// other before one of them has a group.
func Answer(l net.Listener, statement func() Statement) {
	slots := make(chan struct{}, answerSlots)
	defer func() {
		for range answerSlots { // those that are being answered end within askTimeout
			slots <- struct{}{}
		}
	}()
	retry := backoff.Backoff{Min: 5 * time.Millisecond, Max: time.Second}
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors
			time.Sleep(retry.Next())
			continue
		}
		retry.Reset()
		select {
		case slots <- struct{}{}:
			go func() { defer func() { <-slots }(); answer(conn, statement()) }()
		default:
			_ = conn.Close() // whoever asked asks again
		}
	}
}
