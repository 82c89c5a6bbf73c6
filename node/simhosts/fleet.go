// Package simhosts plays many hosts of a mesh in one process, each with the product's own path from its connection to
// a server down to its proxies' streams: the fleets that the lab and the benchmarks measure with.
package simhosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"

	"corbel.dev/corbel/api/xds"
	"corbel.dev/corbel/api/xds/hostplane"
	"corbel.dev/corbel/kit/childcall"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// config is a part of a simulated fleet: hosts that one process plays, each
// with the product's own path from its connection to a server down to its
// proxies' streams. It is the first call of whoever started the process.
type config struct {
	Servers      []string     `json:"servers"` // their RPC addresses
	Datacenter   string       `json:"datacenter"`
	Upstream     string       `json:"upstream"` // the service that every proxy calls
	UpstreamPort int          `json:"upstream_port"`
	Hedged       bool         `json:"hedged"`
	Hosts        []hostConfig `json:"hosts"`
}

// hostConfig is one host.
type hostConfig struct {
	Node string `json:"node"`
	// its loopback address: connections come from there, its discovery service answers there
	Bind    string        `json:"bind"`
	Proxies []proxyConfig `json:"proxies"`
	Extras  []extra       `json:"extras"`
}

// extra is the registration of a sidecar that a real Envoy plays.
type extra struct {
	Service      string `json:"service"`
	ID           string `json:"id"`
	Port         int    `json:"port"`
	LocalPort    int    `json:"local_port"`
	UpstreamPort int    `json:"upstream_port"` // 0: it calls nobody
}

// proxyConfig is a service instance; its sidecar is called <id>-sidecar-proxy and has the next port.
type proxyConfig struct {
	Service string `json:"service"`
	ID      string `json:"id"`
	Port    int    `json:"port"`
}

// Serve plays the hosts of a simulated fleet for the process on the other
// side of in and out, until in ends. The calls: "start" with the hosts (the
// answer lists where their discovery services listen), "settle", "fault", "heal",
// "figures", "state" with the places of hosts to tell of, and "profile" with a file to begin one and "" to end it.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	f := &fleet{net: newNetwork(), metrics: telemetry.New(telemetry.Config{})}
	f.cursor = f.metrics.NewCursor()
	defer f.running.Wait()
	defer cancel()
	return childcall.Serve(ctx, in, out, func(_ context.Context, method string, body json.RawMessage) (any, error) {
		return f.handle(ctx, method, body)
	})
}

// fleet is the hosts of this process.
type fleet struct {
	cfg     config
	net     *network
	metrics *telemetry.Registry
	cursor  *telemetry.Cursor
	hosts   map[string]*simulated // by node
	running sync.WaitGroup
	profile *os.File
	failed  error // of a host that ended
	mu      sync.Mutex
}

func (f *fleet) handle(ctx context.Context, method string, body json.RawMessage) (any, error) {
	if (f.hosts == nil) != (method == "start") {
		return nil, fmt.Errorf("call %q: the first call, and no other, must be \"start\"", method)
	}
	switch method {
	case "start":
		if err := json.Unmarshal(body, &f.cfg); err != nil {
			return nil, err
		}
		return f.start(ctx)
	case "fault":
		var cut fault
		if err := json.Unmarshal(body, &cut); err != nil {
			return nil, err
		}
		f.net.cut(cut)
		return nil, nil
	case "heal":
		f.net.timed.Wait() // cut connections were replaced by then, or are about to be
		return nil, f.err()
	case "settle":
		runtime.GC() // thousands of agents share this heap: what one collection takes of all of them, no agent knows
		return nil, f.err()
	case "figures":
		return f.figures(), f.err()
	case "state":
		var places []int
		if err := json.Unmarshal(body, &places); err != nil {
			return nil, err
		}
		return f.state(places), f.err()
	case "profile":
		var file string
		if err := json.Unmarshal(body, &file); err != nil {
			return nil, err
		}
		return nil, f.profiling(file)
	}
	return nil, fmt.Errorf("unknown call %q", method)
}

// start builds and runs the hosts, and returns their discovery services' addresses in order.
func (f *fleet) start(ctx context.Context) ([]string, error) {
	f.hosts = make(map[string]*simulated, len(f.cfg.Hosts))
	// One server for all: each host has a listener and a connection of its own, and as many
	// streams may wait to be opened as if each had a server, too.
	server := xds.New(xds.Config{Plane: plane{f}, Metrics: f.metrics, OpenWorkers: 32 * len(f.cfg.Hosts)})
	addrs := make([]string, len(f.cfg.Hosts))
	for i, h := range f.cfg.Hosts {
		s, err := f.build(i, h)
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", h.Node, err)
		}
		l, err := net.Listen("tcp", net.JoinHostPort(h.Bind, "0"))
		if err != nil {
			return nil, err
		}
		f.hosts[h.Node], addrs[i] = s, l.Addr().String()
		f.run(func() error { return s.run(ctx) })
		f.run(func() error { return server.Run(ctx, l) })
	}
	return addrs, nil
}

// run keeps what the hosts' parts ended with.
func (f *fleet) run(part func() error) {
	f.running.Go(func() {
		err := part()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.failed = errors.Join(f.failed, err)
	})
}

func (f *fleet) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// figures is what the hosts counted and timed since the last call, by name; times in milliseconds.
func (f *fleet) figures() map[string]float64 {
	out := map[string]float64{}
	f.cursor.Each(func(r *telemetry.Reading) {
		name := r.Series.Name
		for _, l := range r.Series.Labels {
			name += "." + l.Value
		}
		switch {
		case r.Series.Kind == telemetry.KindGauge || r.Count == 0:
		case r.Buckets == nil:
			out[name] = r.Sum
		default:
			out[name+".count"] = float64(r.Count)
			for q, word := range map[float64]string{0.5: ".p50_ms", 0.99: ".p99_ms", 1: ".max_ms"} {
				out[name+word] = r.Buckets.Quantile(q) / 1e6
			}
		}
	})
	return out
}

// state is a line of each host on what it follows.
func (f *fleet) state(places []int) []string {
	var lines []string
	for _, p := range places {
		if p < 0 || p >= len(f.cfg.Hosts) {
			continue
		}
		node := f.cfg.Hosts[p].Node
		c := f.hosts[node].feed
		lines = append(lines, fmt.Sprintf("%s is connected to %v, knows all up to index %d, and may be behind by %s", node,
			c.Connected(), c.Newest(), c.Lag()))
	}
	return lines
}

func (f *fleet) profiling(file string) error {
	if f.profile != nil {
		pprof.StopCPUProfile()
		err := f.profile.Close()
		f.profile = nil
		return err
	}
	if file == "" {
		return nil
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	f.profile = out
	return pprof.StartCPUProfile(out)
}

// plane finds the host of a stream by the node that its Envoy names.
type plane struct{ f *fleet }

// Open implements xds.Plane.
func (p plane) Open(ctx context.Context, n xds.Node, token string) (xds.Proxy, error) {
	h := p.f.hosts[n.Name]
	if h == nil {
		return nil, errkind.Errorf(errkind.NotFound, "there is no host %q here", n.Name)
	}
	return hostplane.Plane{Host: h.host}.Open(ctx, n, token)
}
