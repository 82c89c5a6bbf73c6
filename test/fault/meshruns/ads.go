package meshruns

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"

	"corbel.dev/corbel/kit/spawn"
)

// The types of resources that these proxies subscribe to.
const (
	adsPrefix   = "type.googleapis.com/envoy.config."
	adsCluster  = adsPrefix + "cluster.v3.Cluster"
	adsEndpoint = adsPrefix + "endpoint.v3.ClusterLoadAssignment"
	adsListener = adsPrefix + "listener.v3.Listener"
	adsRules    = adsPrefix + "core.v3.TypedExtensionConfig"
	adsSecret   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	adsMethod   = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
)

// adsResource is one resource of a response.
type adsResource struct {
	Name, Version string
	Body          []byte
}

// adsResponse is a response of delta discovery.
type adsResponse struct {
	Type, Nonce string
	Resources   []adsResource
	Removed     []string
}

// adsConn is simulated proxies that share a connection: each has a delta stream, subscribes to all clusters and
// listeners and to endpoints by name, and answers each response.
type adsConn struct {
	addr    string
	proxies []*adsProxy
	small   bool        // the protocol's own window of 64 kB, which holds less than one response
	slow    atomic.Bool // reads one byte a second
	// judge returns why a proxy refuses a response, "" to acknowledge it. Called by the connection's goroutine.
	judge func(*adsProxy, *adsResponse) string

	conn   net.Conn
	out    *http2.Framer
	mu     sync.Mutex // guards judge, conn, out, and what is in proxies
	cancel context.CancelFunc
	ended  chan struct{}
}

// adsProxy is one simulated proxy. What it has is kept over connections.
type adsProxy struct {
	id, node  string
	endpoints []string                     // names of clusters, learnt from those that came
	have      map[string]map[string]string // type to name to version
	sent      map[string]int               // responses, by type
	news      int                          // resources that came, without certificates
	mark      int                          // the newest mark of this connection; see meshMark
	ended     string                       // the status with which the last stream ended
	half      []byte
}

func newAdsProxy(node, id string) *adsProxy {
	return &adsProxy{id: id, node: node, have: map[string]map[string]string{}, sent: map[string]int{}}
}

// open connects and begins all streams, with what the proxies have. run serves them.
func (c *adsConn) open(ctx context.Context) (err error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	if c.conn, err = d.DialContext(ctx, "tcp", c.addr); err != nil {
		return err
	}
	w := &bytes.Buffer{}
	w.WriteString(http2.ClientPreface)
	c.out = http2.NewFramer(w, nil)
	if c.small {
		_ = c.out.WriteSettings()
	} else {
		_ = c.out.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 28})
		_ = c.out.WriteWindowUpdate(0, 1<<30)
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i, p := range c.proxies {
		p.half, p.mark = nil, 0
		block.Reset()
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", adsMethod}, {":authority", "x"},
			{"content-type", "application/grpc"}, {"te", "trailers"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true})
		}
		_ = c.out.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(),
			EndHeaders: true})
		for n, request := range []adsRequest{{url: adsCluster}, {url: adsEndpoint, subscribe: p.endpoints},
			{url: adsListener},
			{url: adsSecret, subscribe: []string{"leaf", "roots"}},
			{url: adsRules, subscribe: []string{"connect_authz:http", "connect_authz:tcp"}}} {
			if request.have = p.have[request.url]; n == 0 {
				request.proxy = p
			}
			c.send(i, request)
		}
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(30 * time.Second))
	_, err = c.conn.Write(w.Bytes())
	c.out = http2.NewFramer(c.conn, nil)
	return err
}

// adsRequest is a request: proxy is set in the first of a stream.
type adsRequest struct {
	proxy       *adsProxy
	url         string
	subscribe   []string
	have        map[string]string
	nonce, fail string
}

func (c *adsConn) send(stream int, r adsRequest) {
	field := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	var m []byte
	if p := r.proxy; p != nil {
		// Node.metadata {"node_name": node} as a google.protobuf.Struct, and a version that is served.
		entry := field(field(nil, 1, []byte("node_name")), 2, field(nil, 3, []byte(p.node)))
		version := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
		version = protowire.AppendVarint(protowire.AppendTag(version, 2, protowire.VarintType), 36)
		n := field(field(field(nil, 1, []byte(p.id)), 3, field(nil, 1, entry)), 6, []byte("envoy"))
		m = field(m, 1, field(n, 8, field(nil, 1, version)))
	}
	m = field(m, 2, []byte(r.url))
	for _, name := range r.subscribe {
		m = field(m, 3, []byte(name))
	}
	for name, version := range r.have {
		m = field(m, 5, field(field(nil, 1, []byte(name)), 2, []byte(version)))
	}
	if r.nonce != "" {
		m = field(m, 6, []byte(r.nonce))
	}
	if r.fail != "" {
		m = field(m, 7, field(nil, 2, []byte(r.fail)))
	}
	_ = c.out.WriteData(uint32(2*stream+1), false, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...))
}

