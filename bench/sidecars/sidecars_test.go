//go:build linux

package sidecars

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"corbel.dev/corbel/kit/polltest"
)

// control is a discovery server of grpc-go that gives every stream the same resources.
type control struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	mu        sync.Mutex
	resources map[string]map[string]*discoveryv3.Resource // by type URL and name
	streams   map[*stream3]bool
	nodes     []string
	acks      map[string]int // nonces that came back, by type URL
	bad       []string
	refuse    string // the node id whose stream is ended once
}

type stream3 struct {
	send chan *discoveryv3.DeltaDiscoveryResponse
	subs map[string]map[string]bool
}

func wrap(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (c *control) set(t *testing.T, name, version string, m proto.Message) {
	t.Helper()
	a := wrap(t, m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resources[a.TypeUrl] == nil {
		c.resources[a.TypeUrl] = map[string]*discoveryv3.Resource{}
	}
	r := &discoveryv3.Resource{Name: name, Version: version, Resource: a}
	c.resources[a.TypeUrl][name] = r
	for s := range c.streams {
		if subs := s.subs[a.TypeUrl]; subs[name] || subs["*"] {
			s.send <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: a.TypeUrl, Nonce: version + name,
				Resources: []*discoveryv3.Resource{r}}
		}
	}
}

func (c *control) DeltaAggregatedResources(
	st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s := &stream3{send: make(chan *discoveryv3.DeltaDiscoveryResponse, 1000), subs: map[string]map[string]bool{}}
	go func() {
		for {
			select {
			case r := <-s.send:
				if st.Send(r) != nil {
					return
				}
			case <-st.Context().Done():
				return
			}
		}
	}()
	for first := true; ; first = false {
		q, err := st.Recv()
		if err != nil {
			return err
		}
		c.mu.Lock()
		refused := first && c.refuse == q.Node.GetId()
		if refused {
			c.refuse = ""
		}
		c.mu.Unlock()
		if refused {
			return status.Error(codes.Unavailable, "not yet")
		}
		c.take(s, q, first)
	}
}

func (c *control) take(s *stream3, q *discoveryv3.DeltaDiscoveryRequest, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[s] = true
	if first {
		c.nodes = append(c.nodes, q.Node.GetId()+"@"+q.Node.GetMetadata().GetFields()["node_name"].GetStringValue())
		if v := q.Node.GetUserAgentBuildVersion().GetVersion(); v.GetMajorNumber() != 1 || v.GetMinorNumber() != 40 {
			c.bad = append(c.bad, fmt.Sprintf("version %v", v))
		}
	}
	if q.ErrorDetail != nil {
		c.bad = append(c.bad, q.ErrorDetail.Message)
	}
	if q.ResponseNonce != "" {
		c.acks[q.TypeUrl]++
		return
	}
	names := q.ResourceNamesSubscribe
	if len(names) == 0 {
		names = []string{"*"}
	}
	if s.subs[q.TypeUrl] == nil {
		s.subs[q.TypeUrl] = map[string]bool{}
	}
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: q.TypeUrl, Nonce: "first"}
	for _, n := range names {
		if s.subs[q.TypeUrl][n] {
			c.bad = append(c.bad, "asked twice for "+n)
		}
		s.subs[q.TypeUrl][n] = true
		for name, v := range c.resources[q.TypeUrl] {
			if n == "*" || n == name {
				r.Resources = append(r.Resources, v)
			}
		}
	}
	s.send <- r
}

const common = "common.default.dc1.internal.x.consul"

func assignment(addrs ...string) *endpointv3.ClusterLoadAssignment {
	cla := &endpointv3.ClusterLoadAssignment{ClusterName: common, Endpoints: []*endpointv3.LocalityLbEndpoints{{}}}
	for _, a := range addrs {
		cla.Endpoints[0].LbEndpoints = append(cla.Endpoints[0].LbEndpoints,
			&endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
				Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
					SocketAddress: &corev3.SocketAddress{Address: a,
						PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 20000}}}}}}})
	}
	return cla
}

