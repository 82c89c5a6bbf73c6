package envoy

import (
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	upstreamhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// Names of clusters that belong to the proxy itself.
const (
	LocalApp            = "local_app"
	OriginalDestination = "original-destination"
)

// DefaultConnectTimeout is how long a connection may take unless something else is set.
const DefaultConnectTimeout = 5 * time.Second

// isHTTP2 tells whether a protocol needs HTTP/2 on every hop.
func isHTTP2(protocol string) bool { return protocol == "http2" || protocol == "grpc" }

// Local is a port of the proxy's own application.
type Local struct {
	Name           string // LocalApp, or an exposed path's
	Address        string
	Port           int
	Socket         string // path of a unix socket, in place of address and port
	Protocol       string
	ConnectTimeout time.Duration
	MaxConnections int    // 0: no bound
	JSON           string // a whole cluster, in place of all the above
}

// LocalCluster is the cluster of the proxy's own application.
func LocalCluster(v *Local) (*mesh.Resource, error) {
	if v.JSON != "" {
		var m clusterv3.Cluster
		if err := fromJSON("Proxy.Config.envoy_local_cluster_json", v.JSON, &m); err != nil {
			return nil, err
		}
		m.Name = v.Name
		return encode(mesh.TypeCluster, m.Name, &m)
	}
	var p packer
	address, err := addressOf("Proxy.LocalServiceAddress", v.Address, "Proxy.LocalServicePort", v.Port, v.Socket, 0)
	if err != nil {
		return nil, err
	}
	m := &clusterv3.Cluster{Name: v.Name, ConnectTimeout: duration(v.ConnectTimeout),
		ClusterDiscoveryType: discovery(clusterv3.Cluster_STATIC),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: v.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{
				{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}}},
			}}}}}
	if v.Socket == "" && !isIP(v.Address) {
		m.ClusterDiscoveryType = discovery(clusterv3.Cluster_STRICT_DNS)
	}
	if isHTTP2(v.Protocol) {
		m.TypedExtensionProtocolOptions = p.http2()
	}
	if v.MaxConnections > 0 {
		m.CircuitBreakers = &clusterv3.CircuitBreakers{
			Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxConnections: u32(uint32(v.MaxConnections))}},
		}
	}
	return p.encode(mesh.TypeCluster, v.Name, m)
}

func discovery(t clusterv3.Cluster_DiscoveryType) *clusterv3.Cluster_Type {
	return &clusterv3.Cluster_Type{Type: t}
}

func isIP(s string) bool { _, err := netip.ParseAddr(s); return err == nil }

// http2 are the options of a cluster that is spoken to in HTTP/2.
func (p *packer) http2() map[string]*anypb.Any {
	explicit := &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}}}
	return map[string]*anypb.Any{
		"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": p.any(&upstreamhttpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_{
				ExplicitHttpConfig: explicit}})}
}

// Upstream is a cluster of a service's instances.
type Upstream struct {
	Name           string          // of the cluster
	Endpoints      string          // of the resource that lists the instances; "" for Name
	SNI            string          // what the upstream's proxy is asked for
	Identities     []string        // the SPIFFE ids that it may have
	Roots          string          // the secret that it is verified with; "" for that of the mesh
	Named          []mesh.Endpoint // all instances, where one of them has a name in place of an address; else none
	Protocol       string
	ConnectTimeout time.Duration
	Limits         *entry.UpstreamLimits
	Passive        *entry.PassiveHealthCheck
	Balancer       *entry.LoadBalancer
	TLS            *entry.TLSDirection
	MaintenanceKey string // of the protocol redis: a host that has it takes no new commands; "" for the usual one
	JSON           string // a whole cluster, in place of all but its name and TLS
}

// UpstreamCluster is the cluster of an upstream's instances.
func UpstreamCluster(v *Upstream) (*mesh.Resource, error) {
	var p packer
	if v.JSON != "" {
		var m clusterv3.Cluster
		if err := fromJSON("Upstream.Config.envoy_cluster_json", v.JSON, &m); err != nil {
			return nil, err
		}
		m.Name, m.TransportSocket = v.Name, p.upstreamTLS(v)
		if m.GetType() == clusterv3.Cluster_EDS {
			m.EdsClusterConfig = eds(v)
		}
		return p.encode(mesh.TypeCluster, v.Name, &m)
	}
	m := &clusterv3.Cluster{Name: v.Name, AltStatName: v.Name, ConnectTimeout: duration(v.ConnectTimeout),
		ClusterDiscoveryType: discovery(clusterv3.Cluster_EDS),
		EdsClusterConfig:     eds(v), CommonLbConfig: noPanic(), OutlierDetection: outliers(v.Passive),
		CircuitBreakers: breakers(v.Limits), TransportSocket: p.upstreamTLS(v)}
	if isHTTP2(v.Protocol) {
		m.TypedExtensionProtocolOptions = p.http2()
	}
	if len(v.Named) > 0 {
		if err := byDNS(m, clusterv3.Cluster_STRICT_DNS, v.Named); err != nil {
			return nil, err
		}
	}
	balance(m, v.Balancer)
	if v.Protocol == Redis {
		p.redisHosts(m, v)
	}
	return p.encode(mesh.TypeCluster, v.Name, m)
}

