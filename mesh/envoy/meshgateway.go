package envoy

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"corbel.dev/corbel/mesh"
)

// MeshGatewayListener passes connections on by the names that TLS asks for, without a look into them: caller and
// callee verify each other. Who asks for a name that is not served is nobody's.
func MeshGatewayListener(v *Gateway) (*mesh.Resource, error) {
	var p packer
	m, err := p.byName(v)
	if err != nil {
		return nil, err
	}
	for i := range v.Stood {
		s := &v.Stood[i]
		m.FilterChains = append(m.FilterChains, &listenerv3.FilterChain{
			FilterChainMatch: &listenerv3.FilterChainMatch{ServerNames: s.Names, TransportProtocol: "tls"},
			Filters:          []*listenerv3.Filter{p.tcpProxy(s.Stat, s.Cluster, v.Logs, 0)}})
	}
	m.FilterChains = append(m.FilterChains, p.nobody(v))
	return p.encode(mesh.TypeListener, m.Name, m)
}

// PassageCluster is where a mesh gateway passes connections on to, as they are. Its endpoints have its name, unless
// byName lists them since one of them has a name in place of an address.
func PassageCluster(name string, connect time.Duration, byName []mesh.Endpoint) (*mesh.Resource, error) {
	var p packer
	m := &clusterv3.Cluster{Name: name, AltStatName: name,
		ConnectTimeout: duration(connect), ClusterDiscoveryType: discovery(clusterv3.Cluster_EDS),
		EdsClusterConfig: eds(&Upstream{}), CommonLbConfig: noPanic(), OutlierDetection: &clusterv3.OutlierDetection{}}
	if len(byName) > 0 {
		if err := byDNS(m, clusterv3.Cluster_STRICT_DNS, byName); err != nil {
			return nil, err
		}
	}
	return p.encode(mesh.TypeCluster, name, m)
}

// UnreachableCluster has no instances: it stands for a service of a peer that cannot be verified now.
func UnreachableCluster(name string, connect time.Duration) (*mesh.Resource, error) {
	var p packer
	return p.encode(mesh.TypeCluster, name, &clusterv3.Cluster{Name: name, AltStatName: name,
		ConnectTimeout: duration(connect), ClusterDiscoveryType: discovery(clusterv3.Cluster_STATIC),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name}})
}
