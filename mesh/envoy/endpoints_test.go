package envoy

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"corbel.dev/corbel/mesh"
)

// oracleEndpoints builds the same with the library's own types.
func oracleEndpoints(v *mesh.Endpoints) *endpointv3.ClusterLoadAssignment {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: v.Cluster}
	group := &endpointv3.LocalityLbEndpoints{}
	status := map[mesh.Health]corev3.HealthStatus{mesh.Healthy: corev3.HealthStatus_HEALTHY,
		mesh.Draining: corev3.HealthStatus_DRAINING, mesh.Unhealthy: corev3.HealthStatus_UNHEALTHY}
	for _, e := range v.List {
		group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{HealthStatus: status[e.Health],
			LoadBalancingWeight: u32(min(max(e.Weight, 1), 128)),
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
				Endpoint: &endpointv3.Endpoint{Address: socketAddressOf(e.Address, uint32(e.Port))},
			}})
	}
	if len(group.LbEndpoints) > 0 {
		m.Endpoints = append(m.Endpoints, group)
	}
	return m
}

func socketAddressOf(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: ip,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}}
}

// opened decodes a resource and checks what holds for all of them.
func opened[M proto.Message](t testing.TB, r *mesh.Resource, into M) M {
	t.Helper()
	var outer discoveryv3.Resource
	if err := proto.Unmarshal(r.Body, &outer); err != nil {
		t.Fatal(err)
	}
	if outer.Name != r.Name || outer.Version != r.Version || outer.Resource.TypeUrl != r.Type.URL() {
		t.Fatalf("wrapped as %q %q %q, resource says %q %q %q", outer.Name, outer.Version, outer.Resource.TypeUrl, r.Name,
			r.Version, r.Type.URL())
	}
	if inner, _ := proto.Marshal(outer.Resource); !bytes.Equal(inner, r.Any) || !bytes.Contains(r.Body, r.Any) {
		t.Fatal("Any is not the part of Body that it says it is")
	}
	if err := outer.Resource.UnmarshalTo(into); err != nil {
		t.Fatal(err)
	}
	if v, ok := any(into).(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := mesh.ReadResource(r.Body, r.Changed)
	if err != nil || again.Name != r.Name || again.Version != r.Version || again.Type != r.Type ||
		!bytes.Equal(again.Any, r.Any) {
		t.Fatalf("read back as %+v, %v", again, err)
	}
	return into
}

func TestEndpointsAgreeWithTheLibrary(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := &mesh.Endpoints{Cluster: rapid.StringMatching(`[a-z.]{1,200}`).Draw(rt, "cluster")}
		for range rapid.IntRange(0, 40).Draw(rt, "endpoints") {
			v.List = append(v.List, mesh.Endpoint{
				Address: rapid.SampledFrom([]string{"10.0.0.1", "192.168.100.200", "::1", "2001:db8::ffff:1"}).Draw(rt, "address"),
				Port:    rapid.Uint16Range(1, 65535).Draw(rt, "port"), Weight: rapid.Uint32Range(0, 300).Draw(rt, "weight"),
				Health: mesh.Health(rapid.IntRange(0, 2).Draw(rt, "health"))})
		}
		r, err := Endpoints(v)
		if err != nil {
			rt.Fatal(err)
		}
		got := opened(t, r, &endpointv3.ClusterLoadAssignment{})
		if want := oracleEndpoints(v); !proto.Equal(got, want) {
			rt.Fatalf("got %v\nwant %v", got, want)
		}
		want, err := encode(mesh.TypeEndpoints, v.Cluster, oracleEndpoints(v))
		if err != nil || len(want.Body) != len(r.Body) { // the library writes the members of a oneof last
			rt.Fatalf("%d bytes, the library has %d, %v", len(r.Body), len(want.Body), err)
		}
	})
}

func TestBadEndpointsAreNamedAndLeftOut(t *testing.T) {
	r, err := Endpoints(&mesh.Endpoints{Cluster: "web", List: []mesh.Endpoint{
		{Address: "host.example", Port: 80}, {Address: "10.0.0.1", Port: 80, Weight: 1}, {Address: "10.0.0.2"}}})
	if err == nil || !strings.Contains(err.Error(), `List[0]: Address "host.example"`) ||
		!strings.Contains(err.Error(), "List[2]: Port") {
		t.Errorf("error %v", err)
	}
	got := opened(t, r, &endpointv3.ClusterLoadAssignment{})
	if len(got.Endpoints) != 1 || len(got.Endpoints[0].LbEndpoints) != 1 {
		t.Errorf("got %v", got)
	}
	if r, err := Endpoints(&mesh.Endpoints{}); r != nil || err == nil {
		t.Errorf("without a name: %v, %v", r, err)
	}
}

func TestReadResourceRefusesDamage(t *testing.T) {
	r, _ := Endpoints(fleet(3))
	for n := range r.Body {
		if got, err := mesh.ReadResource(r.Body[:n], time.Time{}); err == nil {
			t.Fatalf("the first %d bytes of %d were taken for %+v", n, len(r.Body), got)
		}
	}
}

func fleet(n int) *mesh.Endpoints {
	v := &mesh.Endpoints{Cluster: "web.default.dc1.internal.11111111-2222-3333-4444-555555555555.consul"}
	for i := range n {
		v.List = append(v.List, mesh.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Port: 21000,
			Weight: 1})
	}
	return v
}

func TestEndpointsAllocateByResourceNotByInstance(t *testing.T) {
	v := fleet(1000)
	if n := testing.AllocsPerRun(20, func() {
		if _, err := Endpoints(v); err != nil {
			t.Fatal(err)
		}
	}); n > 8 {
		t.Errorf("%v allocations for 1,000 endpoints, want at most 8", n)
	}
}

func BenchmarkEndpoints(b *testing.B) {
	for _, n := range []int{10, 1000} {
		v := fleet(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Endpoints(v); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("library-%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := encode(mesh.TypeEndpoints, v.Cluster, oracleEndpoints(v)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
