package propagation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/sidecars"
)

// The fleet of the published experiment: three tiers of services with 10, 83 and
// 85 instances each, and one upstream of 10 instances that everybody watches.
const (
	commonService   = "common"
	commonInstances = 10
	commonPort      = 9191 // where each sidecar would bind it
	sidecarSuffix   = "-sidecar-proxy"
	propTxnOps      = 120 // a transaction takes 128
)

var tierInstances = [3]int{10, 83, 85}

func commonNode(i int) string { return fmt.Sprintf("common-%02d", i) }
func commonID(i int) string   { return fmt.Sprintf("common-%02d", i) }

// commonAddress is as long for each, so that no one's is part of another's, and
// on this machine, so that real Envoys can stand there.
func commonAddress(i int) string { return fmt.Sprintf("127.250.0.%d", 101+i) }

// commonSidecarPort is where a sidecar of the common upstream listens: a real Envoy, if there are any.
func (f *propFleet) commonSidecarPort(i int) int {
	if f.envoys == nil {
		return 21000
	}
	return f.envoys.ports[i%len(f.envoys.ports)]
}

// propHost is one simulated host. Its JSON is what the hosts' process reads (node.SimHost).
type propHost struct {
	Node    string      `json:"node"`
	Bind    string      `json:"bind"` // loopback address of its discovery service
	Proxies []propProxy `json:"proxies"`
	Extras  []propExtra `json:"extras,omitempty"`

	addr string // where its discovery service answers
}

// propProxy is a service instance with a sidecar.
type propProxy struct {
	Service string `json:"service"`
	ID      string `json:"id"`
	Port    int    `json:"port"` // the service's; its sidecar has the next one
}

// propFleet is the fleet and the processes that play it.
type propFleet struct {
	o        *PropagationOptions
	all      []propHost
	cluster  string // the common upstream's cluster name
	bundle   string // the name of the secret that holds the roots
	hosts    []*bench.Child
	sidecars *bench.Child
	envoys   *envoys // nil: none
}

func newPropFleet(o *PropagationOptions) *propFleet {
	f := &propFleet{o: o, all: make([]propHost, o.Nodes)}
	for i := range f.all {
		// A loopback address for each host, and a port that the kernel picks.
		f.all[i].Node, f.all[i].Bind = fmt.Sprintf("host-%05d", i), fmt.Sprintf("127.%d.%d.%d", 64+i>>16, i>>8&255, i&255)
	}
	// Service by service, each instance on the next host: so a host has as many services as
	// instances, and all have the same number, give or take one.
	at := 0
	for tier := range tierInstances {
		names, share := o.Services/3, tierShare(o.Proxies, tier)
		for s := range names {
			for k := range share*(s+1)/names - share*s/names {
				h := &f.all[at%o.Nodes]
				service := fmt.Sprintf("tier%d-%04d", tier+1, s)
				h.Proxies = append(h.Proxies, propProxy{Service: service, ID: fmt.Sprintf("%s-%d", service, k),
					Port: 20000 + 2*len(h.Proxies)})
				at++
			}
		}
	}
	return f
}

// tierShare is how many of the proxies are the tier's; the last one takes what is left.
func tierShare(proxies, tier int) int {
	share := func(t int) int {
		return proxies * tierInstances[t] / (tierInstances[0] + tierInstances[1] + tierInstances[2])
	}
	if tier < 2 {
		return share(tier)
	}
	return proxies - share(0) - share(1)
}

func hostAddress(i int) string { return fmt.Sprintf("10.%d.%d.%d", 16+i>>16, i>>8&255, i&255) }

