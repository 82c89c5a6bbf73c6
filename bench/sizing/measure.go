package sizing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/monitorload"
	"corbel.dev/corbel/bench/propagation"
	"corbel.dev/corbel/bench/secretsload"
	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/kit/spawn"
)

// Options are the options of the bench.
type Options struct {
	bench.Options
	Fleet
	// Sample bounds how many of each part are measured; 0 is 2000.
	Sample int
}

// Run measures samples and adds them up.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Sample == 0 {
		o.Sample = 2000
	}
	err := o.Fleet.complete()
	if o.Sample < 10 || o.Sample > 20_000 {
		err = errors.Join(err, fmt.Errorf("--sample: must be between 10 and 20000, not %d", o.Sample))
	}
	if o.Target != "" {
		err = errors.Join(err, errors.New("--target: the bench starts the servers itself, to see what each part costs them"))
	}
	if err = errors.Join(err, o.Options.Complete()); err != nil {
		return nil, err
	}
	o.Servers = 1
	r := &Report{Bench: "size", Machine: bench.Machine(), Date: time.Now().UTC().Truncate(time.Second), Fleet: o.Fleet,
		On: Machine{Cores: runtime.NumCPU(), MemoryBytes: int64(hostinfo.AllowedMemory())}}
	steps := []struct {
		asked bool
		run   func(context.Context, *Options, *Report) error
	}{{true, catalog}, {o.Proxies > 0, proxies}, {o.Leases > 0, leases}, {o.Agents > 0, agents}}
	for _, s := range steps {
		if !s.asked {
			continue
		}
		if err := s.run(ctx, &o, r); err != nil {
			return nil, err
		}
	}
	if !o.SkipFloors {
		if r.Floors, err = bench.MeasureFloors(ctx, &o.Options); err != nil {
			return nil, err
		}
		r.On.Fsyncs = r.Floors.FsyncPerSecond
	}
	r.Line = Sum(r.Parts, r.EmptyBytes, r.On)
	return r, nil
}

// server is the one server whose catalog is filled and watched.
type server struct {
	*bench.Target
	o *Options
}

func (s *server) process() *spawn.Process { return s.Started()[0].Process }

// counts are what a server has used so far.
type counts struct {
	cpu    float64 // seconds
	bytes  int64
	fsyncs int64
}

// counts reads them.
func (s *server) counts(ctx context.Context) (c counts, err error) {
	raw := bench.Request("GET", s.HTTP, "/v1/agent/self", s.o.Token, nil)
	conn, err := bench.DialWire(ctx, s.HTTP, 16<<10)
	if err != nil {
		return c, err
	}
	defer func() { _ = conn.Close() }()
	reply, err := conn.Do(raw, true, bench.IoDeadline)
	if err != nil {
		return c, err
	}
	var self struct {
		Stats struct{ Raft map[string]string }
	}
	if err := json.Unmarshal(reply.Body, &self); err != nil {
		return c, fmt.Errorf("read /v1/agent/self: %w", err)
	}
	if c.fsyncs, err = strconv.ParseInt(self.Stats.Raft["log_fsyncs"], 10, 64); err != nil {
		return c, fmt.Errorf("read the server's fsyncs: %w", err)
	}
	c.cpu, c.bytes = s.process().CPU(), s.process().RSS()
	return c, nil
}

