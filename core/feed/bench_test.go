//go:build unix

package feed

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
)

// fan is a server on a loopback socket with many connections that only take what comes.
type fan struct {
	server *Server
	press  *press
	addr   string
	conns  []net.Conn
}

func newFan(t testing.TB, conns int) *fan {
	f := &fan{press: newPress()}
	f.press.publish("endpoints/dc1/common", body(1, 300))
	w, err := wire.New(wire.Config{Bind: "127.0.0.1:0", Backlog: conns + 1, MaxPending: 4*conns + 4})
	if err != nil {
		t.Fatal(err)
	}
	run(t, w.Run)
	f.server, err = NewServer(ServerConfig{Source: f.press, Heartbeat: time.Hour,
		Metrics: telemetry.New(telemetry.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	f.addr = w.Addr().String()
	l := w.Listen(wire.ProtoFeed, 0, wire.Members)
	run(t, func(ctx context.Context) error { return f.server.Run(ctx, l) })
	for i := range conns {
		conn, err := net.Dial("tcp", w.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		f.conns = append(f.conns, conn)
		if _, err := conn.Write([]byte{byte(wire.ProtoFeed), 0}); err != nil {
			t.Fatal(err)
		}
		out := hello{1, fmt.Sprint("node", i), ""}.append(nil)
		if _, err := conn.Write(follow{id: 1, subject: "endpoints/dc1/common"}.append(out)); err != nil {
			t.Fatal(err)
		}
	}
	f.arrived(t, uint64(conns))
	return f
}

// arrived waits until so many values were written. It looks seldom, so as not to be counted itself.
func (f *fan) arrived(t testing.TB, n uint64) {
	begin := time.Now()
	for f.server.meters.values.Value() < n {
		if time.Since(begin) > polltest.Deadline {
			t.Fatalf("%d of %d values were written", f.server.meters.values.Value(), n)
		}
		<-time.After(200 * time.Microsecond)
	}
}

// drain takes off the sockets what arrived.
func (f *fan) drain(t testing.TB) {
	var b [4096]byte
	for _, conn := range f.conns {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = raw.Read(func(fd uintptr) bool {
			_, _ = syscall.Read(int(fd), b[:])
			return true
		})
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
	}
}

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFanOut is one change of a value of 300 bytes, followed on 2,000 loopback connections, until
// it is written to all of them. Reading it off again is not counted.
func BenchmarkFanOut(b *testing.B) {
	f := newFan(b, 2000)
	content := body(1, 300)
	written := f.server.meters.values.Value()
	var used time.Duration
	b.ReportAllocs()
	for b.Loop() {
		before := cpu()
		f.press.publish("endpoints/dc1/common", content)
		written += uint64(len(f.conns))
		f.arrived(b, written)
		used += cpu() - before
		b.StopTimer()
		f.drain(b)
		b.StartTimer()
	}
	deliveries := float64(b.N) * float64(len(f.conns))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/deliveries, "ns/delivery")
	b.ReportMetric(float64(used.Nanoseconds())/deliveries, "cpu-ns/delivery")
}

// BenchmarkSet is what a change costs its source for each follower, the writing left out.
func BenchmarkSet(b *testing.B) {
	s, err := NewServer(ServerConfig{Source: newPress()})
	if err != nil {
		b.Fatal(err)
	}
	c := newServerConn(s, nil)
	f := &serverFollow{c: c, id: 1}
	c.state.corked = true
	v := Value{Body: body(1, 300)}
	b.ReportAllocs()
	for b.Loop() {
		v.Index++
		f.set(v)
	}
}

// TestMemoryPerConnection bounds what an idle connection of a server with one subject takes:
// goroutine, buffers, and the books; the kernel's socket is not counted.
func TestMemoryPerConnection(t *testing.T) {
	const conns = 500
	var once sync.Once
	measure := func() uint64 {
		once.Do(func() { newFan(t, 1) }) // what is made once
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := measure()
	f := newFan(t, conns)
	each := (int64(measure()) - int64(before)) / conns
	t.Logf("%d bytes per connection, of which the test's own end takes about 500", each)
	if limit := int64(16 << 10); each > limit {
		t.Errorf("%d bytes per connection, more than %d", each, limit)
	}
	runtime.KeepAlive(f)
}

// TestCostOfAClient bounds what a client takes: thousands may live in one process.
func TestCostOfAClient(t *testing.T) {
	const clients, subjects = 100, 20
	for _, hedge := range []bool{false, true} {
		servers := []*fan{newFan(t, 0), newFan(t, 0)}
		var m runtime.MemStats
		measure := func() (bytes int64, goroutines int) {
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
		}
		bytes, goroutines := measure()
		conns := 1
		if hedge {
			conns = 2
		}
		for i := range clients {
			c, err := NewClient(ClientConfig{Node: fmt.Sprint("node", i), Hedge: hedge, Silence: time.Hour,
				Servers: func() []string { return []string{servers[0].addr, servers[1].addr} }, Dial: dialFeed})
			if err != nil {
				t.Fatal(err)
			}
			run(t, c.Run)
			for k := range subjects {
				c.Follow(fmt.Sprint("endpoints/dc1/service-", k), "", func(Value) {}, func(err error) { t.Error(err) })
			}
			polltest.Until(t, func() bool { return len(c.Connected()) == conns && c.Newest() > 0 }, "client %d to connect", i)
		}
		var each int64
		polltest.Until(t, func() bool {
			now, running := measure()
			each = (now - bytes) / clients
			// The client's Run and a reader for each connection, at both ends.
			return running-goroutines <= clients*(1+2*conns)
		}, "goroutines to come to rest")
		t.Logf("hedge %t: %d bytes for a client and its share of the servers, with %d subjects", hedge, each, subjects)
		if limit := int64(conns) * 64 << 10; each > limit {
			t.Errorf("%d bytes a client, more than %d", each, limit)
		}
	}
}

// dialFeed connects to a fan.
func dialFeed(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		_, err = conn.Write([]byte{byte(wire.ProtoFeed), 0})
	}
	return conn, err
}
