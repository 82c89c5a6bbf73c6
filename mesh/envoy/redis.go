package envoy

import (
	"cmp"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	redisproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/redis_proxy/v3"
	redishealthv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_checkers/redis/v3"
)

// Redis is the protocol of caches: the caller's proxy understands the commands, and divides the keys over the instances
// by hashing, each for itself.
const Redis = "redis"

// How a host of the protocol is judged. A second is short beside the two seconds for which a host that drains waits
// after the last command, and one answer is enough: the host says so itself.
const (
	redisCheckEvery   = time.Second
	redisCheckTimeout = time.Second
	redisOpTimeout    = time.Second
	// MaintenanceKey exists on a host that drains.
	MaintenanceKey = "MAINTENANCE_MODE"
)

// redisProxy sends commands to the instances of a cluster, by their keys; braces in a key choose what of it counts. It
// mirrors nothing. What takes longer than the timeout of requests is an error to the caller.
func (p *packer) redisProxy(v *Outbound) *listenerv3.Filter {
	return p.filter("envoy.filters.network.redis_proxy", &redisproxyv3.RedisProxy{StatPrefix: v.Stat,
		Settings: &redisproxyv3.RedisProxy_ConnPoolSettings{OpTimeout: duration(cmp.Or(v.Timeout, redisOpTimeout)),
			EnableHashtagging: true},
		PrefixRoutes: &redisproxyv3.RedisProxy_PrefixRoutes{
			CatchAllRoute: &redisproxyv3.RedisProxy_PrefixRoutes_Route{Cluster: v.Cluster}}})
}

// redisHosts divides keys by Maglev, so that few of them move when a host comes or goes, and takes out the host that
// has the maintenance key: what was sent to it is still answered, for its connections end with their last answer.
func (p *packer) redisHosts(m *clusterv3.Cluster, v *Upstream) {
	if p := m.LbPolicy; p != clusterv3.Cluster_RING_HASH {
		m.LbPolicy, m.LbConfig = clusterv3.Cluster_MAGLEV, nil // the others know no key
	}
	m.HealthChecks = []*corev3.HealthCheck{{Timeout: duration(redisCheckTimeout), Interval: duration(redisCheckEvery),
		NoTrafficInterval: duration(redisCheckEvery), UnhealthyThreshold: u32(1), HealthyThreshold: u32(1),
		HealthChecker: &corev3.HealthCheck_CustomHealthCheck_{CustomHealthCheck: &corev3.HealthCheck_CustomHealthCheck{
			Name: "envoy.health_checkers.redis",
			ConfigType: &corev3.HealthCheck_CustomHealthCheck_TypedConfig{
				TypedConfig: p.any(&redishealthv3.Redis{Key: cmp.Or(v.MaintenanceKey, MaintenanceKey)})}}}}}
}
