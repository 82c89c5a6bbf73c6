package session

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"corbel.dev/corbel/mesh"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func sampleNode(t testing.TB) *core.Node {
	meta, err := structpb.NewStruct(map[string]any{"node_name": "host-1", "namespace": "default", "partition": "default",
		"other": 7.5, "list": []any{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	return &core.Node{
		Id: "web-sidecar-proxy", Cluster: "web", Metadata: meta, UserAgentName: "envoy",
		UserAgentVersionType: &core.Node_UserAgentBuildVersion{UserAgentBuildVersion: &core.BuildVersion{
			Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40, Patch: 2},
		}},
	}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecodeNode(t *testing.T) {
	want := Node{ID: "web-sidecar-proxy", Cluster: "web", Name: "host-1", Namespace: "default", Partition: "default",
		Agent: "envoy", Major: 1, Minor: 40, Patch: 2, HasVersion: true}
	for _, world := range []bool{false, true} {
		var b []byte
		if world {
			b = marshal(t, &discovery.DiscoveryRequest{Node: sampleNode(t), TypeUrl: mesh.TypeCluster.URL()})
		} else {
			b = marshal(t, &discovery.DeltaDiscoveryRequest{Node: sampleNode(t), TypeUrl: mesh.TypeCluster.URL()})
		}
		var r Request
		if n, err := DecodeNode(b, world); err != nil || *n != want {
			t.Errorf("world %t: %+v, %v", world, n, err)
		}
		if err := r.Decode(b, world); err != nil || !r.Known || r.Type != mesh.TypeCluster {
			t.Errorf("world %t: %+v, %v", world, r, err)
		}
	}
}

func FuzzDecodeDelta(f *testing.F) {
	f.Add(marshal(f, &discovery.DeltaDiscoveryRequest{
		Node: sampleNode(f), TypeUrl: mesh.TypeEndpoints.URL(), ResourceNamesSubscribe: []string{"a", "b"},
		ResourceNamesUnsubscribe: []string{"c"},
		InitialResourceVersions:  map[string]string{"a": "1"}, ResponseNonce: "1f",
		ErrorDetail: &status.Status{Code: 3, Message: strings.Repeat("né", 400)},
	}))
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var got Request
		_, nodeErr := DecodeNode(b, false)
		err := got.Decode(b, false)
		var want discovery.DeltaDiscoveryRequest
		if proto.Unmarshal(b, &want) != nil {
			return // ours need not look into every field
		}
		if nodeErr != nil {
			t.Fatalf("refused a node that is well formed: %v", nodeErr)
		}
		if err != nil {
			if len(want.ResourceNamesSubscribe)+len(want.ResourceNamesUnsubscribe)+len(want.InitialResourceVersions) > 0 {
				return // a limit
			}
			t.Fatalf("refused what is well formed: %v", err)
		}
		if fmt.Sprint(want.ResourceNamesSubscribe) != fmt.Sprint(got.Subscribe) ||
			fmt.Sprint(want.ResourceNamesUnsubscribe) != fmt.Sprint(got.Unsubscribe) {
			t.Fatalf("names: %q %q, want %q %q", got.Subscribe, got.Unsubscribe, want.ResourceNamesSubscribe,
				want.ResourceNamesUnsubscribe)
		}
		initial := map[string]string{}
		for _, h := range got.Initial {
			initial[h.Name] = h.Version
		}
		if fmt.Sprint(initial) != fmt.Sprint(want.InitialResourceVersions) {
			t.Fatalf("initial versions %v, want %v", initial, want.InitialResourceVersions)
		}
		if got.Failed != (want.ErrorDetail != nil) || len(got.Error) > maxErrorText+8 || !utf8.ValidString(got.Error) {
			t.Fatalf("failed %t %q, want %v", got.Failed, got.Error, want.ErrorDetail)
		}
		if got.Known && got.Type.URL() != want.TypeUrl {
			t.Fatalf("type %v, want %s", got.Type, want.TypeUrl)
		}
	})
}

func FuzzDecodeWorld(f *testing.F) {
	f.Add(marshal(f, &discovery.DiscoveryRequest{
		Node: sampleNode(f), TypeUrl: mesh.TypeEndpoints.URL(), ResourceNames: []string{"a", "b"}, VersionInfo: "7",
		ResponseNonce: "1f",
		ErrorDetail:   &status.Status{Code: 3, Message: "no"},
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got Request
		node, nodeErr := DecodeNode(b, true)
		err := got.Decode(b, true)
		var want discovery.DiscoveryRequest
		if proto.Unmarshal(b, &want) != nil {
			return // ours need not look into every field
		}
		if nodeErr != nil {
			t.Fatalf("refused a node that is well formed: %v", nodeErr)
		}
		if err != nil {
			if len(want.ResourceNames) > 0 {
				return // a limit
			}
			t.Fatalf("refused what is well formed: %v", err)
		}
		if fmt.Sprint(want.ResourceNames) != fmt.Sprint(got.Subscribe) || got.Failed != (want.ErrorDetail != nil) ||
			got.Nonce != parseNonce([]byte(want.ResponseNonce)) {
			t.Fatalf("%+v, want %v", got, &want)
		}
		if want.Node != nil && len(want.Node.Id) <= maxNameBytes && node.ID != want.Node.Id {
			t.Fatalf("node %q, want %q", node.ID, want.Node.Id)
		}
	})
}

func TestEncodeIsReadByTheGeneratedTypes(t *testing.T) {
	r := Response{Type: mesh.TypeCluster, Nonce: 0xab, Removed: []string{"gone"}, Resources: []*mesh.Resource{
		made(mesh.TypeCluster, "a", "1"), made(mesh.TypeCluster, "b", "2"),
	}}
	var to flat
	r.Encode(false, &to)
	var delta discovery.DeltaDiscoveryResponse
	if err := proto.Unmarshal(to.b, &delta); err != nil {
		t.Fatal(err)
	}
	if delta.Nonce != "ab" || delta.TypeUrl != mesh.TypeCluster.URL() || len(delta.Resources) != 2 ||
		delta.Resources[1].Name != "b" ||
		delta.Resources[1].Version != "2" || delta.Resources[1].Resource.TypeUrl != mesh.TypeCluster.URL() ||
		fmt.Sprint(delta.RemovedResources) != "[gone]" {
		t.Errorf("delta: %v", &delta)
	}
	to.b, r.Removed = nil, nil
	r.Encode(true, &to)
	var world discovery.DiscoveryResponse
	if err := proto.Unmarshal(to.b, &world); err != nil {
		t.Fatal(err)
	}
	if world.Nonce != "ab" || world.TypeUrl != mesh.TypeCluster.URL() || len(world.Resources) != 2 ||
		world.VersionInfo == "" {
		t.Errorf("world: %v", &world)
	}
	if got := parseNonce([]byte(world.Nonce)); got != r.Nonce {
		t.Errorf("nonce %x, want %x", got, r.Nonce)
	}
}

func TestNonceOfOthers(t *testing.T) {
	for text, want := range map[string]uint32{"": 0, "0": unknownNonce, "ABC": unknownNonce, "123456789": unknownNonce,
		"1": 1, "deadbeef": 0xdeadbeef} {
		if got := parseNonce([]byte(text)); got != want {
			t.Errorf("%q: %x, want %x", text, got, want)
		}
	}
}

// flat is a Sink that makes one buffer of everything.
type flat struct{ b []byte }

func (f *flat) Private() []byte { return nil }
func (f *flat) Commit(b []byte) { f.b = append(f.b, b...) }
func (f *flat) Shared(b []byte) { f.b = append(f.b, b...) }