func eds(v *Upstream) *clusterv3.Cluster_EdsClusterConfig {
	c := &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS()}
	if v.Endpoints != v.Name {
		c.ServiceName = v.Endpoints
	}
	return c
}

// noPanic: when no instance is healthy none is asked, instead of all.
func noPanic() *clusterv3.Cluster_CommonLbConfig {
	return &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: percent(0)}
}

func outliers(v *entry.PassiveHealthCheck) *clusterv3.OutlierDetection {
	m := &clusterv3.OutlierDetection{}
	if v == nil {
		return m
	}
	if v.Interval > 0 {
		m.Interval = duration(time.Duration(v.Interval))
	}
	if v.MaxFailures > 0 {
		m.Consecutive_5Xx = u32(v.MaxFailures)
	}
	m.EnforcingConsecutive_5Xx, m.MaxEjectionPercent = optional(v.EnforcingConsecutive5xx), optional(v.MaxEjectionPercent)
	if v.BaseEjectionTime != nil {
		m.BaseEjectionTime = duration(time.Duration(*v.BaseEjectionTime))
	}
	return m
}

func optional(v *uint32) *wrapperspb.UInt32Value {
	if v == nil {
		return nil
	}
	return u32(*v)
}

func breakers(v *entry.UpstreamLimits) *clusterv3.CircuitBreakers {
	m := &clusterv3.CircuitBreakers{}
	if v == nil || v.MaxConnections == nil && v.MaxPendingRequests == nil && v.MaxConcurrentRequests == nil {
		return m
	}
	bound := func(n *int) *wrapperspb.UInt32Value {
		if n == nil || *n < 0 {
			return nil
		}
		return u32(uint32(*n))
	}
	m.Thresholds = []*clusterv3.CircuitBreakers_Thresholds{{MaxConnections: bound(v.MaxConnections),
		MaxPendingRequests: bound(v.MaxPendingRequests), MaxRequests: bound(v.MaxConcurrentRequests)}}
	return m
}

func balance(m *clusterv3.Cluster, v *entry.LoadBalancer) {
	if v == nil {
		return
	}
	switch v.Policy {
	case "random":
		m.LbPolicy = clusterv3.Cluster_RANDOM
	case "round_robin":
		m.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
	case "least_request":
		m.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		if c := v.LeastRequestConfig; c != nil && c.ChoiceCount > 0 {
			m.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{
				LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{ChoiceCount: u32(c.ChoiceCount)},
			}
		}
	case "ring_hash":
		m.LbPolicy = clusterv3.Cluster_RING_HASH
		if c := v.RingHashConfig; c != nil {
			ring := &clusterv3.Cluster_RingHashLbConfig{}
			if c.MinimumRingSize > 0 {
				ring.MinimumRingSize = wrapperspb.UInt64(c.MinimumRingSize)
			}
			if c.MaximumRingSize > 0 {
				ring.MaximumRingSize = wrapperspb.UInt64(c.MaximumRingSize)
			}
			m.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: ring}
		}
	case "maglev":
		m.LbPolicy = clusterv3.Cluster_MAGLEV
	}
}

// FailoverName is the name of the cluster that is asked n-th for another.
func FailoverName(n int, cluster string) string { return failoverPrefix(n) + cluster }

// FailoverCluster asks clusters in order: the next when no instance of the former is healthy.
func FailoverCluster(name string, order []string, connect time.Duration) (*mesh.Resource, error) {
	var p packer
	if len(order) == 0 {
		return nil, errkind.Errorf(errkind.Invalid, "cluster %q: no target to go on at", name)
	}
	return p.encode(mesh.TypeCluster, name, &clusterv3.Cluster{Name: name, AltStatName: name,
		ConnectTimeout: duration(connect),
		LbPolicy:       clusterv3.Cluster_CLUSTER_PROVIDED,
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: p.any(&aggregatev3.ClusterConfig{Clusters: order})}}})
}

// PassthroughCluster sends redirected connections on to where they went.
func PassthroughCluster() (*mesh.Resource, error) {
	return encode(mesh.TypeCluster, OriginalDestination, &clusterv3.Cluster{Name: OriginalDestination,
		ConnectTimeout: duration(DefaultConnectTimeout),
		LbPolicy:       clusterv3.Cluster_CLUSTER_PROVIDED, ClusterDiscoveryType: discovery(clusterv3.Cluster_ORIGINAL_DST)})
}
