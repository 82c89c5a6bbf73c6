package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/agent/tally"
)

// Bounds of the sockets.
const (
	socketTime  = 5 * time.Second // in which a client says all that it has to say
	socketBytes = 1 << 20
	socketConns = 64
	datagram    = 64 << 10
	handTime    = time.Second
	flushPoints = 5000 // of statsd, in one event
)

// sockets takes check results of Sensu 1.x over TCP and UDP until ctx ends. A port that is taken is logged: the agent
// does without.
func (a *Agent) sockets(ctx context.Context) error {
	tcp, err := net.Listen("tcp", a.cfg.Sockets)
	if err != nil {
		a.cfg.Log.Error("cannot open the sockets", "address", a.cfg.Sockets, "error", err)
		<-ctx.Done()
		return nil
	}
	var work sync.WaitGroup
	work.Go(func() { a.datagrams(ctx, tcp.Addr().String(), func(b []byte) { a.socketDatagram(ctx, b) }) })
	work.Go(func() {
		<-ctx.Done()
		_ = tcp.Close()
	})
	turns := make(chan struct{}, socketConns)
	for {
		c, err := tcp.Accept()
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			a.cfg.Log.Error("a connection to the socket cannot be accepted", "error", err)
			wait(ctx, time.Second) // out of descriptors, for instance
			continue
		}
		select {
		case turns <- struct{}{}:
			work.Go(func() {
				defer func() { <-turns }()
				defer c.Close()
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				defer stop()
				a.socketConn(ctx, c)
			})
		default:
			_ = c.Close()
		}
	}
	work.Wait()
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// socketConn reads until what came is a ping or a whole result, and answers pong, ok or invalid.
func (a *Agent) socketConn(ctx context.Context, c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(socketTime))
	var in bytes.Buffer
	part := make([]byte, 4<<10)
	answer := "invalid"
	for in.Len() < socketBytes {
		n, err := c.Read(part)
		in.Write(part[:n])
		if isPing(in.Bytes()) {
			answer = "pong"
			break
		}
		if n > 0 && json.Valid(in.Bytes()) {
			if err := a.socketResult(ctx, in.Bytes()); err != nil {
				a.cfg.Log.Error("a result that came over the socket is refused", "from", c.RemoteAddr().String(), "error", err)
			} else {
				answer = "ok"
			}
			break
		}
		if err != nil {
			if errors.Is(err, io.EOF) && in.Len() == 0 {
				return // nothing was said
			}
			break
		}
	}
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(c, answer) // who asked may be gone
}

func (a *Agent) socketResult(ctx context.Context, text []byte) error {
	e, err := legacyEvent(text)
	if err != nil {
		return err
	}
	if err := a.prepare(e); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	return a.hand(ctx, a.results, e)
}

func (a *Agent) socketDatagram(ctx context.Context, text []byte) {
	if isPing(text) {
		return
	}
	if err := a.socketResult(ctx, text); err != nil {
		a.cfg.Log.Error("a result that came over UDP is dropped", "error", err)
	}
}

// datagrams gives what comes over UDP to take until ctx ends.
func (a *Agent) datagrams(ctx context.Context, address string, take func([]byte)) {
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		a.cfg.Log.Error("a UDP port cannot be opened", "address", address, "error", err)
		<-ctx.Done()
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer c.Close()
	b := make([]byte, datagram)
	for {
		n, _, err := c.ReadFrom(b)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			a.cfg.Log.Error("a datagram cannot be read", "address", address, "error", err)
			wait(ctx, time.Second)
			continue
		}
		take(b[:n])
	}
}

// statsd gathers metrics until ctx ends, and makes an event of them at each flush.
func (a *Agent) statsd(ctx context.Context) error {
	var mu sync.Mutex // guards sums
	var sums tally.Tally
	var work sync.WaitGroup
	work.Go(func() {
		a.datagrams(ctx, a.cfg.Statsd.Address, func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			if err := sums.Add(string(b), a.cfg.Now()); err != nil {
				a.cfg.Log.Debug("a metric is dropped", "error", err)
			}
		})
	})
	tick := time.NewTicker(a.cfg.Statsd.Flush)
	defer tick.Stop()
	told := uint64(0)
	for {
		select {
		case <-ctx.Done():
			work.Wait()
			return nil
		case <-tick.C:
		}
		mu.Lock()
		list, dropped := sums.Flush(a.cfg.Now()), sums.Dropped
		mu.Unlock()
		if dropped > told {
			a.cfg.Log.Warn("metrics were dropped: not understood, or too many", "lines", dropped-told)
			told = dropped
		}
		for len(list) > 0 {
			n := min(len(list), flushPoints)
			e := &monitor.Event{Metrics: &monitor.Metrics{Handlers: a.cfg.Statsd.Handlers, Points: list[:n]}}
			list = list[n:]
			err := a.prepare(e)
			if err == nil {
				err = a.hand(ctx, a.results, e)
			}
			if err != nil && ctx.Err() == nil {
				a.cfg.Log.Error("metrics are lost", "points", n, "error", err)
			}
		}
	}
}
