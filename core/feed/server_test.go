package feed

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/core/framing"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// raw is a connection whose frames a test reads and writes itself.
type raw struct {
	t    testing.TB
	conn net.Conn
	in   framing.Reader
}

func (s *site) raw(host, addr string) *raw {
	s.t.Helper()
	conn, err := s.memory.Host(host).DialContext(s.t.Context(), "tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(polltest.Deadline)); err != nil {
		s.t.Fatal(err)
	}
	return &raw{s.t, conn, framing.NewReader(conn, 256, maxFrameBytes)}
}

func (r *raw) send(frames ...[]byte) {
	r.t.Helper()
	if _, err := r.conn.Write(bytes.Join(frames, nil)); err != nil {
		r.t.Fatal(err)
	}
}

// next returns the next frame of a kind, passing over others.
func (r *raw) next(kind frameType) message {
	r.t.Helper()
	for {
		t, p, _, err := r.in.Next()
		var m message
		if err == nil {
			err = decode(t, p, &m)
		}
		if err != nil {
			r.t.Fatalf("waiting for a frame of type %d: %v", kind, err)
		}
		if t == kind {
			return m
		}
	}
}

// closed waits until the server has closed the connection.
func (r *raw) closed() {
	r.t.Helper()
	if _, err := io.Copy(io.Discard, r.conn); errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatalf("the connection is open: %v", err)
	}
}

var helloA = hello{protocolVersion, "a", ""}.append(nil)

// TestSlowReader: a follower that reads nothing gets the newest values when it does, not all of
// them, and one that never does is cut; others notice neither.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		server := s.serve("s0", ServerConfig{Source: p})
		good := s.client("good", ClientConfig{})
		var got seen
		good.Follow("x", "", got.set, got.failed)
		slow := s.raw("slow", "s0:1")
		slow.send(helloA, follow{id: 1, subject: "x"}.append(nil))
		slow.next(frameValue)
		for i := range 200 {
			p.publish("x", body(uint64(i+1), 100_000))
			synctest.Wait()
		}
		reaches(t, &got, 200)
		if n := server.meters.conflated.Value(); n < 100 {
			t.Errorf("%d values were left out", n)
		}
		if f := server.Stats().InFlightBytes; f > largeBufferBytes {
			t.Errorf("%d bytes are held for one slow connection", f)
		}
		taken := 0
		for last := uint64(0); last < 200; taken++ {
			last = slow.next(frameValue).value.index
		}
		if taken > 10 {
			t.Errorf("it had to take %d values to get to the newest", taken)
		}
		for range 50 { // and now it takes no more
			p.publish("x", body(p.newest+1, 100_000))
		}
		reaches(t, &got, 250)
		polltest.Until(t, func() bool { return server.meters.cutStalled.Value() == 1 && server.Stats().Conns == 1 },
			"the connection to be cut")
		if good.meters.missed.Value() > 0 || good.Stale() {
			t.Error("the other connection suffered")
		}
		if p.count() != 1 {
			t.Errorf("%d follow at the source", p.count())
		}
	})
}

// TestTailIsForThoseWhoReadIt: clients of the first version are sent bodies without their tails.
func TestTailIsForThoseWhoReadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		s.serve("s0", ServerConfig{Source: p})
		for version, want := range map[uint64]string{1: "body", protocolVersion: "body+tail",
			protocolVersion + 1: "body+tail"} {
			r := s.raw(fmt.Sprint("v", version), "s0:1")
			r.send(hello{version, "a", ""}.append(nil), follow{id: 1, subject: "x"}.append(nil))
			if got := r.next(frameWelcome).welcome.version; got != min(version, protocolVersion) {
				t.Errorf("version %d is answered with %d", version, got)
			}
			r.next(frameValue) // there is nothing yet
			p.mu.Lock()
			v := Value{Index: p.newest + 2, Body: []byte("body+tail"), Tail: len("+tail")}
			p.newest = v.Index
			for f := range p.followers["x"] {
				f.set(v)
			}
			p.mu.Unlock()
			if m := r.next(frameValue); string(m.body) != want || m.value.total != len(want) {
				t.Errorf("version %d is sent %q of %d bytes, want %q", version, m.body, m.value.total, want)
			}
		}
	})
}

