// Package usagecacheplane is the remote cache of the usage plane on this host: the port that speaks the Redis protocol,
// its place in the catalog, and its drain.
//
// What always holds:
//   - The port is off until the configuration names it.
//   - A host that drains says so first (the maintenance key, the catalog, a push), serves every connection on, and ends
//     only when nobody needs it any more, or at the ceiling. See Drain.
//   - Where the keys are divided over several hosts, the catalog says which: a service usage-cache that fails its check
//     owns nothing. To register it takes service:write, so that nobody else is sent clients and their passwords. Other
//     hosts have copies of the keys then: usage/copies.
//
// The plane fails alone: the cache is memory, and all that is in it can be made anew.
package usagecacheplane

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"corbel.dev/corbel/api/respapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/cache"
	"corbel.dev/corbel/usage/copies"
)

// Service is the name of the cache in the catalog, and the ID of this host's.
const Service = "usage-cache"

// Plane is the cache of this host.
type Plane struct {
	plane.Idle
	d         *plane.Doors
	cache     *cache.Cache
	server    *respapi.Server
	hosts     *hosts // nil where the keys are not divided, as are copies and watch
	copies    *copies.Host
	watch     *watch
	drain     *drain
	listeners []net.Listener
	meters    *meters
	keys      *Keys
}

// Kind is the cache as a process lists it.
func Kind() plane.Kind { return plane.Kind{Name: "usage cache", Check: check, Open: open} }

func open(d *plane.Doors) (plane.Plane, error) {
	keys := keysOf(d.Cfg)
	if keys == nil || keys.Cache.Port < 0 {
		return nil, nil
	}
	p := &Plane{d: d}
	made := cache.Config{MaxBytes: int64(keys.Cache.MaxBytes), Key: sketchKey(d.Cfg), Clock: d.Clock}
	if keys.Cache.Cluster {
		p.copies = p.newCopies(keys)
		made.Follower = p.copies
	}
	p.cache = cache.New(made)
	if err := p.listen(keys); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	cfg := respapi.Config{Cache: p.cache, MaintenanceKey: keys.Drain.MaintenanceKey, Memory: d.Ports.Bytes,
		Conns: d.Ports.Cache, Node: nodeID(d.Cfg.Node.Name, Service), Version: version.Number, Clock: d.Clock, Log: d.Log}
	if d.Cfg.ACL.Enabled || keys.Cache.Password != "" { // otherwise everybody comes in
		judge := &judge{d, keys.Cache.Password}
		cfg.Authenticate, cfg.Still = judge.comesIn, judge.still
	}
	if keys.Cache.Cluster {
		p.copies.Use(p.cache)
		cfg.Cluster, cfg.Copies, cfg.Announce = p.hosts.slots, p.copies, p.announced()
		for method, h := range p.copies.Methods() {
			d.Handle(wire.Servers, method, h)
		}
	}
	p.server = respapi.New(cfg)
	p.keys = keys
	p.drain = newDrain(p, keys.Drain)
	p.meters = newMeters(d.Metrics, p.cache, p.drain)
	read := plane.Right{Resource: acl.Operator, Level: acl.Read}
	write := plane.Right{Resource: acl.Operator, Level: acl.Write}
	d.Route("GET /v1/usage/drain", read, http.HandlerFunc(p.drain.serveStatus))
	d.Route("PUT /v1/usage/drain", write, http.HandlerFunc(p.drain.serveStart))
	d.Route("DELETE /v1/usage/drain", write, http.HandlerFunc(p.drain.serveUndo))
	d.Debug(p.debug)
	return p, nil
}

// sketchKey is the same on all hosts of a cluster, so that their sketches can be merged.
func sketchKey(cfg *config.Config) usage.Key {
	sum := sha256.Sum256(append([]byte("usage cache\x00"+cfg.Node.Datacenter+"\x00"), cfg.Gossip.EncryptKey...))
	return usage.NewKey([16]byte(sum[:16]))
}

// nodeID is the name of a host in a cluster, as clients expect it.
func nodeID(node, service string) string {
	sum := sha256.Sum256([]byte(node + "/" + service))
	return hex.EncodeToString(sum[:20])
}

