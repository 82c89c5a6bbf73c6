// Package upgraderuns has the scenario of a rolling upgrade: each server of a cluster, and its agent, are replaced by
// those of the next release and then by those of the last one again, under load.
package upgraderuns

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// Upgrade says between what.
type Upgrade struct {
	// Last is the program of the last release; the Lab's is the next one.
	Last    string
	Servers int // [3, or the Lab's]
	Writers int // [4]
	// Once ends when all servers were replaced, with little load.
	Once bool
}

// Report tells what clients saw.
type Report struct {
	// Requests went through an agent, which answered each; Writes were acknowledged by servers, Unknown of them were under
	// way when a server ended.
	Requests, Failed, Writes, Unknown int
	Replaced                          int           // processes
	Slowest                           time.Duration // request through the agent
}

// clients are those whose requests go through the agent, which never repeats one: none may fail.
const clients = 4

// between is how long the load goes on with each mix of releases.
const between = 500 * time.Millisecond

// Run runs the scenario.
func Run(ctx context.Context, l *faultrun.Lab, cfg Upgrade, seed uint64) (*Report, error) {
	if cfg.Servers == 0 {
		cfg.Servers = 3
	}
	if cfg.Writers == 0 {
		cfg.Writers = 4
	}
	old := *l
	old.Binary = cfg.Last
	c, err := old.Open(ctx, harness.Config{Servers: cfg.Servers})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	agent, err := c.StartAgent()
	if err != nil {
		return nil, err
	}
	defer agent.Kill()
	r := &run{Cluster: c, agent: agent, once: cfg.Once, ledger: faultrun.NewLedger()}
	r.writers = faultrun.NewWriters(c, r.ledger, seed, cfg.Writers)
	if cfg.Once {
		for _, w := range r.writers.List {
			w.Pace = 100 * time.Millisecond
		}
	}
	defer r.writers.Close()
	err = r.all(ctx, cfg.Last, l.Binary)
	r.writers.Stop()
	r.report.Writes, r.report.Unknown, r.report.Failed = r.ledger.Acked, r.ledger.Unknown, len(r.failed)
	r.report.Requests, r.report.Slowest = int(r.sent.Load()), time.Duration(r.slowest.Load())
	if err != nil {
		err = fmt.Errorf("seed %d: %w\n%s\nagent:\n%s", seed, err, c.Logs(), agent.Log())
	}
	return &r.report, err
}

// run is one run.
type run struct {
	*faultrun.Cluster

	agent   *faultrun.Server
	once    bool
	ledger  *faultrun.Ledger
	writers *faultrun.Writers
	report  Report

	sent, slowest atomic.Int64

	mu     sync.Mutex // guards the rest
	doing  string     // what is replaced
	failed []error
}