// TestWhatIsSteadyIsNotSent: who comes with a value of between is sent nothing, and who comes with an older one is.
func TestWhatIsSteadyIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		s.serve("s0", ServerConfig{Source: p})
		p.mu.Lock()
		p.values["x"] = Value{Index: 90, Steady: 50, Generation: p.generation, Body: []byte("steady")}
		p.newest = 90
		generation := p.generation
		p.mu.Unlock()
		for since, sent := range map[uint64]bool{0: true, 49: true, 50: false, 70: false, 95: false} {
			r := s.raw(fmt.Sprint("a", since), "s0:1")
			r.send(hello{protocolVersion, "a", ""}.append(nil),
				follow{id: 1, subject: "x", generation: generation, since: since}.append(nil))
			r.next(frameWelcome)
			kind, p, _, err := r.in.Next()
			for err == nil && kind != frameValue && kind != frameUnchanged {
				kind, p, _, err = r.in.Next()
			}
			if err != nil || (kind == frameValue) != sent {
				t.Errorf("since %d: frame %d with %d bytes, %v", since, kind, len(p), err)
			}
		}
	})
}

// TestLargeValuesLetOthersPass: while a large value is on its way to a slow reader, small ones
// and heartbeats come between its parts.
func TestLargeValuesLetOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		s.serve("s0", ServerConfig{Source: p})
		r := s.raw("a", "s0:1")
		r.send(helloA, follow{id: 1, subject: "large"}.append(nil), follow{id: 2, subject: "small"}.append(nil))
		for range 2 {
			r.next(frameValue)
		}
		p.publish("large", body(1, 4<<20))
		p.publish("large", body(2, 4<<20))
		synctest.Wait()
		p.publish("small", body(3, 0))
		if v := r.next(frameValue); v.id != 1 || v.value.index != 2 || v.value.total != 4<<20 {
			t.Fatalf("first came %+v", v.value)
		}
		parts, beats := 0, 0
		for small := false; !small; {
			kind, p, _, err := r.in.Next()
			var m message
			if err == nil {
				err = decode(kind, p, &m)
			}
			if err != nil {
				t.Fatal(err)
			}
			switch kind {
			case frameChunk:
				parts++
			case frameHeartbeat:
				beats++
				if m.beat.sent >= 2 {
					t.Errorf("a heartbeat says that %d is sent while its value is on the way", m.beat.sent)
				}
			case frameValue:
				small = m.id == 2
			}
		}
		if parts*chunkBytes > 1<<20 {
			t.Errorf("the small value came after %d parts", parts)
		}
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		server := s.serve("s0", ServerConfig{Source: p, MaxConns: 3, MaxFollows: 2})
		first := s.raw("a", "s0:1")
		first.send(helloA)
		if w := first.next(frameWelcome).welcome; w.version != protocolVersion || w.heartbeat != time.Second {
			t.Errorf("welcome %+v", w)
		}
		first.send(follow{id: 1, subject: "x"}.append(nil), follow{id: 2, subject: "y"}.append(nil),
			follow{id: 3, subject: "z"}.append(nil))
		if m := first.next(frameGone); m.id != 3 || !errkind.Is(m.err, errkind.TooLarge) {
			t.Errorf("one subject too many: %d, %v", m.id, m.err)
		}
		first.send(appendUnfollow(nil, 1), follow{id: 3, subject: "z"}.append(nil))
		if m := first.next(frameValue); m.id != 3 {
			t.Errorf("after one was given up: %+v", m)
		}
		first.send(follow{id: 9}.append(nil))
		if m := first.next(frameGone); m.id != 9 || !errkind.Is(m.err, errkind.Invalid) {
			t.Errorf("no subject: %v", m.err)
		}
		// Refusals are not piled up for one who does not read them.
		flood := s.raw("b", "s0:1")
		flood.send(helloA)
		go func() {
			for i := uint32(1); ; i++ {
				if _, err := flood.conn.Write(follow{id: i}.append(nil)); err != nil {
					return
				}
			}
		}()
		polltest.Until(t, func() bool { return server.meters.cutStalled.Value() == 1 }, "the flood to be cut")
		if d := server.Stats().Dirty; d > maxFailing {
			t.Errorf("%d refusals wait", d)
		}
		third, fourth := s.raw("c", "s0:1"), s.raw("c", "s0:1")
		third.send(helloA)
		third.next(frameWelcome)
		fourth.send(helloA)
		fourth.next(frameWelcome)
		if m := s.raw("d", "s0:1").next(frameBye); !errkind.Is(m.err, errkind.Overloaded) {
			t.Errorf("one connection too many: %v", m.err)
		}
	})
}