func (p *Plane) listen(keys *Keys) error {
	var secure *tls.Config
	if cfg := p.d.Cfg; cfg.TLS.HTTPS.Enabled() && !cfg.TLS.Disabled {
		var err error
		if secure, err = p.d.PortTLS(cfg, "https", &cfg.TLS.HTTPS, "redis"); err != nil {
			return err
		}
		secure.NextProtos = nil // clients of Redis offer no protocol
	}
	for _, addr := range addresses(p.d.Cfg, keys) {
		l, err := net.Listen("tcp", addr)
		if neterr.InUse(err) {
			return fmt.Errorf("usage.cache.port: %s is in use, by a Redis server perhaps: choose another port, or use that "+
				"server with usage.cache.redis: %w", addr, err)
		}
		if err != nil {
			return fmt.Errorf("usage.cache.port: %w", err)
		}
		if secure != nil {
			l = tls.NewListener(l, secure)
		}
		p.listeners = append(p.listeners, l)
	}
	return nil
}

// Addr is where the cache answers.
func (p *Plane) Addr() net.Addr { return p.listeners[0].Addr() }

// announced is the address that other hosts and clients of a cluster are told.
func (p *Plane) announced() string {
	host, port, err := net.SplitHostPort(p.Addr().String())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = p.d.Cfg.Advertise.Addr
	}
	return net.JoinHostPort(host, port)
}

// Run implements plane.Plane.
func (p *Plane) Run(ctx context.Context) error {
	var parts life.Group
	for i, l := range p.listeners {
		parts.Add(fmt.Sprint("cache port ", i), func(ctx context.Context) error { return p.server.Serve(ctx, l) })
	}
	def, err := p.entry()
	if err != nil {
		return err
	}
	if p.copies != nil {
		p.hosts.entry = def
		parts.Add("cache copies", p.copies.Run)
		parts.Add("cache hosts", p.watch.run)
	} else {
		parts.Add("cache registration", func(ctx context.Context) error { return p.register(ctx, def) })
	}
	parts.Add("cache drain", p.drain.run)
	parts.Add("cache meters", p.meters.run)
	p.d.Log.Info("the usage plane's cache answers", "address", p.Addr().String(), "max_bytes", p.cache.MaxBytes())
	return parts.Run(ctx)
}

// debug is the plane's part of the debug archive.
func (p *Plane) debug() any {
	out := map[string]any{"cache": p.cache.Stats(), "drain": p.drain.status()}
	if p.copies != nil {
		out["copies"] = p.copies.Status()
	}
	return out
}

// entry is this host's cache as the catalog has it.
func (p *Plane) entry() (*definition.Service, error) {
	host, text, err := net.SplitHostPort(p.announced())
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	return &definition.Service{ID: Service, Name: Service, Tags: []string{"redis"},
		Meta:     map[string]string{"external-source": "corbel"},
		Endpoint: definition.Endpoint{Address: host, Port: port},
		Checks: []*definition.Check{{Name: "The cache takes connections", Status: "passing", Interval: 10 * time.Second,
			Timeout: 5 * time.Second, Probe: definition.Probe{TCP: p.dialed()}}}}, nil
}

// register puts this host's cache into the catalog.
func (p *Plane) register(ctx context.Context, def *definition.Service) error {
	pause := backoff.Backoff{Min: time.Second, Max: time.Minute}
	for ctx.Err() == nil {
		err := p.d.Local.RegisterService(ctx, def, local.RegisterOptions{ReplaceExistingChecks: true})
		if err == nil {
			break
		}
		p.d.Log.Warn("the cache is not in the catalog yet", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause.Next()):
		}
	}
	<-ctx.Done()
	return nil
}

// dialed is where the host's own check connects.
func (p *Plane) dialed() string {
	host, port, _ := net.SplitHostPort(p.Addr().String()) // a listener's address has both
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// Quiesce implements plane.Quiescer: it drains before the process ends, and then gives its keys to others.
func (p *Plane) Quiesce(ctx context.Context) {
	p.drain.quiesce(ctx)
	p.handOver(ctx)
}

// Reload implements plane.Plane.
func (p *Plane) Reload(cfg *config.Config) (func(), error) {
	if err := check(cfg); err != nil {
		return nil, err
	}
	keys := keysOf(cfg)
	return func() { p.drain.ceiling.Store(int64(keys.Drain.Ceiling)) }, nil
}

// Close implements plane.Plane.
func (p *Plane) Close() (err error) {
	for _, l := range p.listeners {
		err = errors.Join(err, l.Close())
	}
	return err
}
