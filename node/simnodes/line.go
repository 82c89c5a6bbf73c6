package simnodes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/jobs/client/nodeclient"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
)

// line is a node's way to the servers. It stays with one of them while that answers.
type line struct {
	*counts
	rpc     *rpc.Client
	servers []string
	at      atomic.Uint32 // which of them
	coming  <-chan struct{}
	once    sync.Once // a node counts as registered, and frees its place, once
	free    sync.Once
	cable   cable
}

// cable is what a partition cuts.
type cable struct {
	mu  sync.Mutex
	cut chan struct{} // nil while it is whole; closed when it is mended
}

// set cuts the cable, or mends it.
func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case cut && c.cut == nil:
		c.cut = make(chan struct{})
	case !cut && c.cut != nil:
		close(c.cut)
		c.cut = nil
	}
}

// whole returns at once where nothing is cut; else it says nothing, as a network does, until ctx ends or it is mended,
// and what was on its way is lost.
func (c *cable) whole(ctx context.Context) error {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if cut == nil {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-cut:
	}
	return errkind.New(errkind.Unavailable, "the node is cut off")
}

// came says that a server took the node, or that it is gone.
func (l *line) came() { l.free.Do(func() { <-l.coming }) }

// Call implements nodeclient.Servers.
func (l *line) Call(ctx context.Context, method string, req []byte) ([]byte, error) {
	if err := l.cable.whole(ctx); err != nil {
		return nil, err
	}
	answer, err := l.rpc.Call(ctx, l.addr(), method, req)
	if err != nil {
		l.failure(ctx, method, err)
		return nil, err
	}
	if err := l.cable.whole(ctx); err != nil {
		return nil, err
	}
	switch method {
	case noderpc.MethodRegister:
		l.once.Do(func() { l.registered.Add(1) })
		l.came()
	case noderpc.MethodHeartbeat:
		l.beats.Add(1)
	case noderpc.MethodUpdate:
		l.batches.Add(1)
	}
	return answer, nil
}

// Stream implements nodeclient.Servers.
func (l *line) Stream(ctx context.Context, method string, req []byte) (nodeclient.Stream, error) {
	if err := l.cable.whole(ctx); err != nil {
		return nil, err
	}
	s, err := l.rpc.Stream(ctx, l.addr(), method, req)
	if err != nil {
		l.failure(ctx, method, err)
		return nil, errkind.E(errkind.Of(err), "", err)
	}
	return stream{Stream: s, ctx: ctx, line: l, method: method}, nil
}

// stream is one that a partition breaks.
type stream struct {
	nodeclient.Stream
	ctx    context.Context //nolint:containedctx // the stream's own
	line   *line
	method string
}

// Recv implements nodeclient.Stream.
func (s stream) Recv() ([]byte, error) {
	text, err := s.Stream.Recv()
	if err != nil {
		s.line.failure(s.ctx, s.method, err)
		return nil, err
	}
	return text, s.line.cable.whole(s.ctx)
}

func (l *line) addr() string { return l.servers[int(l.at.Load())%len(l.servers)] }

// failure counts a call that got no answer, and turns to the next server where this one is away.
func (l *line) failure(ctx context.Context, method string, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the fleet ends
	}
	switch errkind.Of(err) {
	case errkind.Denied, errkind.Invalid, errkind.NotFound: // said by a server that lives
	default:
		l.at.Add(1)
	}
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = fmt.Errorf("%s: %w", method, err)
	}
}
