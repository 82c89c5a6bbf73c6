// Package propagation measures how long one change of the catalog takes to reach every proxy of a fleet.
package propagation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/curve"
	"corbel.dev/corbel/bench/sidecars"
)

// PropagationOptions are the options of the propagation bench.
type PropagationOptions struct {
	bench.Options
	// Nodes, Proxies and Services are the fleet's size.
	Nodes, Proxies, Services int
	// Change is what is made each round: register, deregister, health, intention or root.
	Change string
	// Rounds is how many changes are measured, one after the other.
	Rounds int
	// Faults are cut into agents' connections in the second before each change, as "stall=1%,reset=1%".
	Faults string
	// Hedged gives each agent a second subscription on another server.
	Hedged bool
	// Deadline bounds the wait for a change; who has not got it then is missing.
	Deadline time.Duration
	// Envoys is how many real Envoys take part, and EnvoyBinary where they come from; empty is the PATH.
	Envoys      int
	EnvoyBinary string
	// HTML is a file to draw the curves into; empty is none.
	HTML string
	// HostsPerProcess bounds the simulated hosts of one process; 0 is what its descriptors allow.
	HostsPerProcess int
	// Window is how many proxies may wait to be configured at once while the fleet comes up.
	// On one machine the hosts share two cores, where in a fleet each has its own: without a window
	// each waits for all others. Negative is no limit.
	Window int
	// Profiles is a folder for CPU profiles of servers and hosts during the rounds; empty is none.
	Profiles string

	faults faultShares
}

// Changes are the values of PropagationOptions.Change.
var Changes = []string{"register", "deregister", "health", "intention", "root"}

func (o *PropagationOptions) complete() error {
	var errs []error
	between := func(flag string, v *int, zero, low, high int) {
		if *v == 0 {
			*v = zero
		}
		if *v < low || *v > high {
			errs = append(errs, fmt.Errorf("--%s: must be between %d and %d, not %d", flag, low, high, *v))
		}
	}
	between("nodes", &o.Nodes, 10000, 1, 60000)
	between("proxies", &o.Proxies, o.Nodes*178/10, 1, 1_000_000)
	between("services", &o.Services, min(3000, max(3, o.Proxies/3/3*3)), 3, 30000)
	between("rounds", &o.Rounds, 5, 1, 1000)
	between("hosts-per-process", &o.HostsPerProcess, 5000, 1, 6000) // three descriptors each
	if o.Window == 0 {
		o.Window = 2000
	}
	o.Window = max(o.Window, 0)
	if o.Change == "" {
		o.Change = "deregister"
	}
	if !slices.Contains(Changes, o.Change) {
		errs = append(errs, fmt.Errorf("--change: must be one of %s, not %q", strings.Join(Changes, ", "), o.Change))
	}
	if o.Deadline == 0 {
		o.Deadline = time.Minute
	}
	if o.Deadline < time.Second || o.Deadline > time.Hour {
		errs = append(errs, fmt.Errorf("--deadline: must be between 1s and 1h, not %s", o.Deadline))
	}
	if o.Target != "" {
		errs = append(errs, errors.New("--target: the bench starts the servers itself, with agents that know them"))
	}
	if o.Proxies < o.Nodes {
		errs = append(errs, fmt.Errorf("--proxies: must be at least one for each of the %d nodes, not %d", o.Nodes,
			o.Proxies))
	}
	if o.Envoys < 0 || o.Envoys == 1 || o.Envoys > 100 {
		errs = append(errs, fmt.Errorf("--envoys: must be 0, or between 2 and 100, not %d: some call the others", o.Envoys))
	}
	var err error
	o.faults, err = parseFaults(o.Faults)
	return errors.Join(append(errs, err, o.Options.Complete())...)
}

// Propagation is what the bench measured.
type Propagation struct {
	Setup
	BringUp BringUp            `json:"bring_up"`
	Rounds  []PropagationRound `json:"rounds"`
	Envoys  string             `json:"envoys"`
	// EnvoyRequests went through the real Envoys after the rounds, all answered with 200.
	EnvoyRequests int           `json:"envoy_requests"`
	Floors        *bench.Floors `json:"floors,omitempty"`

	runs []curve.Series
}

// Setup is what was run.
type Setup struct {
	Bench    string    `json:"bench"`
	Machine  string    `json:"machine"`
	Date     time.Time `json:"date"`
	Servers  int       `json:"servers"`
	Nodes    int       `json:"nodes"`
	Proxies  int       `json:"proxies"`
	Services int       `json:"services"`
	Change   string    `json:"change"`
	How      string    `json:"how"` // the change, in words
	Faults   string    `json:"faults,omitempty"`
	Hedged   bool      `json:"hedged"`
}

