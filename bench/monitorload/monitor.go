// Package monitorload loads the monitor plane: sessions of simulated agents, results as fast as they are taken, and a
// server that is killed meanwhile.
package monitorload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/kit/spawn/postgres"
)

// MonitorOptions are the options of the benches of the monitor plane. With Target, that is one URL of agents' ports or
// several with commas (ws://host:8081); else servers are started.
type MonitorOptions struct {
	bench.Options
	// API are the URLs of the API that go with Target, with commas.
	API string
	// User and Password log in to the API, AgentUser and AgentPassword at the agents' port.
	User, Password, AgentUser, AgentPassword string
	// Agents is how many sessions are held.
	Agents int
	// Checks are made, each for one of Subscriptions, and run every Interval seconds. An agent has one of the
	// subscriptions.
	Checks, Interval, Subscriptions int
	// Keepalive is the seconds between an agent's keepalives.
	Keepalive int
	// Ramp is how many sessions are opened a second; 0 is as fast as they are taken.
	Ramp int
	// Sample is how many of the agents are followed to the store and to a handler.
	Sample int
	// PerProcess is how many sessions one process plays.
	PerProcess int
	// EventsStore is where events are kept: embedded ("" too), or postgresql, one that the bench starts.
	EventsStore string
	// Kill is who is killed in the middle: leader, server (one that does not lead), or nobody.
	Kill string

	// Overload has RunEvents find the servers' limit, offer ten times as much for Duration, and then half of it.
	Overload bool

	flood bool
	wait  time.Duration // for what a run leaves behind
}

func (o *MonitorOptions) Complete() error {
	var errs []error
	between := func(flag string, v *int, zero, low, high int) {
		if *v == 0 {
			*v = zero
		}
		if *v < low || *v > high {
			errs = append(errs, fmt.Errorf("--%s: must be between %d and %d, not %d", flag, low, high, *v))
		}
	}
	if o.Duration == 0 {
		o.Duration = time.Minute
	}
	between("agents", &o.Agents, 1000, 1, 500_000)
	between("checks", &o.Checks, 38, 1, 9999)
	between("interval", &o.Interval, 10, 1, 86400)
	between("subscriptions", &o.Subscriptions, 4, 1, 9999)
	between("keepalive-interval", &o.Keepalive, 20, 1, 3600)
	between("ramp", &o.Ramp, 0, 0, 1_000_000)
	between("per-process", &o.PerProcess, 10_000, 1, 19_000)
	between("sample", &o.Sample, max(1, min(64, o.Agents/10)), 1, o.Agents)
	if o.EventsStore == "" {
		o.EventsStore = "embedded"
	}
	if !slices.Contains([]string{"embedded", "postgresql"}, o.EventsStore) {
		errs = append(errs, fmt.Errorf("--events-store: must be embedded or postgresql, not %q", o.EventsStore))
	}
	if o.EventsStore != "embedded" && o.Target != "" {
		errs = append(errs, errors.New("--events-store: it is for servers that the bench starts; --target has what it has"))
	}
	if !slices.Contains([]string{"", "leader", "server"}, o.Kill) {
		errs = append(errs, fmt.Errorf("--kill: must be leader or server, not %q", o.Kill))
	}
	if o.Kill != "" && (o.Servers < 3 || o.Target != "") {
		errs = append(errs, errors.New("--kill: it needs --servers 3 or 5, started by the bench"))
	}
	if (o.Target == "") != (o.API == "") {
		errs = append(errs, errors.New("--target: it needs --api beside it, and --api needs it"))
	}
	if o.Interval < 1 {
		o.Interval = 1
	}
	for what, v := range map[string]*string{"admin": &o.User, "agent": &o.AgentUser} {
		if *v == "" {
			*v = what
		}
	}
	for _, v := range []*string{&o.Password, &o.AgentPassword} {
		if *v == "" {
			*v = defaultPassword
		}
	}
	o.wait = 30 * time.Second
	return errors.Join(append(errs, o.Options.Complete())...)
}

// defaultPassword is what a new plane's users have.
const defaultPassword = "P@ssw0rd!"

