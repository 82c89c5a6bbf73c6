package xds

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/telemetry"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// fleet is a plane whose proxies all have the same resources, so that a change
// costs it next to nothing.
type fleet struct {
	sets    [mesh.TypeRoute + 1]atomic.Pointer[mesh.Set]
	mu      sync.Mutex
	wakes   []mesh.Waker
	applied atomic.Int64
	target  atomic.Int64  // of applied
	reached chan struct{} // told when it is reached
}

var never = make(chan struct{})

func newFleet() *fleet {
	c := &fleet{reached: make(chan struct{}, 1)}
	for i, names := range [][]string{{"leaf", "roots"}, {"local", "db", "cache", "auth"}, {"db", "cache", "auth"},
		{"rbac"}, {"in", "out"}, {}} {
		var list []*mesh.Resource
		for _, name := range names {
			list = append(list, encoded(mesh.Type(i), name, "v0", make([]byte, 250)))
		}
		set := mesh.NewSet(list...)
		c.sets[i].Store(&set)
	}
	return c
}

func (c *fleet) Open(context.Context, Node, string) (Proxy, error) { return c, nil }
func (c *fleet) Set(t mesh.Type) mesh.Set                          { return *c.sets[t].Load() }
func (c *fleet) Done() <-chan struct{}                             { return never }

func (c *fleet) Applied(Report) {
	if c.applied.Add(1) == c.target.Load() {
		c.reached <- struct{}{}
	}
}

func (c *fleet) Bind(wake mesh.Waker) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakes = append(c.wakes, wake)
	return func() {}
}

func (c *fleet) change(version int) {
	r := encoded(mesh.TypeEndpoints, "db", strconv.Itoa(version), make([]byte, 250))
	set := c.Set(mesh.TypeEndpoints).With(r)
	c.sets[mesh.TypeEndpoints].Store(&set)
	for _, wake := range c.wakes {
		wake.Wake(mesh.Types(0).With(mesh.TypeEndpoints))
	}
}

// peer is a client with as little work as possible: it acknowledges what comes.
type peer struct {
	streams int
	nonces  []int
	buf     []byte // an unfinished frame
}

// hello is the preface and each stream's first requests.
func (p *peer) hello(t testing.TB) []byte {
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&out, nil)
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 28})
	_ = fr.WriteWindowUpdate(0, 1<<30)
	p.nonces = make([]int, p.streams)
	for n := range p.streams {
		var block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", deltaMethod}, {":authority", "x"},
			{"content-type", "application/grpc"}, {"te", "trailers"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true})
		}
		id := uint32(2*n + 1)
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		for i, names := range [][]string{{"leaf", "roots"}, nil, {"db", "cache", "auth"}, {"rbac"}, nil} {
			r := &discovery.DeltaDiscoveryRequest{TypeUrl: mesh.Type(i).URL(), ResourceNamesSubscribe: names}
			if i == 0 {
				r.Node = node("proxy", 40)
			}
			b, err := proto.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = fr.WriteData(id, false, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...))
		}
	}
	return out.Bytes()
}

// take reads what the server wrote and appends the acknowledgements to out.
func (p *peer) take(b, out []byte) []byte {
	if len(p.buf) > 0 {
		p.buf = append(p.buf, b...)
		b = p.buf
	}
	for len(b) >= 9 {
		size := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if len(b) < 9+size {
			break
		}
		if http2.FrameType(b[3]) == http2.FrameData {
			out = p.ack(binary.BigEndian.Uint32(b[5:]), b[9:9+size], out)
		}
		b = b[9+size:]
	}
	p.buf = append(p.buf[:0], b...)
	return out
}

var urls = func() (all [][]byte) {
	for _, t := range mesh.Every {
		all = append(all, []byte(t.URL()))
	}
	return all
}()

func (p *peer) ack(id uint32, message, out []byte) []byte {
	p.nonces[id/2]++
	var nonce [8]byte
	hex := strconv.AppendInt(nonce[:0], int64(p.nonces[id/2]), 16)
	tail := message[:len(message)-2-len(hex)] // the nonce is the last field, the type the one before
	for _, url := range urls {
		if bytes.HasSuffix(tail, url) {
			size := 2 + len(url) + 2 + len(hex)
			out = append(out, 0, 0, byte(5+size), byte(http2.FrameData), 0, 0, 0, byte(id>>8), byte(id), 0, 0, 0, 0, byte(size))
			out = append(append(out, 2<<3|2, byte(len(url))), url...)
			return append(append(out, 6<<3|2, byte(len(hex))), hex...)
		}
	}
	panic("a response without a type")
}

