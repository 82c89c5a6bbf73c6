package httpx

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"corbel.dev/corbel/api/hothttp"
)

// hangUpEvery is how often the connections whose requests last are looked at.
const hangUpEvery = 2 * time.Second

// hangUps ends the requests of clients that left. net/http notices that by reading on, but not behind a request that
// was sent early: there it stops after one byte. Safe for concurrent use.
type hangUps struct {
	open sync.Map // net.Conn to *httpConn
}

// httpConn is a connection of net/http.
type httpConn struct {
	raw    syscall.RawConn
	leave  context.CancelFunc // ends the context of its requests
	busy   atomic.Bool        // it has a request
	missed bool               // the last sweep found that its client had left; the sweeper's own
}

// opened is http.Server's ConnContext.
func (h *hangUps) opened(ctx context.Context, nc net.Conn) context.Context {
	raw := rawOf(nc)
	if raw == nil {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	h.open.Store(nc, &httpConn{raw: raw, leave: cancel})
	return ctx
}

// changed is http.Server's ConnState.
func (h *hangUps) changed(nc net.Conn, state http.ConnState) {
	v, ok := h.open.Load(nc)
	if !ok {
		return
	}
	c := v.(*httpConn)
	switch state {
	case http.StateActive, http.StateIdle:
		c.busy.Store(state == http.StateActive)
	case http.StateHijacked:
		h.open.Delete(nc)
	case http.StateClosed:
		h.open.Delete(nc)
		c.leave()
	}
}

// rawOf finds the socket below what wraps it; nil: there is none.
func rawOf(nc net.Conn) syscall.RawConn {
	for {
		switch c := nc.(type) {
		case syscall.Conn:
			if raw, err := c.SyscallConn(); err == nil {
				return raw
			}
			return nil
		case interface{ NetConn() net.Conn }: // TLS, and what wraps in this repository
			nc = c.NetConn()
		case interface{ Raw() net.Conn }: // the PROXY protocol
			nc = c.Raw()
		default:
			return nil
		}
	}
}

// run looks until ctx ends.
func (h *hangUps) run(ctx context.Context) {
	t := time.NewTicker(hangUpEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			h.sweep()
		}
	}
}

// sweep ends the requests of clients that had left at the last sweep too: one that has just sent all it has to say
// gets its answer.
func (h *hangUps) sweep() {
	for _, v := range h.open.Range {
		c := v.(*httpConn)
		if !c.busy.Load() {
			c.missed = false
			continue
		}
		left := false
		_ = c.raw.Control(func(fd uintptr) { left = hothttp.HungUp(int(fd)) }) // a closed one has no requests for long
		if left && c.missed {
			c.leave()
		}
		c.missed = left
	}
}
