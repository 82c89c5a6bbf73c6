package envoy

import (
	"errors"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/encoding/protowire"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// Endpoints is the resource that says where a service's instances are.
//
// An endpoint that Envoy could not use is left out and named in err; the
// resource holds the others, so that one bad registration does not keep the
// service from its clients. The resource is nil only when it has no name.
//
// It is written by hand, since it is the resource that changes with every
// health check and holds thousands of endpoints: the message's own encoder takes
// many times as long. A test holds the two against each other.
func Endpoints(v *mesh.Endpoints) (r *mesh.Resource, err error) {
	if v.Cluster == "" {
		return nil, errkind.New(errkind.Invalid, "Endpoints.Cluster is required")
	}
	var errs []error
	b := make([]byte, 0, 16+len(v.Cluster)+48*len(v.List))
	b = appendText(b, assignmentCluster, v.Cluster)
	size := 0
	for i := range v.List {
		if err := checkEndpoint(&v.List[i]); err != nil {
			errs = append(errs, fmt.Errorf("endpoints %q: List[%d]: %w", v.Cluster, i, err))
			continue
		}
		size += sizeBytes(sizeEndpoint(&v.List[i]))
	}
	if size > 0 {
		b = appendHead(b, assignmentEndpoints, size)
		for i := range v.List {
			if len(errs) == 0 || checkEndpoint(&v.List[i]) == nil {
				b = appendEndpoint(b, &v.List[i])
			}
		}
	}
	return seal(mesh.TypeEndpoints, v.Cluster, b), errors.Join(errs...)
}

func checkEndpoint(e *mesh.Endpoint) error {
	if _, err := netip.ParseAddr(e.Address); err != nil {
		return errkind.Errorf(errkind.Invalid, "Address %q is not an IP address: proxies resolve no names here", e.Address)
	}
	if e.Port == 0 {
		return errkind.Errorf(errkind.Invalid, "Port of %s is required", e.Address)
	}
	return nil
}

// Fields of envoy.config.endpoint.v3 and of the addresses in envoy.config.core.v3.
const (
	assignmentCluster   = 1 // ClusterLoadAssignment
	assignmentEndpoints = 2
	localityEndpoints   = 2 // LocalityLbEndpoints
	lbEndpoint          = 1 // LbEndpoint
	lbHealth            = 2
	lbWeight            = 4
	endpointAddress     = 1 // Endpoint
	addressSocket       = 1 // Address
	socketAddress       = 2 // SocketAddress
	socketPort          = 3
	wrappedValue        = 1 // UInt32Value
)

// healthStatus are the values of envoy.config.core.v3.HealthStatus.
var healthStatus = [...]uint64{mesh.Healthy: 1, mesh.Unhealthy: 2, mesh.Draining: 3}

func weightOf(e *mesh.Endpoint) uint64 {
	return uint64(min(max(e.Weight, mesh.MinWeight), mesh.MaxWeight))
}

func sizeSocket(e *mesh.Endpoint) int {
	return sizeBytes(len(e.Address)) + 1 + protowire.SizeVarint(uint64(e.Port))
}

func sizeEndpoint(e *mesh.Endpoint) int {
	return sizeBytes(sizeBytes(sizeBytes(sizeSocket(e)))) + 2 + sizeBytes(1+protowire.SizeVarint(weightOf(e)))
}

func appendEndpoint(b []byte, e *mesh.Endpoint) []byte {
	socket := sizeSocket(e)
	b = appendHead(b, localityEndpoints, sizeEndpoint(e))
	b = appendHead(b, lbEndpoint, sizeBytes(sizeBytes(socket)))
	b = appendHead(b, endpointAddress, sizeBytes(socket))
	b = appendHead(b, addressSocket, socket)
	b = appendText(b, socketAddress, e.Address)
	b = appendNumber(b, socketPort, uint64(e.Port))
	b = appendNumber(b, lbHealth, healthStatus[e.Health])
	weight := weightOf(e)
	b = appendHead(b, lbWeight, 1+protowire.SizeVarint(weight))
	return appendNumber(b, wrappedValue, weight)
}

// sizeBytes is the size of a field with a number below 16 that holds n bytes.
func sizeBytes(n int) int { return 1 + protowire.SizeBytes(n) }

func appendHead(b []byte, field protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(size))
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	return append(appendHead(b, field, len(s)), s...)
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}