// fill gives the server what a sidecar's clusters and listeners commonly refer to.
func (c *control) fill(t *testing.T) {
	ads := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
	common3 := &tlsv3.CommonTlsContext{
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: "leaf", SdsConfig: ads}},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         &tlsv3.CertificateValidationContext{},
				ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: "roots", SdsConfig: ads}}}}
	c.set(t, common, "c1", &clusterv3.Cluster{Name: common,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		TransportSocket: &corev3.TransportSocket{Name: "tls",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: wrap(t,
				&tlsv3.UpstreamTlsContext{CommonTlsContext: common3})}}})
	c.set(t, "local_app", "c1", &clusterv3.Cluster{Name: "local_app",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}})
	hcm := &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "routes", ConfigSource: ads}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "rbac-web", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
			ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: ads, TypeUrls: []string{"x"}}}}}}
	c.set(t, "public", "l1", &listenerv3.Listener{Name: "public", FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{
			{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: wrap(t, hcm)}},
			{Name: "rbac-tcp",
				ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: ads,
					TypeUrls: []string{"x"}}}}},
		TransportSocket: &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
			TypedConfig: wrap(t, &tlsv3.DownstreamTlsContext{CommonTlsContext: common3})}}}}})
	c.set(t, common, "e1", assignment("10.0.0.101", "10.0.0.102"))
	c.set(t, "roots", "s1", &tlsv3.Secret{Name: "roots"})
	c.set(t, "leaf", "s1", &tlsv3.Secret{Name: "leaf"})
	c.set(t, "routes", "r1", &routev3.RouteConfiguration{Name: "routes"})
	for _, n := range []string{"rbac-tcp", "rbac-web"} {
		c.set(t, n, "x1", &corev3.TypedExtensionConfig{Name: n})
	}
}

// listen serves c on an address of its own until the test ends.
func listen(t *testing.T, c *control) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(srv, c)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return l.Addr().String()
}

func newControl(t *testing.T) *control {
	c := &control{resources: map[string]map[string]*discoveryv3.Resource{}, streams: map[*stream3]bool{},
		acks: map[string]int{}}
	c.fill(t)
	return c
}

