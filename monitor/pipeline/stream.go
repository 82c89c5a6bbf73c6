package pipeline

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

// stream is a TCPStreamHandler's connections: each carries one event at a time, a line of JSON, and waits for the
// next one then. There are no more than max. While its address cannot be reached whoever has an event waits for the
// next try: the pauses between tries grow from least to most.
type stream struct {
	item        *objects.Item
	def         *monitor.TCPStreamHandler
	least, most time.Duration
	turns       chan struct{}

	mu     sync.Mutex
	idle   []*streamConn
	closed bool
	pause  time.Duration
	next   time.Time // when a connection may be tried again
}

// streamConn is one connection. A goroutine reads it, to learn of its end.
type streamConn struct {
	net.Conn
	dead chan struct{} // closed when the other side ended it
}

func (p *Pipelines) newStream(item *objects.Item) (*stream, error) {
	def := item.Object().(*monitor.TCPStreamHandler)
	s := &stream{item: item, def: def}
	var err error
	if s.least, s.most, err = def.Delays(); err != nil {
		return nil, err
	}
	n := p.cfg.Workers
	if def.MaxConnections > 0 {
		n = min(n, int(def.MaxConnections))
	}
	s.turns = make(chan struct{}, n)
	return s, nil
}

// close ends the connections that wait; those that are in use end with their event.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.idle {
		_ = c.Close()
	}
	s.idle = nil
}

// line is data as a line.
func line(data []byte) ([]byte, error) {
	data = bytes.TrimSpace(data)
	if bytes.IndexByte(data, '\n') < 0 {
		return append(bytes.Clone(data), '\n'), nil
	}
	var out bytes.Buffer
	if err := json.Compact(&out, data); err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "what its mutator made is neither JSON nor one line")
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// send writes one event, by a new connection where those that wait are dead.
func (s *stream) send(ctx context.Context, p *Pipelines, data []byte) error {
	data, err := line(data)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, socketTimeout)
	defer cancel()
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return errkind.E(errkind.Unavailable, "its connections are busy", ctx.Err())
	}
	var last error
	for ctx.Err() == nil {
		c, err := s.take(ctx, p)
		if err != nil {
			last = err
			if !errkind.Is(err, errkind.Unavailable) {
				return err
			}
			continue
		}
		if err = s.write(ctx, c, data); err == nil {
			s.put(c)
			return nil
		}
		_ = c.Close()
		last = errkind.E(errkind.Unavailable, "socket", err)
	}
	if last == nil {
		last = ctx.Err()
	}
	return errkind.E(errkind.Unavailable, s.def.Address, last)
}

func (s *stream) write(ctx context.Context, c *streamConn, data []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := c.Write(data)
	if !stop() && err == nil {
		err = ctx.Err() // its deadline is spoilt
	}
	return err
}

// take returns a connection that lives.
func (s *stream) take(ctx context.Context, p *Pipelines) (*streamConn, error) {
	s.mu.Lock()
	for n := len(s.idle) - 1; n >= 0; n-- {
		c := s.idle[n]
		s.idle = s.idle[:n]
		select {
		case <-c.dead:
			_ = c.Close()
		default:
			s.mu.Unlock()
			return c, nil
		}
	}
	wait := time.Until(s.next)
	s.mu.Unlock()
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, errkind.E(errkind.Unavailable, "waiting for the next try", ctx.Err())
		}
	}
	c, err := s.dial(ctx, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.pause = min(max(s.pause*2, s.least), s.most)
		s.next = time.Now().Add(s.pause)
		return nil, err
	}
	s.pause, s.next = 0, time.Time{}
	return c, nil
}

func (s *stream) dial(ctx context.Context, p *Pipelines) (*streamConn, error) {
	secure, err := s.secure()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var conn net.Conn
	if secure != nil {
		conn, err = (&tls.Dialer{Config: secure}).DialContext(ctx, "tcp", s.def.Address)
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", s.def.Address)
	}
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "socket", err)
	}
	c := &streamConn{Conn: conn, dead: make(chan struct{})}
	watching := p.start(func(ctx context.Context) {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		_, _ = io.Copy(io.Discard, conn) // what it answers is of no interest
		close(c.dead)
	})
	if !watching {
		_ = conn.Close()
		return nil, errkind.Errorf(errkind.Unavailable, "the process ends")
	}
	return c, nil
}

const dialTime = 10 * time.Second

// secure reads the files that the handler names, anew for each connection; nil is plain TCP.
func (s *stream) secure() (*tls.Config, error) {
	if s.def.CACert == "" && s.def.Cert == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.def.CACert != "" {
		text, err := os.ReadFile(s.def.CACert)
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "tls_ca_cert_file", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, errkind.Errorf(errkind.Invalid, "tls_ca_cert_file: %s holds no certificate", s.def.CACert)
		}
	}
	if s.def.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.def.Cert, s.def.KeyFile)
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "tls_cert_file, tls_key_file", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// put keeps a connection for the next event.
func (s *stream) put(c *streamConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return
	}
	s.idle = append(s.idle, c)
}

// streamName is what a TCPStreamHandler is called among handlers: those of core/v2 have names of their own.
func streamName(name string) string { return monitor.StreamHandlerKind + "/" + name }

// compileStream makes a handler of a TCPStreamHandler. One that did not change keeps its connections.
func (p *Pipelines) compileStream(i *objects.Item, old *handler) *handler {
	if old != nil && old.item == i {
		return old
	}
	def := i.Object().(*monitor.TCPStreamHandler)
	h := &handler{item: i, def: &monitor.Handler{Meta: monitor.Meta{Name: streamName(def.Name), Namespace: def.Namespace},
		Type: monitor.StreamHandlerKind}}
	if h.stream, h.err = p.newStream(i); h.err != nil {
		h.err = fmt.Errorf("it cannot be used: %w", h.err)
	}
	return h
}

// closeStreams ends the connections of handlers that are in one view and not in another.
func (v *view) closeStreams(next *view) {
	if v == nil {
		return
	}
	for name, n := range v.namespaces {
		for key, h := range n.handlers {
			if h.stream == nil {
				continue
			}
			if next != nil && next.namespaces[name] != nil && next.namespaces[name].handlers[key] == h {
				continue
			}
			h.stream.close()
		}
	}
}