// pipe is the server's end of a connection without a kernel: what is written is
// answered by the peer at once.
type pipe struct {
	net.Conn
	mu     sync.Mutex
	cond   sync.Cond
	peer   *peer
	in     []byte
	closed bool
}

func newPipe(p *peer, hello []byte) *pipe {
	c := &pipe{peer: p, in: hello}
	c.cond.L = &c.mu
	return c
}

func (c *pipe) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.in) == 0 && !c.closed {
		c.cond.Wait()
	}
	if c.closed {
		return 0, io.EOF
	}
	n := copy(b, c.in)
	if c.in = c.in[n:]; len(c.in) == 0 {
		c.in = nil
	}
	return n, nil
}

func (c *pipe) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in = c.peer.take(b, c.in)
	c.cond.Signal()
	return len(b), nil
}

func (c *pipe) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.cond.Broadcast()
	return nil
}

func (c *pipe) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *pipe) SetDeadline(time.Time) error      { return nil }
func (c *pipe) SetReadDeadline(time.Time) error  { return nil }
func (c *pipe) SetWriteDeadline(time.Time) error { return nil }

// pipes is a listener of pipes.
type pipes struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

const responsesAtStart = 5 // one of each type that the peers ask for

// begin opens conns x streams by dialing, and waits until all have everything.
func begin(b testing.TB, plane *fleet, conns, streams int, dial func(p *peer, hello []byte)) {
	for range conns {
		p := &peer{streams: streams}
		dial(p, p.hello(b))
	}
	want := int64(conns * streams * responsesAtStart)
	polltest.Within(b, 2*patience, func() bool { return plane.applied.Load() == want },
		"all streams have their first resources")
}

func measure(b *testing.B, plane *fleet, total int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := processorTime()
	b.ResetTimer()
	for n := range b.N {
		plane.target.Store(plane.applied.Load() + int64(total))
		plane.change(n)
		<-plane.reached
	}
	b.StopTimer()
	b.ReportMetric(float64(processorTime()-cpu)/float64(b.N*total), "cpu-ns/stream")
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*total), "ns/stream")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N*total), "allocs/stream")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N*total), "B/stream")
}

// BenchmarkChangeInMemory is the server's own work for one shared change and its
// acknowledgement, without system calls (the peer's part is a few percent).
func BenchmarkChangeInMemory(b *testing.B) {
	const conns, streams = 1000, 18
	plane := newFleet()
	listener := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	serve(b, Config{Plane: plane, Metrics: telemetry.New(telemetry.Config{})}, func(l net.Listener) net.Listener {
		_ = l.Close()
		listener.Listener = l
		return listener
	})
	var all []*pipe
	begin(b, plane, conns, streams, func(p *peer, hello []byte) {
		c := newPipe(p, hello)
		all = append(all, c)
		listener.conns <- c
	})
	measure(b, plane, conns*streams)
	for _, c := range all {
		_ = c.Close()
	}
}

// BenchmarkChangeOverTCP has both ends and the kernel in it.
func BenchmarkChangeOverTCP(b *testing.B) {
	const conns, streams = 1000, 18
	plane := newFleet()
	_, address := serve(b, Config{Plane: plane, Metrics: telemetry.New(telemetry.Config{})})
	begin(b, plane, conns, streams, func(p *peer, hello []byte) { answerOver(b, address, p, hello) })
	measure(b, plane, conns*streams)
}

func answerOver(t testing.TB, address string, p *peer, hello []byte) {
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if _, err := nc.Write(hello); err != nil {
		t.Fatal(err)
	}
	go func() {
		in, out := make([]byte, 32<<10), []byte(nil)
		for {
			n, err := nc.Read(in)
			if err != nil {
				return
			}
			if out = p.take(in[:n], out[:0]); len(out) > 0 {
				if _, err := nc.Write(out); err != nil {
					return
				}
			}
		}
	}()
}

// What a stream of a proxy with 12 resources may cost in memory, its share of the connection included.
func TestMemoryOfAStream(t *testing.T) {
	const conns, streams = 20, 50
	plane := newFleet()
	listener := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	serve(t, Config{Plane: plane}, func(l net.Listener) net.Listener {
		_ = l.Close()
		listener.Listener = l
		return listener
	})
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	var all []*pipe
	begin(t, plane, conns, streams, func(p *peer, hello []byte) {
		c := newPipe(p, hello)
		all = append(all, c)
		listener.conns <- c
	})
	each := (heap() - before) / (conns * streams)
	t.Logf("%d bytes of heap a stream, %d streams a connection", each, streams)
	if each > 2500 {
		t.Errorf("a stream with 12 resources takes %d bytes, want less than 2,500", each)
	}
	for _, c := range all {
		_ = c.Close()
	}
}