// registrations are the transactions that put nodes, instances and sidecars into the catalog.
func (f *propFleet) registrations() (bodies [][]byte) {
	var b bytes.Buffer
	ops := 0
	flush := func() {
		if ops > 0 {
			b.WriteByte(']')
			bodies = append(bodies, bytes.Clone(b.Bytes()))
			b.Reset()
			ops = 0
		}
	}
	add := func(format string, args ...any) {
		if ops == propTxnOps {
			flush()
		}
		b.WriteByte("[,"[min(ops, 1)])
		fmt.Fprintf(&b, format, args...)
		ops++
	}
	for i, h := range f.all {
		if ops+1 > propTxnOps-2*len(h.Proxies) {
			flush() // a host in one transaction, if it fits
		}
		add(`{"Node":{"Verb":"set","Node":{"ID":"%s","Node":"%s","Address":"%s","Datacenter":"dc1"}}}`, bench.FleetNodeID(i),
			h.Node, hostAddress(i))
		for _, p := range h.Proxies {
			add(`{"Service":{"Verb":"set","Node":"%s","Service":{"ID":"%s","Service":"%s","Port":%d}}}`, h.Node, p.ID,
				p.Service, p.Port)
			add(`{"Service":{"Verb":"set","Node":"%s","Service":%s}}`, h.Node, sidecarJSON(p))
		}
	}
	flush()
	return bodies
}

// register puts the fleet into the catalog.
func (f *propFleet) register(ctx context.Context, c *bench.Target) error {
	bodies := f.registrations()
	if _, err := bench.RunCount(ctx, c.HTTP, 8, len(bodies), func(i int) []byte {
		return bench.Request("PUT", c.HTTP, "/v1/txn", c.Opts.Token, bodies[i])
	}); err != nil {
		return err
	}
	_, err := bench.RunCount(ctx, c.HTTP, 1, 2*commonInstances, func(i int) []byte {
		body := f.commonRegistration(i/2, "passing")
		if i%2 == 0 {
			body = fmt.Appendf(nil, `{"Node":"%s","Address":"%s","Service":{"ID":"%s","Service":"%s","Port":8080}}`,
				commonNode(i/2), commonAddress(i/2), commonID(i/2), commonService)
		}
		return bench.Request("PUT", c.HTTP, "/v1/catalog/register", c.Opts.Token, body)
	})
	return err
}

func sidecarJSON(p propProxy) string {
	return fmt.Sprintf(`{"ID":"%s%s","Service":"%s%s","Kind":"connect-proxy","Port":%d,"Proxy":{`+
		`"DestinationServiceName":"%s","DestinationServiceID":"%s",`+
		`"LocalServiceAddress":"127.0.0.1","LocalServicePort":%d,"Upstreams":[{"DestinationType":"service",`+
		`"DestinationName":"%s","LocalBindPort":%d}]}}`,
		p.ID, sidecarSuffix, p.Service, sidecarSuffix, p.Port+1, p.Service, p.ID, p.Port, commonService, commonPort)
}

// commonRegistration is one sidecar of the common upstream with its check.
func (f *propFleet) commonRegistration(i int, status string) []byte {
	return fmt.Appendf(nil, `{"Node":"%s","Address":"%s","Service":{"ID":"%s%s","Service":"%s%s",`+
		`"Kind":"connect-proxy","Port":%d,`+
		`"Proxy":{"DestinationServiceName":"%s","DestinationServiceID":"%s","LocalServicePort":8080}},`+
		`"Check":{"CheckID":"service:%s%s","Name":"Connect Sidecar Listening","Status":"%s","ServiceID":"%s%s"}}`,
		commonNode(i), commonAddress(i), commonID(i), sidecarSuffix, commonService, sidecarSuffix, f.commonSidecarPort(i),
		commonService, commonID(i), commonID(i), sidecarSuffix, status, commonID(i), sidecarSuffix)
}

const startMost = 5 * time.Minute

