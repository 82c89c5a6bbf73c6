package xds

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/api/xds/h2"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/telemetry"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

func dial(t testing.TB, address string, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address,
		append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func background(t testing.TB, pairs ...string) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

func node(id string, minor uint32) *core.Node {
	return &core.Node{Id: id, Cluster: "web", UserAgentName: "envoy",
		UserAgentVersionType: &core.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &core.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: minor}}}}
}

// delta is an incremental client with the gRPC library.
type delta struct {
	t      testing.TB
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	id     string
	begun  bool
}

func openDelta(t testing.TB, conn *grpc.ClientConn, id string, pairs ...string) *delta {
	t.Helper()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(background(t, pairs...))
	if err != nil {
		t.Fatal(err)
	}
	return &delta{t: t, stream: stream, id: id}
}

func (d *delta) send(r *discovery.DeltaDiscoveryRequest) {
	d.t.Helper()
	if !d.begun {
		d.begun, r.Node = true, node(d.id, 40)
	}
	if err := d.stream.Send(r); err != nil {
		d.t.Fatal("send:", err)
	}
}

func (d *delta) subscribe(t mesh.Type, names ...string) {
	d.t.Helper()
	d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: t.URL(), ResourceNamesSubscribe: names})
}

// next receives a response and returns it with its resources as "name@version".
func (d *delta) next() (*discovery.DeltaDiscoveryResponse, string) {
	d.t.Helper()
	r, err := d.stream.Recv()
	if err != nil {
		d.t.Fatal("receive:", err)
	}
	typ, _ := mesh.TypeOf(r.TypeUrl)
	said := []string{typ.String()}
	for _, one := range r.Resources {
		said = append(said, one.Name+"@"+one.Version)
	}
	for _, name := range r.RemovedResources {
		said = append(said, "-"+name)
	}
	return r, strings.Join(said, " ")
}

// expect receives a response, compares it, and acknowledges it.
func (d *delta) expect(want string) {
	d.t.Helper()
	r, got := d.next()
	if got != want {
		d.t.Fatalf("received %q, want %q", got, want)
	}
	d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
}

// code receives until the stream ends.
func (d *delta) code() codes.Code {
	for {
		if _, err := d.stream.Recv(); err != nil {
			return status.Code(err)
		}
	}
}

func TestDeltaOverTheWire(t *testing.T) {
	plane := newTable()
	p := plane.add("web-1", small(mesh.TypeCluster, "db", "1"), small(mesh.TypeEndpoints, "db", "1"),
		small(mesh.TypeListener, "in", "1"))
	metrics := telemetry.New(telemetry.Config{})
	s, address := serve(t, Config{Plane: plane, Metrics: metrics})
	d := openDelta(t, dial(t, address), "web-1")
	d.subscribe(mesh.TypeCluster)
	d.expect("clusters db@1")
	d.subscribe(mesh.TypeEndpoints, "db")
	d.subscribe(mesh.TypeListener)
	d.expect("endpoints db@1")
	d.expect("listeners in@1")
	p.put(small(mesh.TypeEndpoints, "db", "2"))
	d.expect("endpoints db@2")
	p.remove(mesh.TypeCluster, "db")
	d.expect("clusters -db")
	polltest.Within(t, patience, func() bool { return len(p.heard()) == 5 }, "all answers are reported")
	last := p.heard()[3]
	if last.Type != mesh.TypeEndpoints || last.Resources[0].Version != "2" || last.Refused != "" || last.Sent.IsZero() ||
		last.Answered.Before(last.Sent) || last.Changed.IsZero() {
		t.Errorf("report: %+v", last)
	}
	if got := metrics.Counter("xds.acks", "type", "endpoints").Value(); got != 2 {
		t.Errorf("%d acknowledgements of endpoints counted, want 2", got)
	}
	_ = d.stream.CloseSend()
	if code := d.code(); code != codes.Unknown && code != codes.OK { // io.EOF, which is no status
		t.Errorf("after the client's end: %v", code)
	}
	polltest.Within(t, patience, func() bool { return s.grpc.Streams() == 0 && p.bound() == 0 }, "the stream is forgotten")
}

func TestStateOfTheWorldOverTheWire(t *testing.T) {
	plane := newTable()
	p := plane.add("web-1", small(mesh.TypeCluster, "a", "1"), small(mesh.TypeCluster, "b", "1"))
	_, address := serve(t, Config{Plane: plane})
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(dial(t, address)).StreamAggregatedResources(background(t))
	if err != nil {
		t.Fatal(err)
	}
	request := &discovery.DiscoveryRequest{Node: node("web-1", 36), TypeUrl: mesh.TypeCluster.URL()}
	seen := ""
	for round := range 2 {
		if err := stream.Send(request); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			p.put(small(mesh.TypeCluster, "b", "2"))
		}
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Resources) != 2 || r.VersionInfo == seen {
			t.Fatalf("round %d: %v", round, r)
		}
		seen = r.VersionInfo
		request = &discovery.DiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, VersionInfo: r.VersionInfo}
	}
}