// all goes up and down again.
func (r *run) all(ctx context.Context, last, next string) error {
	if err := r.agentReady(ctx); err != nil {
		return err
	}
	r.writers.Start(ctx)
	if r.once {
		return r.replaceServers(ctx, next)
	}
	// Servers before agents on the way up, agents before servers on the way down: a server never serves a newer agent.
	for _, step := range []func() error{
		func() error { return r.replaceServers(ctx, next) },
		func() error { return r.replaceAgent(ctx, next) },
		func() error { return r.replaceAgent(ctx, last) },
		func() error { return r.replaceServers(ctx, last) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	r.writers.Stop()
	if err := r.Converged(ctx, harness.StartLimit); err != nil {
		return err
	}
	return errors.Join(r.Audit(ctx, r.ledger), r.Damage())
}

// replaceServers replaces one after the other, the leader last, under load through the agent.
func (r *run) replaceServers(ctx context.Context, with string) error {
	stop := r.load(ctx)
	defer stop()
	order, err := r.leaderLast(ctx)
	if err != nil {
		return err
	}
	for _, s := range order {
		if err := r.replace(s, with); err != nil {
			return err
		}
		if err := errors.Join(r.Ready(ctx, harness.StartLimit), r.tolerant(ctx), spawn.Sleep(ctx, between)); err != nil {
			return fmt.Errorf("%s as %s: %w", s.Name, with, err)
		}
	}
	stop()
	if err := r.failures(); err != nil {
		return err
	}
	// What was acknowledged is there, whichever release reads it.
	r.writers.Stop()
	defer r.writers.Start(ctx)
	return errors.Join(r.Converged(ctx, harness.StartLimit), r.Audit(ctx, r.ledger))
}

func (r *run) leaderLast(ctx context.Context) ([]*faultrun.Server, error) {
	leader, err := r.AwaitLeader(ctx, harness.StartLimit)
	if err != nil {
		return nil, err
	}
	var list []*faultrun.Server
	for _, s := range r.Servers {
		if s != leader {
			list = append(list, s)
		}
	}
	return append(list, leader), nil
}

// replace ends a process in order and starts another program with its data.
func (r *run) replace(s *faultrun.Server, with string) error {
	r.mu.Lock()
	r.doing = fmt.Sprintf("%s (%s) gets %s since %s", s.Name, s.RPC, filepath.Base(with),
		time.Now().Format(time.StampMilli))
	r.mu.Unlock()
	if err := s.Stop(); err != nil {
		return err
	}
	former := s.Command
	s.Command = func() *exec.Cmd {
		cmd := former()
		next := exec.Command(with, s.Args...)
		next.Dir, next.Env = cmd.Dir, cmd.Env
		return next
	}
	r.report.Replaced++
	return s.Start()
}

// tolerant waits until one more server may go.
func (r *run) tolerant(ctx context.Context) error {
	return spawn.Until(ctx, harness.StartLimit, "autopilot to count one server that may go", func() error {
		var state struct{ FailureTolerance int }
		if err := r.Admin.At(r.Servers[0].HTTP).List(ctx, "/v1/operator/autopilot/health", &state); err != nil {
			return err
		}
		if state.FailureTolerance < 1 {
			return errors.New("none may")
		}
		return nil
	})
}

// replaceAgent replaces the agent: its own clients wait meanwhile, those of the servers do not.
func (r *run) replaceAgent(ctx context.Context, with string) error {
	if err := r.replace(r.agent, with); err != nil {
		return err
	}
	return r.agentReady(ctx)
}

func (r *run) agentReady(ctx context.Context) error {
	return spawn.Until(ctx, harness.StartLimit, "the agent", func() error {
		if reply := r.Admin.At(r.agent.HTTP).Do(ctx, "GET", "/v1/catalog/nodes?consistent", nil); reply.Status != 200 {
			return errors.New(reply.String())
		}
		return nil
	})
}

// load has clients send requests to the agent until stop.
func (r *run) load(ctx context.Context) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	pause := time.Duration(0)
	if r.once {
		pause = 20 * time.Millisecond
	}
	for i := range clients {
		wg.Go(func() {
			client := faultrun.NewClient(r.agent.HTTP)
			client.Timeout = 30 * time.Second
			defer client.Close()
			for n := 0; ctx.Err() == nil; n++ {
				select {
				case <-end:
					return
				default:
				}
				r.one(ctx, client, fmt.Sprintf("/v1/kv/through/%d", i), n)
				_ = spawn.Sleep(ctx, pause)
			}
		})
	}
	return sync.OnceFunc(func() { close(end); wg.Wait() })
}

// one writes a value and reads it back.
func (r *run) one(ctx context.Context, client *faultrun.Client, path string, n int) {
	value := fmt.Sprint(n)
	for _, step := range []struct{ method, path, want string }{{"PUT", path, "true"},
		{"GET", path + "?raw&consistent", value}} {
		reply := client.Do(ctx, step.method, step.path, []byte(value))
		r.sent.Add(1)
		if ctx.Err() == nil && (reply.Status != http.StatusOK || string(reply.Body) != step.want) {
			r.mu.Lock()
			r.failed = append(r.failed, fmt.Errorf("%s: %s %s: %s after %s until %s, want %s", r.doing, step.method, step.path,
				reply, reply.Took, time.Now().Format(time.StampMilli), step.want))
			r.mu.Unlock()
		}
		for took := int64(reply.Took); ; {
			if former := r.slowest.Load(); took <= former || r.slowest.CompareAndSwap(former, took) {
				break
			}
		}
	}
}

// mostTold is how many failures are told.
const mostTold = 8

func (r *run) failures() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.failed); n > 0 {
		return fmt.Errorf("%d of %d requests through the agent failed:\n%w", n, r.sent.Load(),
			errors.Join(r.failed[:min(n, mostTold)]...))
	}
	return nil
}