// offered is how many results a second the agents are asked for.
func (o *MonitorOptions) offered() float64 {
	total := 0
	for sub := range o.Subscriptions {
		agents := (o.Agents + o.Subscriptions - 1 - sub) / o.Subscriptions
		checks := (o.Checks + o.Subscriptions - 1 - sub) / o.Subscriptions
		total += agents * checks
	}
	return float64(total) / float64(o.Interval)
}

// RunAgents holds sessions of simulated agents, which keep alive and answer the checks that the servers have them run.
func RunAgents(ctx context.Context, o MonitorOptions) (*MonitorResult, error) {
	return runMonitor(ctx, o)
}

// RunEvents has few agents send results as fast as they are taken.
func RunEvents(ctx context.Context, o MonitorOptions) (*MonitorResult, error) {
	o.flood = true
	return runMonitor(ctx, o)
}

func runMonitor(ctx context.Context, o MonitorOptions) (*MonitorResult, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	p, err := OpenPlane(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	r := &MonitorResult{Setup: Setup{Bench: map[bool]string{false: "agents", true: "events"}[o.flood],
		Machine:     bench.Machine(),
		Date:        time.Now().UTC().Truncate(time.Second),
		EventsStore: o.EventsStore, Servers: len(p.apis), Agents: o.Agents, Checks: o.Checks, Interval: o.Interval,
		Subscriptions: o.Subscriptions, Keepalive: o.Keepalive, Seconds: o.Duration.Seconds()}}
	if !o.flood {
		r.OfferedPerSecond = o.offered()
	}
	if err := p.Prepare(ctx); err != nil {
		return nil, err
	}
	if err := r.ramp(ctx, p); err != nil {
		return nil, err
	}
	measure := r.steady
	if o.Overload {
		measure = r.overload
	}
	if err := measure(ctx, p); err != nil {
		return r, err
	}
	if !o.SkipFloors {
		if r.Floors, err = bench.MeasureFloors(ctx, &o.Options); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Plane is the servers with a monitor plane, and the processes that play agents.
type Plane struct {
	o        *MonitorOptions
	cluster  *bench.Target    // nil with a target
	database *postgres.Server // nil unless events are kept there
	apis     []string         // URLs
	doors    []string         // host:port
	dir      string
	players  []*bench.Child
	Follow   *followers
	dead     int       // index of the server that was killed, or -1
	told     []figures // by server: what it told last
}

// config turns the plane on.
func (p *Plane) config() string {
	store := ""
	if p.database != nil {
		store = fmt.Sprintf("store = %q, dsn = %q,", "postgresql", p.database.URL())
	}
	return fmt.Sprintf("monitor { enabled = true, %s cluster_admin_username = %q, cluster_admin_password = %q }",
		store, p.o.User, p.o.Password)
}

func OpenPlane(ctx context.Context, o *MonitorOptions) (*Plane, error) {
	p := &Plane{o: o, dead: -1}
	if o.Target != "" {
		p.apis = strings.Split(o.API, ",")
		for door := range strings.SplitSeq(o.Target, ",") {
			p.doors = append(p.doors, strings.TrimPrefix(door, "ws://"))
		}
		dir, err := os.MkdirTemp("", "corbel-bench")
		p.dir = dir
		return p, err
	}
	if o.EventsStore == "postgresql" {
		o.Say("starting PostgreSQL ...")
		var err error
		if p.database, err = postgres.Start(ctx); err != nil {
			return nil, err
		}
	}
	o.Monitor, o.HCL = true, []string{p.config()}
	c, err := bench.OpenTarget(ctx, &o.Options)
	if err != nil {
		p.Close()
		return nil, err
	}
	p.cluster, p.dir = c, c.Dir
	for _, s := range c.Servers {
		p.apis, p.doors = append(p.apis, "http://"+s.Monitor), append(p.doors, s.Agents)
		if err := bench.WaitHTTP(ctx, s.Process, s.Monitor, "/ready", bench.OK); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

func (p *Plane) Close() {
	if p.Follow != nil {
		p.Follow.close()
	}
	for _, c := range p.players {
		_ = c.Calls.Close()
	}
	for _, c := range p.players {
		c.Close()
	}
	if p.cluster != nil {
		p.cluster.Stop()
	} else if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
	if p.database != nil {
		p.database.Remove()
	}
}
