package jobsruns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// Crash is a run of kills under load.
type Crash struct {
	Servers int // 1 or 3
	Nodes   int // default 30
	Cycles  int // of load, a kill -9 or a loss of power, and a restart
	// Load is how long the load of a cycle lasts at most; default a second.
	Load time.Duration
}

// Report tells what a run did.
type Report struct {
	Cycles, Powerless, Changes, Retries, Dispatches, Allocations int
	// Starts are the times from a start until every server answered for the jobs plane.
	Starts []time.Duration
}

// dispatcher is the job that is dispatched.
const dispatcher = "parameterized"

// judgeEach is after how many cycles everything is compared: what does not change is after each.
const judgeEach = 5

// RunCrash does cycles on one cluster, whose nodes live all the while: nothing that nobody changed may move.
func RunCrash(ctx context.Context, l *faultrun.Lab, cfg Crash, seed uint64) (report Report, err error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 30
	}
	if cfg.Load == 0 {
		cfg.Load = time.Second
	}
	f, err := open(ctx, l, harness.Config{Servers: cfg.Servers, Power: true}, cfg.Nodes)
	if err != nil {
		return report, err
	}
	defer f.close()
	x := &crashRun{fleet: f, ledger: newLedger(f), cfg: cfg, seed: seed, rng: rand.New(rand.NewPCG(seed, 16))}
	defer func() {
		x.note(&report)
		if err = errors.Join(err, f.Damage()); err != nil {
			err = fmt.Errorf("after %d cycles: %w\n%s", report.Cycles, err, f.Logs())
		}
	}()
	if err := x.begin(ctx); err != nil {
		return report, err
	}
	for range cfg.Cycles {
		if err := x.cycle(ctx, &report); err != nil {
			return report, err
		}
	}
	if err := x.exact(ctx); err != nil {
		return report, err
	}
	if x.changes < cfg.Cycles {
		return report, fmt.Errorf("only %d changes were acknowledged in %d cycles: nothing was tested", x.changes,
			cfg.Cycles)
	}
	return report, nil
}

// crashRun is one run.
type crashRun struct {
	*fleet
	*ledger
	cfg     Crash
	seed    uint64
	rng     *rand.Rand
	writers []*writer
	still   map[string]string // node by allocation, of what never changes

	counted sync.Mutex // guards changes
	changes int
}

// writer owns some jobs.
type writer struct {
	*anywhere
	x    *crashRun
	jobs []*work
	next int // of tokens
	name string
}

// begin registers what there is at first.
func (x *crashRun) begin(ctx context.Context) error {
	x.ledger.jobs = []*work{
		{id: "still", kind: "service", count: 2 * x.cfg.Nodes, still: true},
		{id: "still-batch", kind: "batch", count: x.cfg.Nodes, still: true},
		{id: "everywhere", kind: "system", count: 1, still: true},
		{id: "grows", kind: "service", count: 10}, {id: "grows-batch", kind: "batch", count: 10},
		{id: "rolls", kind: "service", count: 10}, {id: "port", kind: "service", count: 5, port: 8080},
		{id: "stops", kind: "service", count: 10}, {id: "stops-batch", kind: "batch", count: 10},
	}
	for i := range 3 {
		x.writers = append(x.writers, &writer{anywhere: x.anywhere(x.seed, uint64(100+i)), x: x, name: fmt.Sprint("w", i)})
	}
	clerk := x.writers[0]
	for i, w := range x.ledger.jobs {
		if !w.still {
			x.writers[i%3].jobs = append(x.writers[i%3].jobs, w)
		}
		if err := w.put(ctx, clerk.anywhere); err != nil {
			return err
		}
	}
	if err := clerk.do(ctx, "PUT", "/v1/jobs", parameterized(), nil); err != nil {
		return err
	}
	if err := x.exact(ctx); err != nil {
		return err
	}
	var err error
	x.still, err = x.stillAt(ctx)
	return err
}

// parameterized is the job that is dispatched: its task ends soon.
func parameterized() any {
	type object = map[string]any
	return object{"Job": object{"ID": dispatcher, "Name": dispatcher, "Type": "batch", "Datacenters": []string{"*"},
		"ParameterizedJob": object{"Payload": "forbidden"},
		"TaskGroups": []object{{"Name": "g", "Count": 1, "EphemeralDisk": object{"SizeMB": taskDiskMB},
			"Tasks": []object{{"Name": "t", "Driver": "mock_driver", "Config": object{"run_for": "20ms"},
				"LogConfig": object{"MaxFiles": 1, "MaxFileSizeMB": 1},
				"Resources": object{"CPU": taskCPU, "MemoryMB": taskMemoryMB}}}}}}}
}