// start runs a fleet of hosts with proxies each against the addresses, and waits until all are warm.
func start(t *testing.T, hosts, proxies int, addrs ...string) *Fleet {
	t.Helper()
	cfg := Config{Loops: 2, Track: map[string]string{typeURLs[kindEndpoints]: common, typeURLs[kindSecret]: "roots"},
		Need: []string{typeURLs[kindEndpoints], typeURLs[kindSecret], typeURLs[kindRoute], typeURLs[kindExtension],
			typeURLs[kindListener]}}
	for h := range hosts {
		host := Host{Addr: addrs[h%len(addrs)], Node: fmt.Sprintf("node-%d", h)}
		for p := range proxies {
			host.Proxies = append(host.Proxies, fmt.Sprintf("p-%d-%d", h, p))
		}
		cfg.Hosts = append(cfg.Hosts, host)
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	warm(t, f)
	return f
}

func warm(t *testing.T, f *Fleet) {
	t.Helper()
	until(t, "all sidecars are warm", func() error {
		if n := f.Counts(); n.Warm != int64(n.Proxies) {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
}

func finish(t *testing.T, f *Fleet, full <-chan struct{}, since int64) {
	t.Helper()
	select {
	case <-full:
	case <-time.After(time.Minute):
		t.Fatalf("only %d sidecars have the change: %+v", f.Arrived(), f.Counts())
	}
	at, err := f.Collect()
	if err != nil {
		t.Fatal(err)
	}
	now := Monotonic()
	for i, v := range at {
		if v < since || v > now {
			t.Fatalf("sidecar %d has the change at %d, want between %d and %d", i, v, since, now)
		}
	}
}

func TestSidecarsOfGRPC(t *testing.T) {
	c := newControl(t)
	f := start(t, 5, 7, listen(t, c), listen(t, c))
	c.mu.Lock()
	nodes := slices.Clone(c.nodes)
	c.mu.Unlock()
	if len(nodes) != 35 || !slices.Contains(nodes, "p-4-6@node-4") {
		t.Fatalf("the server saw these nodes: %v", nodes)
	}

	full, err := f.Arm(Watch{Type: typeURLs[kindEndpoints], Name: common, Marker: "10.0.0.102", Gone: true})
	if err != nil {
		t.Fatal(err)
	}
	since := Monotonic()
	c.set(t, common, "e2", assignment("10.0.0.101", "10.0.0.102", "10.0.0.103")) // not the change that is waited for
	c.set(t, common, "e3", assignment("10.0.0.101"))
	finish(t, f, full, since)

	for _, trace := range f.Trace([]int{0, 34, 99}) {
		if len(trace.Seen) != 2 || trace.Seen[0].Fits || !trace.Seen[1].Fits || trace.Seen[1].Marker != "-10.0.0.102" ||
			trace.Seen[0].Version == trace.Seen[1].Version || trace.Seen[0].At < since {
			t.Errorf("traced: %+v", trace)
		}
	}
	if traces := f.Trace([]int{0, 34, 99}); len(traces) != 2 || traces[1].Node != "node-4" {
		t.Errorf("traces of who is there: %+v", traces)
	}

	full, err = f.Arm(Watch{Type: typeURLs[kindSecret], Name: "roots"})
	if err != nil {
		t.Fatal(err)
	}
	since = Monotonic()
	c.set(t, "leaf", "s2", &tlsv3.Secret{Name: "leaf"})
	c.set(t, "roots", "s1", &tlsv3.Secret{Name: "roots"}) // the version that they have
	if n := f.Arrived(); n != 0 {
		t.Fatalf("%d sidecars took an old version for a change", n)
	}
	c.set(t, "roots", "s2", &tlsv3.Secret{Name: "roots"})
	finish(t, f, full, since)

	full, err = f.Arm(Watch{Type: typeURLs[kindExtension], Marker: "grown"})
	if err != nil {
		t.Fatal(err)
	}
	since = Monotonic()
	big := &corev3.TypedExtensionConfig{Name: "rbac-tcp",
		TypedConfig: &anypb.Any{Value: []byte(strings.Repeat("grown", 60_000))}}
	c.set(t, "rbac-tcp", "x2", big) // 300 kB: twenty frames
	finish(t, f, full, since)

	until(t, "all is acknowledged", func() error {
		n := f.Counts()
		c.mu.Lock()
		defer c.mu.Unlock()
		total := 0
		for _, k := range c.acks {
			total += k
		}
		if int64(total) != n.Messages || n.Lost != 0 || len(c.bad) > 0 {
			return fmt.Errorf("%d ACKs came, %v, bad %v: %+v", total, c.acks, c.bad, n)
		}
		return nil
	})
}

// TestManyAcksHeedTheWindow sends far more acknowledgements than fit in a window of 64 kB.
func TestManyAcksHeedTheWindow(t *testing.T) {
	c := newControl(t)
	f := start(t, 1, 2, listen(t, c))
	before := f.Counts().Acks
	const changes = 900
	for i := range changes {
		c.set(t, common, fmt.Sprintf("%0200d", i), assignment("10.0.0.101")) // nonces of 240 bytes
	}
	until(t, "every change is acknowledged", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := c.acks[typeURLs[kindEndpoints]]; n != 2*(changes+1) || len(c.bad) > 0 {
			return fmt.Errorf("%d acknowledged, bad %v, %+v", n, c.bad, f.Counts())
		}
		return nil
	})
	if n := f.Counts(); n.Acks-before != 2*changes || n.Lost != 0 {
		t.Fatalf("counts %+v", n)
	}
}

func TestALostConnectionComesBack(t *testing.T) {
	c := newControl(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	first := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(first, c)
	go func() { _ = first.Serve(l) }()
	f := start(t, 1, 3, addr)
	first.Stop()
	until(t, "the loss is seen", func() error {
		if n := f.Counts(); n.Lost == 0 || n.Warm != 0 || n.Reason == "" {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	c.mu.Lock()
	c.streams = map[*stream3]bool{}
	c.mu.Unlock()
	if l, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	second := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(second, c)
	go func() { _ = second.Serve(l) }()
	defer second.Stop()
	warm(t, f)
}

func TestAnEndedStreamComesBackAlone(t *testing.T) {
	c := newControl(t)
	c.refuse = "p-0-1"
	f := start(t, 1, 3, listen(t, c))
	n := f.Counts()
	if n.Ended != 1 || n.Lost != 0 || !strings.Contains(n.Reason, "not yet") {
		t.Fatalf("counts %+v", n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Sort(c.nodes); !slices.Equal(c.nodes, []string{"p-0-0@node-0", "p-0-1@node-0", "p-0-2@node-0"}) {
		t.Fatalf("the server saw these nodes: %v", c.nodes)
	}
}

func TestMemoryOfASidecar(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const hosts, proxies = 200, 18
	cfg := Config{Need: []string{typeURLs[kindEndpoints]}}
	for h := range hosts {
		host := Host{Addr: "127.0.0.1:1", Node: "n"}
		for p := range proxies {
			host.Proxies = append(host.Proxies, fmt.Sprintf("tier1-service-0001-%03d-%05d-sidecar-proxy", p, h))
		}
		cfg.Hosts = append(cfg.Hosts, host)
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	body := appendBytes(nil, 1, "v1")
	body = appendBytes(body, 3, common)
	for _, c := range f.loops[0].conns {
		c.open()
		c.flow.window = maxWindow
		c.out = nil
		for i := range c.streams {
			c.streams[i].asked = append([]uint32(nil), 1, 2, 3, 4, 5, 6)
			m := appendBytes(appendBytes(appendBytes(nil, 2, body), 4, typeURLs[kindEndpoints]), 5, "nonce")
			if err := c.message(i, m); err != nil {
				t.Fatal(err)
			}
		}
		c.out = nil
	}
	per := float64(heap()-before) / (hosts * proxies)
	t.Logf("%.0f bytes of heap for each sidecar", per)
	if per > 300 {
		t.Errorf("%.0f bytes for each sidecar, the bound is 300", per)
	}
	runtime.KeepAlive(f)
}

func TestServeAnswersAParent(t *testing.T) {
	var out bytes.Buffer
	in := strings.NewReader(`{"method":"counts"}` + "\n" +
		`{"method":"start","body":{"hosts":[{"addr":"x","proxies":["a"]}]}}` + "\n" +
		`{"method":"start","body":{"need":["y"]}}` + "\n" + `{"method":"start","body":{}}` + "\n" +
		`{"method":"wait","body":{"most":1}}` + "\n" + `{"method":"collect"}` + "\n")
	if err := Serve(t.Context(), io.Reader(in), &out); err != nil {
		t.Fatal(err)
	}
	want := []string{`must be \"start\"`, `hosts[0].addr: must be an IPv4 address and a port, not \"x\"`,
		`need: \"y\" is no known type URL`,
		`{"body":null}`, `{"body":{"Done":0,"Of":0}}`, `collect: no round is armed`}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d answers: %s", len(lines), out.String())
	}
	for i, l := range lines {
		if !strings.Contains(l, want[i]) {
			t.Errorf("answer %d is %s, want %s", i, l, want[i])
		}
	}
}

// FuzzConn feeds a connection whatever an agent could send.
func FuzzConn(f *testing.F) {
	f.Add(append(appendFrameHead(nil, 0, 4, 0, 0), appendMessage(nil, 1, appendBytes(nil, 4, typeURLs[0]))...))
	f.Add(appendMessage(nil, 3, appendBytes(appendBytes(nil, 2, appendBytes(nil, 2, appendBytes(nil, 2, "\x1a\x00"))), 4,
		typeURLs[kindListener])))
	f.Fuzz(func(t *testing.T, p []byte) {
		fleet, err := New(Config{Hosts: []Host{{Addr: "127.0.0.1:1", Proxies: []string{"a", "b"}}}})
		if err != nil {
			t.Fatal(err)
		}
		c := fleet.loops[0].conns[0]
		c.open()
		if used, _ := c.read(p); used > len(p) {
			t.Fatalf("%d bytes used of %d", used, len(p))
		}
	})
}

func until(t *testing.T, what string, f func() error) {
	t.Helper()
	polltest.NoError(t, time.Minute, f, "%s", what)
}
