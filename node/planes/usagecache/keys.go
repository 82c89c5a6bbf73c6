package usagecacheplane

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/node/config"
)

// Keys are the cache's keys of the configuration. They are a part of the section of the usage plane.
type Keys struct {
	Cache CacheKeys `key:"cache"`
	Drain DrainKeys `key:"drain"`
}

// CacheKeys are the cache of this host, and the caches of others that counters use instead.
type CacheKeys struct {
	Port     int           `key:"port" def:"-1" doc:"Redis protocol for the remote cache of the usage plane; usually 6379, -1 is off"`
	Address  string        `key:"address" doc:"overrides client_addr for that port"`
	Replicas int           `key:"replicas" def:"2" doc:"hosts of a cluster that have each key: its owner, and those with copies"`
	MaxBytes int           `key:"max_bytes" def:"268435456" doc:"memory of this host's cache in bytes; what was used least recently goes first"`
	Cluster  bool          `key:"cluster" doc:"divide the keys over the cache hosts of the catalog and answer MOVED, for clients of a Redis cluster; off: each host has what comes to it, as behind a proxy that hashes"`
	Alone    time.Duration `key:"alone_after" def:"1s" doc:"how long a host of a cluster waits for a copy before it answers writes without it"`
	Handover int           `key:"handover_bytes" def:"33554432" doc:"what a host of a cluster gives to new copies and next owners of its keys, in bytes a second; 0 gives the latter nothing"`
	Password string        `key:"password" opt:"secret" doc:"password of the user default, beside Corbel's tokens with service:write on usage-cache"`
	Redis    []string      `key:"redis" opt:"secret" doc:"URLs of a Redis or Valkey, or of hosts of a cluster of them, for copies of what was counted (usage.snapshots.cache)"`
}

// DrainKeys are how a host of the cache goes out of use.
type DrainKeys struct {
	MaintenanceKey string        `key:"maintenance_key" def:"MAINTENANCE_MODE" doc:"key that exists while this host drains: Envoy's Redis health check takes the host out by it"`
	Ceiling        time.Duration `key:"ceiling" def:"120s" opt:"reload" doc:"longest wait until no client needs this host any more"`
}

// UsageCache is the keys, for the plane that finds them in a section.
func (k *Keys) UsageCache() *Keys { return k }

// keysOf are the keys in a configuration, or nil where the process has no usage plane.
func keysOf(cfg *config.Config) *Keys {
	if s, ok := cfg.Section("usage").(interface{ UsageCache() *Keys }); ok {
		return s.UsageCache()
	}
	return nil
}

// check names what is wrong with the keys.
func check(cfg *config.Config) error {
	k := keysOf(cfg)
	if k == nil {
		return nil
	}
	var wrong []error
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	c := &k.Cache
	if c.Port < -1 || c.Port > 65535 {
		fail("usage.cache.port: %d is no port; -1 is off", c.Port)
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		fail("usage.cache.replicas: %d is not 1 to 5", c.Replicas)
	}
	if c.MaxBytes < 1<<20 {
		fail("usage.cache.max_bytes: %d is less than 1048576", c.MaxBytes)
	}
	if c.Alone < 100*time.Millisecond || c.Alone > time.Minute {
		fail("usage.cache.alone_after: %s is not within 100ms and 1m", c.Alone)
	}
	if c.Handover < 0 || c.Handover > 0 && c.Handover < 1<<20 {
		fail("usage.cache.handover_bytes: %d is not 0, or at least 1048576", c.Handover)
	}
	if c.Cluster && !cfg.Server && !cfg.Dev {
		fail("usage.cache.cluster: only servers know the catalog from which the cluster is made; leave it out on agents")
	}
	if m := k.Drain.MaintenanceKey; m == "" || len(m) > 512 {
		fail("usage.drain.maintenance_key: has %d bytes, not 1 to 512", len(m))
	}
	if d := k.Drain.Ceiling; d < 0 || d > time.Hour {
		fail("usage.drain.ceiling: %s is not within 0 and 1h", d)
	}
	for i, text := range c.Redis {
		if err := checkURL(text); err != nil {
			fail("usage.cache.redis[%d]: %w", i, err)
		}
	}
	for _, addr := range addresses(cfg, k) {
		if ap, err := netip.ParseAddrPort(addr); err == nil && !ap.Addr().IsLoopback() {
			switch {
			case cfg.Dev:
				fail("usage.cache.address: dev serves its own host only, not %s; use `corbel server` for others", addr)
			case cfg.Cautious() && !cfg.TLS.Disabled && !cfg.TLS.HTTPS.Enabled():
				fail("usage.cache.port: opens %s to the network without TLS: set tls.https (or tls.defaults) cert_file and "+
					"key_file, keep usage.cache.address at 127.0.0.1 behind a proxy of the mesh, or accept plain text with "+
					"-allow-plaintext", addr)
			}
		}
	}
	return errors.Join(wrong...)
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is no URL") // the error would show the password in it
	case u.Scheme != "redis" && u.Scheme != "rediss":
		return fmt.Errorf("begins with %q, not with redis:// or rediss://", u.Scheme+"://")
	case u.Hostname() == "":
		return errors.New("names no host")
	}
	return nil
}

// addresses are those of the port; none where it is off.
func addresses(cfg *config.Config, k *Keys) (list []string) {
	if k.Cache.Port < 0 {
		return nil
	}
	for _, host := range strings.Fields(cmp.Or(k.Cache.Address, cfg.Addresses.Client)) {
		list = append(list, net.JoinHostPort(host, fmt.Sprint(k.Cache.Port)))
	}
	return list
}