// run changes jobs until `until` ends; what was begun is ended.
func (w *writer) run(ctx, until context.Context) error {
	for until.Err() == nil {
		var err error
		if w.rng.IntN(3) == 0 {
			err = w.change(ctx)
		} else {
			err = w.dispatch(ctx)
		}
		if err != nil {
			return err
		}
		w.x.counted.Lock()
		w.x.changes++
		w.x.counted.Unlock()
		_ = spawn.Sleep(until, time.Duration(w.rng.IntN(20))*time.Millisecond)
	}
	return nil
}

// change changes one of the writer's jobs.
func (w *writer) change(ctx context.Context) error {
	job := w.jobs[w.rng.IntN(len(w.jobs))]
	switch most := 15; {
	case job.id == "stops" || job.id == "stops-batch":
		job.count = 10 - job.count
	case job.id == "rolls":
		job.rev++
	case job.port != 0:
		job.count = 1 + w.rng.IntN(min(w.x.cfg.Nodes, most))
	default:
		job.count = 1 + w.rng.IntN(most)
	}
	return job.put(ctx, w.anywhere)
}

// dispatch makes one child, however often it is asked for.
func (w *writer) dispatch(ctx context.Context) error {
	w.next++
	token := fmt.Sprintf("%s-%d", w.name, w.next)
	var answer struct{ DispatchedJobID string }
	if err := w.do(ctx, "PUT", "/v1/job/"+dispatcher+"/dispatch?idempotency_token="+url.QueryEscape(token),
		map[string]any{}, &answer); err != nil {
		return err
	}
	if answer.DispatchedJobID == "" {
		return fmt.Errorf("the dispatch %s has no job", token)
	}
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	w.x.children[token] = answer.DispatchedJobID
	return nil
}

// cycle loads, kills one server or all at a random instant, and has everybody end what they began.
func (x *crashRun) cycle(ctx context.Context, report *Report) error {
	stopWatch := background(ctx, x.watch(x.rng.Uint64()))
	until, enough := context.WithCancel(ctx)
	defer enough()
	writers := make([]func(context.Context) error, 0, len(x.writers))
	for _, w := range x.writers {
		writers = append(writers, func(context.Context) error { return w.run(ctx, until) })
	}
	ended := background(ctx, writers...)
	_ = spawn.Sleep(ctx, x.cfg.Load/8+time.Duration(x.rng.Int64N(int64(x.cfg.Load))))
	took, err := x.crash(ctx, &report.Powerless)
	enough()
	if err = errors.Join(err, ended(), stopWatch()); err != nil {
		return err
	}
	report.Cycles++
	report.Starts = append(report.Starts, took)
	now, err := x.stillAt(ctx)
	if err == nil {
		err = moved(x.still, now)
	}
	if err == nil && report.Cycles%judgeEach == 0 {
		err = x.exact(ctx)
	}
	return err
}

// crash kills one, half of the time the leader of the plane, or all.
func (x *crashRun) crash(ctx context.Context, powerless *int) (took time.Duration, err error) {
	victims := x.Servers
	if len(victims) > 1 && x.rng.IntN(4) > 0 {
		victims = []*faultrun.Server{x.Servers[x.rng.IntN(len(x.Servers))]}
		if x.rng.IntN(2) == 0 {
			if leader, err := x.leader(ctx); err == nil {
				victims[0] = leader
			}
		}
	}
	for _, s := range victims {
		_ = s.Control.Kill() // all at once
	}
	for _, s := range victims {
		if err := s.Crash(x.rng, powerless); err != nil {
			return 0, err
		}
	}
	if len(victims) < len(x.Servers) {
		_ = spawn.Sleep(ctx, time.Duration(x.rng.IntN(3000))*time.Millisecond) // the others go on
	}
	began := time.Now()
	if err = x.Start(); err == nil {
		err = errors.Join(x.Ready(ctx, harness.StartLimit), x.serves(ctx))
	}
	return time.Since(began), err
}

// note fills in what the writers did.
func (x *crashRun) note(report *Report) {
	report.Changes, report.Dispatches, report.Allocations = x.changes, len(x.children), len(x.seen)
	for _, w := range x.writers {
		report.Retries += w.tries
		w.client.Close()
	}
}