// BringUp is how long it took until every proxy was configured, and the memory that this took.
type BringUp struct {
	ServersSeconds  float64 `json:"servers_seconds"`
	RegisterSeconds float64 `json:"register_seconds"`
	HostsSeconds    float64 `json:"hosts_seconds"` // to start the agents
	WarmSeconds     float64 `json:"warm_seconds"`  // until every proxy had clusters, endpoints and certificates
	Instances       int     `json:"instances"`
	Memory          Memory  `json:"memory"`
	// CPU is what the processes took until then, Ended and Lost the streams and
	// connections that agents ended while everything started.
	CPU CPUSeconds `json:"cpu_seconds"`
	// Rest is what they take in a second in which nothing changes: heartbeats, mostly.
	Rest                  CPUSeconds `json:"rest_cpu_seconds"`
	Ended, Lost, Messages int64
	Hosts                 map[string]float64 `json:"hosts,omitempty"`
}

// Memory is the peak resident size of the processes of each kind, added up.
type Memory struct {
	ServerBytes         []int64 `json:"server_peak_bytes"`
	HostsBytes          int64   `json:"hosts_peak_bytes"`
	SidecarsBytes       int64   `json:"sidecars_peak_bytes"`
	HostBytesPerProxy   int64   `json:"hosts_bytes_per_proxy"`
	ServerBytesPerAgent int64   `json:"server_bytes_per_agent"` // of all servers, catalog included
}

// PropagationRound is one change.
type PropagationRound struct {
	curve.Stats
	Unaffected *curve.Stats `json:"unaffected,omitempty"` // with faults: proxies whose agent had none
	Affected   *curve.Stats `json:"affected,omitempty"`
	// EnvoysMillis is by when all real Envoys that call the common upstream surely had the
	// change: they were asked after the last sidecar had it. 0 where their admin API does not show it.
	EnvoysMillis float64    `json:"envoys_ms,omitempty"`
	HTTPMillis   float64    `json:"http_ms"` // until the change was acknowledged
	CPU          CPUSeconds `json:"cpu_seconds"`
	Messages     int64      `json:"messages"` // responses at the proxies
	Bytes        int64      `json:"bytes"`
	Reads        int64      `json:"reads"` // system calls of the proxies
	Writes       int64      `json:"writes"`
	Lost         int64      `json:"connections_lost"`
	// Hosts is what the agents counted and timed from the change on, by metric; times in
	// milliseconds, the larger of two processes.
	Hosts map[string]float64 `json:"hosts,omitempty"`
}

// CPUSeconds is processor time by kind of process.
type CPUSeconds struct {
	Servers  float64 `json:"servers"`
	Hosts    float64 `json:"hosts"`
	Sidecars float64 `json:"sidecars"`
}

