package xds

import (
	"fmt"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"corbel.dev/corbel/mesh"
)

// TestTokenIsJudgedFirst: of a stream's first message only the node is looked at before its token is judged, and what
// comes meanwhile is bounded.
func TestTokenIsJudgedFirst(t *testing.T) {
	plane := newTable()
	plane.gate = make(chan struct{})
	_, address := serve(t, Config{Plane: plane})
	conn := dial(t, address)
	var names []string
	for n := range 9000 { // more than a stream may name
		names = append(names, fmt.Sprint("x", n))
	}
	asks := func(token string) *delta {
		d := openDelta(t, conn, "web-1", "x-consul-token", token)
		d.subscribe(mesh.TypeEndpoints, names...)
		return d
	}
	weak, unknown, good := asks("weak"), asks("unknown"), asks("good")
	early := openDelta(t, conn, "web-1", "x-consul-token", "good")
	for range 10 {
		if early.stream.Send(&discovery.DeltaDiscoveryRequest{Node: node("web-1", 40), TypeUrl: mesh.TypeEndpoints.URL(),
			ResourceNamesSubscribe: names}) != nil {
			break // it was ended
		}
	}
	if got := early.code(); got != codes.ResourceExhausted {
		t.Errorf("a stream that says much before it is judged ended with %v", got)
	}
	close(plane.gate)
	for want, d := range map[codes.Code]*delta{codes.PermissionDenied: weak, codes.Unauthenticated: unknown,
		codes.InvalidArgument: good} {
		if got := d.code(); got != want {
			t.Errorf("ended with %v, want %v", got, want)
		}
	}
}