func TestRefusedContentIsReportedAndLoggedOnce(t *testing.T) {
	plane, log := newTable(), &lines{}
	p := plane.add("web-1", small(mesh.TypeCluster, "db", "1"))
	_, address := serve(t, Config{Plane: plane, Log: slog.New(slog.NewTextHandler(log, nil))})
	conn := dial(t, address)
	for range 2 {
		d := openDelta(t, conn, "web-1")
		d.subscribe(mesh.TypeCluster)
		r, _ := d.next()
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce,
			ErrorDetail: &spb.Status{Code: 3, Message: strings.Repeat("bad port ", 200)}})
		_ = d.stream.CloseSend()
		_ = d.code()
	}
	polltest.Within(t, patience, func() bool { return len(p.heard()) == 2 }, "both refusals are reported")
	if r := p.heard()[0]; !strings.HasPrefix(r.Refused, "bad port") || len(r.Refused) > 520 {
		t.Errorf("reason: %q", r.Refused)
	}
	if n := strings.Count(log.String(), "refused its configuration"); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
}

func TestWhoIsTurnedAway(t *testing.T) {
	plane := newTable()
	p := plane.add("web-1", small(mesh.TypeCluster, "db", "1"))
	_, address := serve(t, Config{Plane: plane, Transport: h2.Config{MaxStreams: 3}})
	conn := dial(t, address)
	for _, c := range []struct {
		id, token string
		minor     uint32
		want      codes.Code
	}{
		{"web-1", "unknown", 40, codes.Unauthenticated},
		{"web-1", "weak", 40, codes.PermissionDenied},
		{"web-1", "", 30, codes.InvalidArgument},
		{"other", "", 40, codes.InvalidArgument},
		{"", "", 40, codes.InvalidArgument},
	} {
		d := openDelta(t, conn, c.id, "x-consul-token", c.token)
		d.begun = true
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: mesh.TypeCluster.URL(), Node: node(c.id, c.minor)})
		if got := d.code(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	d := openDelta(t, conn, "web-1")
	d.subscribe(mesh.TypeCluster)
	d.expect("clusters db@1")
	for range 2 {
		idle := openDelta(t, conn, "web-1")
		idle.subscribe(mesh.TypeCluster)
		idle.expect("clusters db@1")
	}
	if got := openDelta(t, conn, "web-1").code(); got != codes.ResourceExhausted {
		t.Errorf("a stream too many: %v", got)
	}
	p.finish()
	if got := d.code(); got != codes.Canceled {
		t.Errorf("the proxy was deregistered: %v", got)
	}
}

func TestHealthAndFurtherMethods(t *testing.T) {
	s, address := serve(t, Config{Plane: newTable(), Methods: map[string]h2.Method{
		"/test.Echo/Unary": h2.Unary(func(_ context.Context, md h2.Caller, b []byte) ([]byte, error) {
			if md.Get("fail") != "" {
				return nil, errkind.New(errkind.Denied, "no: 100 % “sure”")
			}
			return b, nil
		}),
		"/test.Echo/Stream": func(_ context.Context, _ h2.Caller, b []byte, send func([]byte) error) error {
			for range 3 {
				if err := send(b); err != nil {
					return err
				}
			}
			return nil
		},
	}})
	conn := dial(t, address)
	health := healthpb.NewHealthClient(conn)
	if r, err := health.Check(background(t), &healthpb.HealthCheckRequest{Service: service}); err != nil ||
		r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("check: %v, %v", r, err)
	}
	if _, err := health.Check(background(t),
		&healthpb.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Fatalf("check of an unknown service: %v", err)
	}
	watch, err := health.Watch(background(t), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING,
		healthpb.HealthCheckResponse_NOT_SERVING} {
		r, err := watch.Recv()
		if err != nil || r.Status != want {
			t.Fatalf("watch: %v, %v, want %v", r, err, want)
		}
		s.SetServing(false)
	}
	// Any message will do for an echo.
	var answer healthpb.HealthCheckRequest
	if err := conn.Invoke(background(t), "/test.Echo/Unary", &healthpb.HealthCheckRequest{Service: "x"},
		&answer); err != nil || answer.Service != "x" {
		t.Fatalf("unary: %v, %v", &answer, err)
	}
	err = conn.Invoke(background(t, "fail", "1"), "/test.Echo/Unary", &healthpb.HealthCheckRequest{}, &answer)
	if status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "no: 100 % “sure”" {
		t.Fatalf("unary that fails: %v", err)
	}
	if err := conn.Invoke(background(t), "/test.Echo/None", &answer, &answer); status.Code(err) != codes.Unimplemented {
		t.Fatalf("no such method: %v", err)
	}
	stream, err := conn.NewStream(background(t), &grpc.StreamDesc{ServerStreams: true}, "/test.Echo/Stream")
	if err != nil || stream.SendMsg(&healthpb.HealthCheckRequest{Service: "y"}) != nil || stream.CloseSend() != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if err := stream.RecvMsg(&answer); (n < 3) != (err == nil) || (n == 3 && err != io.EOF) {
			t.Fatalf("message %d: %v", n, err)
		}
	}
}

func TestManyStreamsOfOneConnectionSeeEachChange(t *testing.T) {
	plane := newTable()
	const streams, changes = 40, 25
	p := plane.add("web-1", small(mesh.TypeEndpoints, "db", "0"))
	_, address := serve(t, Config{Plane: plane})
	conn := dial(t, address)
	var all sync.WaitGroup
	for range streams {
		d := openDelta(t, conn, "web-1")
		d.subscribe(mesh.TypeEndpoints, "db")
		all.Go(func() {
			for last := ""; last != fmt.Sprintf("endpoints db@%d", changes); {
				r, got := d.next()
				last = got
				d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
			}
		})
	}
	for n := range changes {
		p.put(small(mesh.TypeEndpoints, "db", fmt.Sprint(n+1)))
	}
	all.Wait()
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