// catalog measures nodes with their services, changes of checks, and watchers.
func catalog(ctx context.Context, o *Options, r *Report) error {
	target, err := bench.OpenTarget(ctx, &o.Options)
	if err != nil {
		return err
	}
	defer target.Stop()
	s := &server{target, o}
	empty, err := s.counts(ctx)
	if err != nil {
		return err
	}
	r.EmptyBytes = empty.bytes
	if o.Nodes == 0 {
		return nil
	}
	nodes := min(o.Nodes, o.Sample)
	each := (o.Services + o.Nodes - 1) / o.Nodes
	o.Say("filling the catalog with %d nodes of %d services each ...", nodes, each)
	if err := s.fill(ctx, nodes, each); err != nil {
		return err
	}
	filled, err := s.counts(ctx)
	if err != nil {
		return err
	}
	fleet := fmt.Sprintf("corbel bench fleet --nodes %d", o.Nodes)
	r.Parts = append(r.Parts, Part{What: "nodes with their services", Units: o.Nodes, Sample: nodes,
		BytesEach: float64(filled.bytes-empty.bytes) / float64(nodes), From: fleet,
		Assumes: fmt.Sprintf("each has %d services, and two checks for three of them", each)})
	changes := max(nodes, 100)
	o.Say("changing %d checks ...", changes)
	if err := s.change(ctx, nodes, changes); err != nil {
		return err
	}
	changed, err := s.counts(ctx)
	if err != nil {
		return err
	}
	flip := Part{What: "changes of the catalog", Units: changes, Sample: changes, PerSecond: o.ChangesPerSecond,
		CPUMicros: (changed.cpu - filled.cpu) * 1e6 / float64(changes),
		Fsyncs:    float64(changed.fsyncs-filled.fsyncs) / float64(changes),
		From:      fleet + fmt.Sprintf(" --changes %.0f", o.ChangesPerSecond),
		Assumes:   "one change a second for 20 nodes; --changes tells otherwise"}
	r.Parts = append(r.Parts, flip)
	if o.Watchers == 0 {
		return nil
	}
	return s.watchers(ctx, r, flip)
}

// mostOps is how many operations a transaction has at most; servers take 64.
const mostOps = 60

// set writes count things by transactions.
func (s *server) set(ctx context.Context, count int, write func(b *bytes.Buffer, i int)) error {
	if count == 0 {
		return nil
	}
	_, err := bench.RunCount(ctx, s.HTTP, 8, (count+mostOps-1)/mostOps, func(txn int) []byte {
		var b bytes.Buffer
		for i := txn * mostOps; i < min((txn+1)*mostOps, count); i++ {
			b.WriteByte(',')
			write(&b, i)
		}
		b.Bytes()[0] = '['
		b.WriteByte(']')
		return bench.Request("PUT", s.HTTP, "/v1/txn", s.o.Token, b.Bytes())
	})
	if err != nil {
		return fmt.Errorf("fill the catalog: %w", err)
	}
	return nil
}

// checksOf is how many checks a node has that has so many services: two for three of them, and one at least, which is
// what changes.
func checksOf(each int) int { return max(1, (2*each+2)/3) }

// fill registers nodes, then their services, then their checks.
func (s *server) fill(ctx context.Context, nodes, each int) error {
	err := s.set(ctx, nodes, func(b *bytes.Buffer, n int) {
		fmt.Fprintf(b, `{"Node":{"Verb":"set","Node":{"ID":%q,"Node":"size-%05d","Address":"10.%d.%d.%d",`+
			`"Datacenter":"dc1","Meta":{"rack":"r%02d"}}}}`, bench.FleetNodeID(n), n, n>>16&255, n>>8&255, n&255, n%40)
	})
	if err != nil {
		return err
	}
	err = s.set(ctx, nodes*each, func(b *bytes.Buffer, i int) {
		n, k := i/each, i%each
		fmt.Fprintf(b, `{"Service":{"Verb":"set","Node":"size-%05d","Service":{"ID":"app-%d","Service":"app-%04d",`+
			`"Port":%d,"Tags":["v%d"],"Meta":{"version":"1.2.%d"}}}}`, n, k, i%serviceNames, 20000+k, k, n%10)
	})
	if err != nil {
		return err
	}
	return s.set(ctx, nodes*checksOf(each), func(b *bytes.Buffer, i int) {
		check(b, i/checksOf(each), i%checksOf(each), "passing")
	})
}

// serviceNames is how many names the services share.
const serviceNames = 2000

func check(b *bytes.Buffer, n, k int, status string) {
	fmt.Fprintf(b, `{"Check":{"Verb":"set","Check":{"Node":"size-%05d","CheckID":"check-%d","Name":"check %d",`+
		`"Status":%q,"Output":"HTTP GET http://127.0.0.1:%d/health: 200 OK"}}}`, n, k, k, status, 20000+k)
}