// start serves the connection in the background until stop, and opens it anew when it or one of its streams ends, as
// Envoy does.
func (c *adsConn) start(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	c.ended = make(chan struct{})
	go func() {
		defer close(c.ended)
		for ctx.Err() == nil {
			c.mu.Lock()
			err := c.open(ctx)
			c.mu.Unlock()
			if err == nil {
				stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
				_ = c.run()
				stop()
			}
			if c.slow.Load() {
				return // it was slow once too often
			}
			_ = spawn.Sleep(ctx, 100*time.Millisecond)
		}
	}()
}

// stop ends the connection and waits for its goroutine.
func (c *adsConn) stop() {
	c.cancel()
	<-c.ended
}

// run reads and answers until the connection or one of its streams ends.
func (c *adsConn) run() error {
	defer c.conn.Close()
	in := http2.NewFramer(nil, throttle{c})
	in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := in.ReadFrame()
		if err != nil {
			return err
		}
		c.mu.Lock()
		err = c.frame(f)
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// throttle reads the connection, slowly when that is asked for.
type throttle struct{ c *adsConn }

// Read implements io.Reader.
func (t throttle) Read(b []byte) (int, error) {
	if t.c.slow.Load() {
		time.Sleep(time.Second) // what it is: a slow reader
		b = b[:1]
	}
	return t.c.conn.Read(b)
}

func (c *adsConn) frame(f http2.Frame) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(30 * time.Second))
	stream := int(f.Header().StreamID / 2)
	switch f := f.(type) {
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.out.WritePing(true, f.Data)
		}
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return c.out.WriteSettingsAck()
		}
	case *http2.GoAwayFrame:
		return errors.New("the server said goodbye")
	case *http2.RSTStreamFrame:
		return errStreamEnded
	case *http2.MetaHeadersFrame:
		for _, h := range f.Fields {
			if h.Name == "grpc-status" {
				c.proxies[stream].ended = h.Value
				return errStreamEnded
			}
		}
	case *http2.DataFrame:
		p := c.proxies[stream]
		if n := uint32(len(f.Data())); n > 0 {
			_ = c.out.WriteWindowUpdate(0, n)
			_ = c.out.WriteWindowUpdate(f.StreamID, n)
		}
		p.half = append(p.half, f.Data()...)
		for len(p.half) >= 5 && len(p.half) >= 5+int(binary.BigEndian.Uint32(p.half[1:])) {
			n := 5 + int(binary.BigEndian.Uint32(p.half[1:]))
			r, err := readAds(p.half[5:n])
			if err != nil {
				return err
			}
			c.answer(stream, p, r)
			p.half = append([]byte(nil), p.half[n:]...)
		}
	}
	return nil
}

// answer judges a response, and acknowledges or refuses it.
func (c *adsConn) answer(stream int, p *adsProxy, r *adsResponse) {
	p.sent[r.Type]++
	if r.Type != adsSecret { // another server has another certificate
		p.news += len(r.Resources)
	}
	fail := ""
	if c.judge != nil {
		fail = c.judge(p, r)
	}
	if fail == "" {
		if p.have[r.Type] == nil {
			p.have[r.Type] = map[string]string{}
		}
		for _, one := range r.Resources {
			p.have[r.Type][one.Name] = one.Version
		}
		for _, name := range r.Removed {
			delete(p.have[r.Type], name)
		}
	}
	c.send(stream, adsRequest{url: r.Type, nonce: r.Nonce, fail: fail})
	if r.Type != adsCluster || fail != "" {
		return
	}
	var names []string
	for _, one := range r.Resources {
		if strings.Contains(one.Name, ".internal.") && !slices.Contains(p.endpoints, one.Name) {
			names = append(names, one.Name)
		}
	}
	if len(names) > 0 {
		p.endpoints = append(p.endpoints, names...)
		c.send(stream, adsRequest{url: adsEndpoint, subscribe: names})
	}
}

var errStreamEnded = errors.New("a stream ended")

func readAds(b []byte) (*adsResponse, error) {
	r := &adsResponse{}
	err := fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case 2:
			var one adsResource
			err := fields(v, func(n protowire.Number, v []byte) error {
				switch n {
				case 1:
					one.Version = string(v)
				case 2:
					one.Body = bytes.Clone(v)
				case 3:
					one.Name = string(v)
				}
				return nil
			})
			r.Resources = append(r.Resources, one)
			return err
		case 4:
			r.Type = string(v)
		case 5:
			r.Nonce = string(v)
		case 6:
			r.Removed = append(r.Removed, string(v))
		}
		return nil
	})
	return r, err
}

// fields calls f with each length-delimited field of a message.
func fields(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("a response that is no message: %w", protowire.ParseError(size))
		}
		b = b[size:]
		if size = protowire.ConsumeFieldValue(n, typ, b); size < 0 {
			return fmt.Errorf("a response that is no message: %w", protowire.ParseError(size))
		}
		if typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			if err := f(n, v); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}