// RunPropagation repeats the published experiment on one machine: a fleet of
// agents and proxies over real sockets, a change made over HTTP, and the time
// until each proxy has it.
func RunPropagation(ctx context.Context, o PropagationOptions) (*Propagation, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	p := &Propagation{Setup: Setup{Bench: "propagation", Machine: bench.Machine(),
		Date:    time.Now().UTC().Truncate(time.Second),
		Servers: o.Servers,
		Nodes:   o.Nodes, Proxies: o.Proxies, Services: o.Services, Change: o.Change, Faults: o.Faults, Hedged: o.Hedged}}
	begin := time.Now()
	c, err := bench.OpenTarget(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	p.BringUp.ServersSeconds = time.Since(begin).Seconds()
	fleet := newPropFleet(&o)
	defer fleet.close()
	if fleet.envoys, p.Envoys, err = findEnvoys(&o); err != nil {
		return nil, err
	}
	if fleet.envoys != nil {
		if err := fleet.envoys.prepare(ctx, fleet, c.Dir); err != nil {
			return nil, err
		}
	}
	if err := p.bringUp(ctx, c, fleet); err != nil {
		return nil, err
	}
	for i := range o.Rounds {
		if err := p.round(ctx, c, fleet, i); err != nil {
			return p, fmt.Errorf("round %d: %w", i+1, err)
		}
	}
	p.BringUp.Memory = p.memory(c, fleet)
	if !o.SkipFloors {
		if p.Floors, err = bench.MeasureFloors(ctx, &o.Options); err != nil {
			return p, err
		}
	}
	return p, p.draw(o.HTML)
}

// bringUp registers the fleet, starts agents and proxies, and waits until every proxy is warm.
func (p *Propagation) bringUp(ctx context.Context, c *bench.Target, f *propFleet) error {
	o, b := f.o, &p.BringUp
	o.Say("registering %d nodes and %d instances with a sidecar each ...", o.Nodes, o.Proxies)
	begin := time.Now()
	if err := f.register(ctx, c); err != nil {
		return fmt.Errorf("register the fleet: %w", err)
	}
	b.Instances = 2 * (o.Proxies + commonInstances)
	b.RegisterSeconds = time.Since(begin).Seconds()
	o.Say("starting %d agents ...", o.Nodes)
	begin = time.Now()
	if err := f.startHosts(ctx, c); err != nil {
		return err
	}
	b.HostsSeconds = time.Since(begin).Seconds()
	if err := f.profile(ctx, "bring-up"); err != nil {
		return err
	}
	o.Say("connecting %d proxies ...", o.Proxies)
	begin = time.Now()
	if err := f.startSidecars(ctx, c); err != nil {
		return err
	}
	err := f.waitWarm(ctx)
	if err != nil {
		return err
	}
	b.WarmSeconds = time.Since(begin).Seconds()
	if f.envoys != nil {
		if err := f.envoys.start(ctx, f); err != nil {
			return fmt.Errorf("real Envoys: %w", err)
		}
	}
	if err := f.profiled(ctx); err != nil {
		return err
	}
	if b.Hosts, err = f.figures(ctx); err != nil {
		return err
	}
	// The connections that agents asked for certificates on end when they were idle for 5 s.
	bench.Settle(ctx, min(10*time.Second, time.Duration(o.Nodes)*10*time.Millisecond))
	for _, h := range f.hosts {
		if err := h.Call(ctx, bench.CallMost, "settle", nil, nil); err != nil {
			return err
		}
	}
	b.Memory, b.CPU = p.memory(c, f), f.cpu(c)
	if err := f.profile(ctx, "rest"); err != nil {
		return err
	}
	begin = time.Now()
	bench.Settle(ctx, restFor)
	b.Rest = f.cpu(c).minus(b.CPU).over(time.Since(begin))
	if err := f.profiled(ctx); err != nil {
		return err
	}
	var n sidecars.Counts
	if err := f.sidecars.Call(ctx, bench.CallMost, sidecars.CallCounts, nil, &n); err != nil {
		return err
	}
	b.Ended, b.Lost, b.Messages = n.Ended, n.Lost, n.Messages
	o.Say("all proxies are warm after %.1f s", b.WarmSeconds)
	return nil
}

// restFor is for how long the processor time at rest is measured: two heartbeats of each agent.
const restFor = 2 * time.Second

func (p *Propagation) memory(c *bench.Target, f *propFleet) Memory {
	var m Memory
	var servers int64
	for _, s := range c.Started() {
		m.ServerBytes = append(m.ServerBytes, s.Peak())
		servers += s.Peak()
	}
	for _, h := range f.hosts {
		m.HostsBytes += h.Proc.Peak()
	}
	m.SidecarsBytes = f.sidecars.Proc.Peak()
	m.HostBytesPerProxy, m.ServerBytesPerAgent = m.HostsBytes/int64(p.Proxies), servers/int64(p.Nodes)
	return m
}

// round makes one change, waits for it everywhere, and makes it undone.
func (p *Propagation) round(ctx context.Context, c *bench.Target, f *propFleet, n int) error {
	ch, err := f.change(ctx, c, n)
	if err != nil {
		return err
	}
	p.How = ch.how
	for _, prepare := range ch.before {
		if err := f.settled(ctx, c, prepare); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	affected, err := f.cut(ctx, n)
	if err != nil {
		return err
	}
	r, err := f.measure(ctx, c, ch.measured, affected, fmt.Sprintf("round-%d", n+1))
	if err != nil {
		return err
	}
	p.Rounds = append(p.Rounds, r.PropagationRound)
	last := &p.Rounds[len(p.Rounds)-1]
	p.runs = append(p.runs, curve.Series{Name: fmt.Sprintf("round %d", n+1), Sorted: r.took})
	f.o.Say("round %d: p50 %.0f  p90 %.0f  p99 %.0f  p99.9 %.0f  max %.0f ms  missing %d", n+1, r.P50, r.P90, r.P99,
		r.P999, r.Max, r.Missing)
	if f.envoys != nil {
		if last.EnvoysMillis, err = f.envoys.check(ctx, ch.measured.watch, r.start); err != nil {
			return fmt.Errorf("real Envoys: %w", err)
		}
		p.EnvoyRequests = f.envoys.requests
	}
	if err := f.heal(ctx); err != nil {
		return err
	}
	for _, undo := range ch.after {
		if err := f.settled(ctx, c, undo); err != nil {
			return fmt.Errorf("undo: %w", err)
		}
	}
	return nil
}

// change is what a round does: steps with what must arrive at the proxies.
type change struct {
	how           string
	before, after []changeStep
	measured      changeStep
}

type changeStep struct {
	method, path string
	body         []byte
	watch        sidecars.Watch
}

const (
	urlEndpoints = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	urlSecret    = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	urlExtension = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	urlListener  = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

func (f *propFleet) change(ctx context.Context, c *bench.Target, n int) (*change, error) {
	i := n % commonInstances
	gone := sidecars.Watch{Type: urlEndpoints, Name: f.cluster, Marker: commonAddress(i), Gone: true}
	back := sidecars.Watch{Type: urlEndpoints, Name: f.cluster, Marker: commonAddress(i)}
	changed := sidecars.Watch{Type: urlEndpoints, Name: f.cluster}
	off := changeStep{"PUT", "/v1/catalog/deregister", fmt.Appendf(nil, `{"Node":"%s","ServiceID":"%s"}`, commonNode(i),
		commonID(i)+sidecarSuffix), gone}
	on := changeStep{"PUT", "/v1/catalog/register", f.commonRegistration(i, "passing"), back}
	switch f.o.Change {
	case "deregister":
		return &change{
			how:      "PUT /v1/catalog/deregister of one of the ten sidecars of the common upstream, sent to the leader",
			measured: off, after: []changeStep{on},
		}, nil
	case "register":
		return &change{how: "PUT /v1/catalog/register of the tenth sidecar of the common upstream, sent to the leader",
			before: []changeStep{off}, measured: on}, nil
	case "health":
		bad := changeStep{"PUT", "/v1/catalog/register", f.commonRegistration(i, "critical"), changed}
		good := on
		good.watch = changed
		return &change{how: "a check of one of the ten sidecars of the common upstream turns critical: PUT " +
			"/v1/catalog/register, sent to the leader",
			measured: bad, after: []changeStep{good}}, nil
	case "intention":
		source := fmt.Sprintf("intruder%04dx", n)
		path := "/v1/connect/intentions/exact?source=" + source + "&destination=*"
		has := sidecars.Watch{Type: urlExtension, Marker: source}
		return &change{how: "PUT /v1/connect/intentions/exact: one source is denied for every destination (*), sent to " +
			"the leader",
			measured: changeStep{"PUT", path, []byte(`{"Action":"deny"}`), has},
			after:    []changeStep{{"DELETE", path, nil, sidecars.Watch{Type: urlExtension, Marker: source, Gone: true}}}}, nil
	case "root":
		config, err := f.nextRoot(ctx, c, n)
		return &change{how: "PUT /v1/connect/ca/configuration with another key type: a new root in every proxy's trust " +
			"bundle, sent to the leader",
			measured: changeStep{"PUT", "/v1/connect/ca/configuration", config,
				sidecars.Watch{Type: urlSecret, Name: f.bundle}}}, err
	}
	return nil, fmt.Errorf("unknown change %q", f.o.Change)
}

// nextRoot is a configuration that makes another root than the one in force.
func (f *propFleet) nextRoot(ctx context.Context, c *bench.Target, n int) ([]byte, error) {
	bits := 256
	if n%2 == 0 {
		bits = 384
	}
	var config map[string]any
	if err := f.get(ctx, c, "/v1/connect/ca/configuration", &config); err != nil {
		return nil, err
	}
	inner, _ := config["Config"].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
	}
	inner["PrivateKeyType"], inner["PrivateKeyBits"] = "ec", bits
	return json.Marshal(map[string]any{"Provider": config["Provider"], "Config": inner})
}

func (p *Propagation) draw(file string) error {
	if file == "" {
		return nil
	}
	page := curve.Page{Title: fmt.Sprintf("%s reaches %d proxies on %d nodes", p.Change, p.Proxies, p.Nodes), Runs: p.runs,
		Lines: []string{p.How, fmt.Sprintf("%d server(s), agents and proxies on one machine: %s. %s.", p.Servers, p.Machine,
			p.Date.Format(time.DateOnly)), p.faultLine()},
		Table: [][]string{{"round", "p50 ms", "p90", "p95", "p99", "p99.9", "max", "missing"}}}
	for i, r := range p.Rounds {
		row := []string{fmt.Sprint(i + 1)}
		for _, v := range []float64{r.P50, r.P90, r.P95, r.P99, r.P999, r.Max} {
			row = append(row, fmt.Sprintf("%.1f", v))
		}
		page.Table = append(page.Table, append(row, fmt.Sprint(r.Missing)))
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(curve.WriteHTML(out, page), out.Close())
}

func (p *Propagation) faultLine() string {
	if p.Faults == "" {
		return "No faults."
	}
	return "Faults in the second before each change: " + p.Faults
}