// change sets checks of nodes, one a transaction: none shares an fsync with another one because it was sent with it.
func (s *server) change(ctx context.Context, nodes, changes int) error {
	_, err := bench.RunCount(ctx, s.HTTP, 4, changes, func(i int) []byte {
		var b bytes.Buffer
		b.WriteByte('[')
		check(&b, i%nodes, 0, []string{"warning", "critical"}[i/nodes%2])
		b.WriteByte(']')
		return bench.Request("PUT", s.HTTP, "/v1/txn", s.o.Token, b.Bytes())
	})
	if err != nil {
		return fmt.Errorf("change the catalog: %w", err)
	}
	return nil
}

// wakes is how often all watchers are woken.
const wakes = 5

// watchers has blocking queries wait for a service of ten instances, and wakes them all a few times.
func (s *server) watchers(ctx context.Context, r *Report, flip Part) error {
	n := min(s.o.Watchers, s.o.Sample)
	s.o.Say("%d watchers ...", n)
	const instances = 10
	if err := s.instances(ctx, instances, 0); err != nil {
		return err
	}
	before, err := s.counts(ctx)
	if err != nil {
		return err
	}
	w := &waiting{s: s, path: "/v1/health/service/size-watched?wait=10m"}
	err = w.open(ctx, n)
	defer w.close()
	if err != nil {
		return err
	}
	parked, err := s.counts(ctx)
	if err != nil {
		return err
	}
	for i := range wakes {
		if err := s.instances(ctx, 1, i+1); err != nil {
			return err
		}
		if err := w.round(ctx); err != nil {
			return err
		}
	}
	woken, err := s.counts(ctx)
	if err != nil {
		return err
	}
	perWatcher := s.o.ChangesPerSecond * instances / float64(max(s.o.Services, instances))
	r.Parts = append(r.Parts, Part{What: "watchers", Units: s.o.Watchers, Sample: n,
		BytesEach: float64(parked.bytes-before.bytes) / float64(n),
		CPUMicros: ((woken.cpu-parked.cpu)*1e6 - wakes*flip.CPUMicros) / float64(n*wakes),
		PerSecond: perWatcher * float64(s.o.Watchers),
		From:      fmt.Sprintf("corbel bench watch --watchers %d --instances %d", s.o.Watchers, instances),
		Assumes: fmt.Sprintf("each watches a service of %d instances, so %.3f of the changes a second wake it", instances,
			perWatcher)})
	return nil
}

// instances registers the first n instances of the watched service, in a version.
func (s *server) instances(ctx context.Context, n, version int) error {
	_, err := bench.RunCount(ctx, s.HTTP, 1, n, func(i int) []byte {
		body := fmt.Sprintf(`{"Node":"watched-%d","Address":"10.200.0.%d","Service":{"ID":"size-watched","Service":`+
			`"size-watched","Port":8080,"Meta":{"version":"%d"}}}`, i, i+1, version)
		return bench.Request("PUT", s.HTTP, "/v1/catalog/register", s.o.Token, []byte(body))
	})
	return err
}

// waiting are watchers, each with a connection of its own.
type waiting struct {
	s       *server
	path    string
	answers chan error // one for each answer of each watcher
	wg      sync.WaitGroup
	n       int
	stop    context.CancelFunc
}

// open starts watchers, and returns when each has its first answer and has asked again.
func (w *waiting) open(ctx context.Context, n int) error {
	ctx, w.stop = context.WithCancel(ctx)
	w.n, w.answers = n, make(chan error, n)
	for range n {
		c, err := bench.DialWire(ctx, w.s.HTTP, 16<<10)
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { _ = c.Close() })
		w.wg.Go(func() {
			for index := uint64(0); ; {
				raw := bench.Request("GET", w.s.HTTP, fmt.Sprintf("%s&index=%d", w.path, index), w.s.o.Token, nil)
				reply, err := c.Do(raw, false, watchLimit)
				if err == nil && reply.Status != 200 {
					err = fmt.Errorf("a watcher got status %d", reply.Status)
				}
				select {
				case w.answers <- err:
				case <-ctx.Done():
					return
				}
				if index = reply.Index(); err != nil {
					return
				}
			}
		})
	}
	err := w.round(ctx)
	bench.Settle(ctx, time.Second)
	return err
}

// watchLimit is longer than a query waits.
const watchLimit = 11 * time.Minute