func TestWhoBreaksTheProtocolIsCut(t *testing.T) {
	for name, send := range map[string][]byte{
		"no hello":   appendUnfollow(nil, 1),
		"two hellos": append(bytes.Clone(helloA), helloA...),
		"a server's": append(bytes.Clone(helloA), appendUnchanged(nil, 1)...),
		"an id twice": append(bytes.Clone(helloA), append(follow{id: 1, subject: "x"}.append(nil),
			follow{id: 1, subject: "y"}.append(nil)...)...),
		"noise":          []byte("GET / HTTP/1.1\r\n\r\n"),
		"too long":       {66, 0xff, 0xff, 0xff},
		"nothing at all": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := newSite(t), newPress()
				server := s.serve("s0", ServerConfig{Source: p})
				r := s.raw("a", "s0:1")
				if send != nil {
					r.send(send)
				}
				r.closed()
				polltest.Until(t, func() bool { return server.Stats() == Stats{} && p.count() == 0 }, "nothing to be left: %+v",
					server.Stats())
				if n := server.meters.cutFrames.Value() + server.meters.cutHello.Value(); n != 1 {
					t.Errorf("counted %d times", n)
				}
			})
		})
	}
}

func TestAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		server := s.serve("s0", ServerConfig{Source: p, Admit: func(h Hello) error {
			if h.Node != "good" || h.Token != "agent" || h.Remote == nil {
				return errkind.New(errkind.Denied, "who is "+h.Node)
			}
			return nil
		}})
		r := s.raw("a", "s0:1")
		r.send(helloA, follow{id: 1, subject: "x"}.append(nil))
		if m := r.next(frameBye); !errkind.Is(m.err, errkind.Denied) || m.err.Error() != "who is a" {
			t.Errorf("refused with %v", m.err)
		}
		r.closed()
		if p.follows > 0 {
			t.Error("it could follow")
		}
		c := s.client("good", ClientConfig{Token: "agent"})
		var got seen
		c.Follow("x", "", got.set, got.failed)
		p.publish("x", body(2, 0))
		p.publish("x", body(2, 0))
		reaches(t, &got, 2)
		s.client("bad", ClientConfig{Token: "agent"}).Follow("x", "", got.set, got.failed)
		pause(60_000)
		// A refused agent comes back at an ever slower pace.
		if n := server.meters.denied.Value(); n < 5 || n > 60 {
			t.Errorf("refused %d times in a minute", n)
		}
	})
}

// TestStop: a server that stops tells its agents, who go elsewhere at once.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		for i := range 2 {
			s.serve(fmt.Sprint("s", i), ServerConfig{Source: p})
		}
		c := s.client("a", ClientConfig{})
		var got seen
		c.Follow("x", "", got.set, got.failed)
		reaches(t, &got, 1)
		stuck := s.raw("stuck", c.Connected()[0])
		stuck.send(helloA)
		began := time.Now()
		s.servers[c.Connected()[0]].stop()
		if took := time.Since(began); took > 2*lingerFor {
			t.Errorf("stopping took %s", took)
		}
		p.publish("x", body(1, 0))
		p.publish("x", body(2, 0))
		reaches(t, &got, 2)
		if took := time.Since(began); took > 2*lingerFor {
			t.Errorf("the agent was without a server for %s", took)
		}
	})
}

// pipeConn is a TLS-like connection: the state is what Admit is given.
type pipeConn struct{ net.Conn }

func (pipeConn) ConnectionState() tls.ConnectionState { return tls.ConnectionState{ServerName: "n"} }

// FuzzServer gives a server any bytes after a good hello: it answers or cuts, and holds on to nothing.
func FuzzServer(f *testing.F) {
	for _, s := range samples() {
		f.Add(s.frame)
	}
	f.Add(bytes.Join([][]byte{follow{id: 1, subject: "x"}.append(nil), appendUnfollow(nil, 1),
		follow{id: 1, subject: "y", token: "bad"}.append(nil)}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := newPress()
		p.denied["bad"] = true
		server, err := NewServer(ServerConfig{Source: p, MaxFollows: 4, Admit: func(h Hello) error {
			if h.TLS == nil || h.TLS.ServerName != "n" {
				t.Error("the TLS state is missing")
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, near) }()
		server.serve(pipeConn{far})
		_, _ = near.Write(append(bytes.Clone(helloA), b...))
		near.Close()
		server.served.Wait()
		if p.count() != 0 || server.Stats() != (Stats{}) {
			t.Errorf("%d follow, %+v", p.count(), server.Stats())
		}
	})
}