// startHosts starts the processes that play the agents and learns where they answer.
func (f *propFleet) startHosts(ctx context.Context, c *bench.Target) error {
	var servers []string
	for _, s := range c.Started() {
		servers = append(servers, s.RPC)
	}
	for first := 0; first < len(f.all); first += f.o.HostsPerProcess {
		h, err := bench.StartChild(f.o.Binary, c.Dir, "hosts")
		if err != nil {
			return err
		}
		h.First, h.Count = first, min(f.o.HostsPerProcess, len(f.all)-first)
		f.hosts = append(f.hosts, h)
		var addrs []string
		config := map[string]any{"servers": servers, "datacenter": "dc1", "upstream": commonService,
			"upstream_port": commonPort,
			"hedged":        f.o.Hedged, "hosts": f.all[first : first+h.Count]}
		if err := h.Call(ctx, startMost, "start", config, &addrs); err != nil {
			return fmt.Errorf("start agents: %w", err)
		}
		if len(addrs) != h.Count {
			return fmt.Errorf("start agents: %d addresses for %d hosts", len(addrs), h.Count)
		}
		for i, addr := range addrs {
			f.all[first+i].addr = addr
		}
	}
	return nil
}

// startSidecars starts the process that plays the proxies.
func (f *propFleet) startSidecars(ctx context.Context, c *bench.Target) error {
	var roots struct{ TrustDomain string }
	if err := f.get(ctx, c, "/v1/connect/ca/roots", &roots); err != nil {
		return err
	}
	f.cluster = commonService + ".default.dc1.internal." + roots.TrustDomain
	f.bundle = rootsSecret
	cfg := sidecars.Config{Window: f.o.Window, Track: map[string]string{urlEndpoints: f.cluster, urlSecret: f.bundle},
		Need: []string{urlEndpoints, urlSecret, urlListener}}
	for _, h := range f.all {
		s := sidecars.Host{Addr: h.addr, Node: h.Node}
		for _, p := range h.Proxies {
			s.Proxies = append(s.Proxies, p.ID+sidecarSuffix)
		}
		cfg.Hosts = append(cfg.Hosts, s)
	}
	var err error
	if f.sidecars, err = bench.StartChild(f.o.Binary, c.Dir, "sidecars"); err != nil {
		return err
	}
	return f.sidecars.Call(ctx, startMost, sidecars.CallStart, cfg, nil)
}

// rootsSecret is the name of the trust bundle's secret in our own resources.
const rootsSecret = "roots"

// warmMost bounds the bring-up: the published one took 51 minutes.
const warmMost = time.Hour

func (f *propFleet) waitWarm(ctx context.Context) error {
	end := time.Now().Add(warmMost)
	for {
		var got sidecars.Waited
		err := f.sidecars.Call(ctx, bench.CallMost, sidecars.CallWait, sidecars.Wait{Most: 10 * time.Second,
			Warm: true}, &got)
		if err != nil || got.Done == got.Of {
			return err
		}
		var n sidecars.Counts
		if err := f.sidecars.Call(ctx, bench.CallMost, sidecars.CallCounts, nil, &n); err != nil {
			return err
		}
		f.o.Say("%d of %d proxies are warm, %d connections, %d messages, %d lost %s", n.Warm, n.Proxies, n.Connected,
			n.Messages, n.Lost, n.Reason)
		if time.Now().After(end) {
			return fmt.Errorf("only %d of %d proxies are warm after %s: %s", n.Warm, n.Proxies, warmMost, n.Reason)
		}
	}
}

func (f *propFleet) get(ctx context.Context, c *bench.Target, path string, into any) error {
	w, err := bench.DialWire(ctx, c.HTTP, 64<<10)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	r, err := w.Do(bench.Request("GET", c.HTTP, path, c.Opts.Token, nil), true, bench.IoDeadline)
	if err != nil {
		return err
	}
	if r.Status != 200 {
		return fmt.Errorf("GET %s: status %s: %.200s", path, strconv.Itoa(r.Status), r.Body)
	}
	return json.Unmarshal(r.Body, into)
}

// close ends the processes: proxies first, so that agents see them leave as they would.
func (f *propFleet) close() {
	if f.envoys != nil {
		f.envoys.close()
	}
	all := f.hosts
	if f.sidecars != nil {
		all = append([]*bench.Child{f.sidecars}, all...)
	}
	for _, c := range all {
		c.Close()
	}
}