// round waits for one answer of each watcher.
func (w *waiting) round(ctx context.Context) error {
	for range w.n {
		select {
		case err := <-w.answers:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (w *waiting) close() {
	w.stop()
	w.wg.Wait()
}

// proxies measures a small mesh.
func proxies(ctx context.Context, o *Options, r *Report) error {
	nodes := max(1, min(o.Nodes, o.Sample/10))
	n := max(nodes, nodes*(o.Proxies/o.Nodes))
	p, err := propagation.RunPropagation(ctx, propagation.PropagationOptions{Options: o.plain(), Nodes: nodes, Proxies: n,
		Services: max(3, min(o.Services/2, n)/3*3), Change: "deregister", Rounds: wakes})
	if err != nil {
		return fmt.Errorf("measure proxies: %w", err)
	}
	full := int64(0)
	for _, peak := range p.BringUp.Memory.ServerBytes {
		full += peak
	}
	cpu := 0.0
	for _, round := range p.Rounds {
		cpu += round.CPU.Servers
	}
	perNode := float64(o.Proxies) / float64(o.Nodes)
	r.Parts = append(r.Parts, Part{What: "hosts with proxies", Units: o.Nodes, Sample: nodes,
		BytesEach: float64(full-r.EmptyBytes) / float64(nodes), // with what the catalog has of them
		CPUMicros: cpu * 1e6 / float64(len(p.Rounds)*nodes), PerSecond: o.ChangesPerSecond * perNode / 10,
		From:    fmt.Sprintf("corbel bench propagation --servers 3 --nodes %d --proxies %d", o.Nodes, o.Proxies),
		Assumes: fmt.Sprintf("%.1f proxies a node; a change interests one host in ten", perNode)})
	return nil
}

// renewEvery is how often a lease is renewed: at two thirds of an hour.
const renewEvery = 40 * time.Minute

// leases measures logins, each of which makes a lease.
func leases(ctx context.Context, o *Options, r *Report) error {
	n := min(o.Leases, 10*o.Sample)
	res, err := secretsload.RunLeases(ctx, secretsload.LeasesOptions{SecretsOptions: secretsload.SecretsOptions{
		Options: o.plain()}, Leases: n, Prefix: min(n, o.Sample), Storms: []string{"start"}})
	if err != nil {
		return fmt.Errorf("measure leases: %w", err)
	}
	part := Part{What: "leases", Units: o.Leases, Sample: n, Fsyncs: 1,
		PerSecond: float64(o.Leases) / renewEvery.Seconds(),
		From:      fmt.Sprintf("corbel bench leases --leases %d --storm start,prefix", o.Leases),
		Assumes:   "each is renewed every 40 minutes, which costs what making it costs, and shares no fsync"}
	for _, row := range res.Rows {
		part.BytesEach = max(part.BytesEach, float64(row.LeaseBytes))
		part.CPUMicros = max(part.CPUMicros, row.ServerCPUMicros)
	}
	r.Parts = append(r.Parts, part)
	return nil
}

// keepalive is the seconds between an agent's keepalives.
const keepalive = 20

// agents measures sessions of monitoring agents that keep alive and answer checks.
func agents(ctx context.Context, o *Options, r *Report) error {
	n := min(o.Agents, o.Sample)
	res, err := monitorload.RunAgents(ctx, monitorload.MonitorOptions{Options: o.plain(), Agents: n, Checks: 4,
		Interval: 10, Subscriptions: 4, Keepalive: keepalive})
	if err != nil {
		return fmt.Errorf("measure agents: %w", err)
	}
	perAgent := (res.Steady.ServersCPU + res.Rest.ServersCPU) / 2 * float64(runtime.NumCPU()) / float64(n) // cores
	rate := 1.0/10 + 1.0/keepalive
	r.Parts = append(r.Parts, Part{What: "monitoring agents", Units: o.Agents, Sample: n,
		BytesEach: float64(max(res.BytesPerSession, res.RampBytes)), CPUMicros: perAgent * 1e6 / rate,
		PerSecond: rate * float64(o.Agents),
		From:      fmt.Sprintf("corbel bench agents --agents %d --servers 3", o.Agents),
		Assumes:   "each has one check every 10 s and a keepalive every 20 s; results share fsyncs"})
	return nil
}

// plain are the options of a bench below this one: it measures no floors.
func (o *Options) plain() bench.Options {
	p := o.Options
	p.SkipFloors, p.Servers = true, 1
	return p
}
