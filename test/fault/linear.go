package faultrun

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
)

// Linear is a run of A1 and A2: concurrent clients over a cluster that a nemesis
// breaks, judged for linearizability and for how stale weaker reads were.
type Linear struct {
	Clients  int           // default 8
	Duration time.Duration // of the load
	Faults   []FaultKind   // default all
	// Judge bounds one judgement; default 60 s.
	Judge time.Duration
}

// LinearReport tells what a run did.
type LinearReport struct {
	Operations, Unknown, Failed int
	LockOperations              int
	Faults                      map[FaultKind]int
	Bounds                      BoundsReport
}

// MonitorHCL turns the monitor plane on.
const MonitorHCL = `monitor {
  enabled                = true
  cluster_admin_username = "admin"
  cluster_admin_password = "P@ssw0rd!"
}`

// LinearHCL lets a server that waits for a leader give up before its clients do, so that fewer outcomes are unknown.
const LinearHCL = `performance { rpc_hold_timeout = "1s" }`

// Epoch is how long a set of keys is in use: it keeps histories per key short enough to judge.
const Epoch = time.Second

// LinearRun is one run's shared state.
type LinearRun struct {
	Cluster   *Cluster
	Kv, Locks *history.Recorder
	Bounds    *bounds
	Begin     time.Time
}

// RunLinear does one history of the given seed on a fresh cluster of three.
func (l *Lab) RunLinear(ctx context.Context, cfg Linear, seed uint64) (report LinearReport, err error) {
	if cfg.Clients == 0 {
		cfg.Clients = 8
	}
	if len(cfg.Faults) == 0 {
		cfg.Faults = AllFaults
	}
	if cfg.Judge == 0 {
		cfg.Judge = time.Minute
	}
	c, err := l.Open(ctx, harness.Config{Servers: 3, HCL: []string{LinearHCL, StableHCL}})
	if err != nil {
		return report, err
	}
	defer c.Close()
	if err := c.Admin.RegisterNode(ctx, "clients"); err != nil {
		return report, err
	}
	run := &LinearRun{Cluster: c, Kv: history.NewRecorder(), Locks: history.NewRecorder(), Bounds: NewBounds(cfg.Clients),
		Begin: time.Now()}
	n := &Nemesis{C: c, Rng: rand.New(rand.NewPCG(seed, 1)), Kinds: cfg.Faults, Begin: run.Begin}
	broken := run.load(ctx, cfg, seed, n)
	report.Faults = n.Done
	if broken == nil {
		broken = c.Converged(ctx, 30*time.Second)
	}
	judged := run.judge(&report, cfg.Judge)
	err = errors.Join(broken, judged, c.Damage())
	if err != nil {
		err = errors.Join(err, l.KeepRun(seed, run, n))
	}
	return report, err
}

// load runs clients and nemesis for the duration, and returns what stopped them early.
func (r *LinearRun) load(ctx context.Context, cfg Linear, seed uint64, n *Nemesis) error {
	ctx, cancel := context.WithTimeout(ctx, cfg.Duration)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, cfg.Clients)
	for i := range cfg.Clients {
		wg.Go(func() {
			w := newWorker(r, i, cfg.Clients, seed)
			defer w.client.Close()
			errs[i] = w.run(ctx)
		})
	}
	err := n.Run(ctx)
	cancel()
	wg.Wait()
	return errors.Join(append(errs, err)...)
}

func (r *LinearRun) judge(report *LinearReport, limit time.Duration) error {
	var errs []error
	ops := r.Kv.History()
	v := history.Check(history.KV, ops, limit)
	report.Operations, report.Unknown, report.Failed = v.Judged+v.Failed, v.Open, v.Failed
	if err := v.Err(); err != nil {
		errs = append(errs, fmt.Errorf("KV: %w", err))
	}
	if v.Judged == 0 {
		errs = append(errs, errors.New("KV: nothing to judge: no operation was answered"))
	}
	locks := history.Check(history.Lock, r.Locks.History(), limit)
	report.LockOperations = locks.Judged + locks.Failed
	if err := locks.Err(); err != nil {
		errs = append(errs, fmt.Errorf("locks: %w", err))
	}
	var err error
	report.Bounds, err = r.Bounds.Judge()
	return errors.Join(append(errs, err)...)
}

// keep writes what a failed run leaves: histories, pictures, the nemesis's diary, logs.
func (l *Lab) KeepRun(seed uint64, r *LinearRun, n *Nemesis) error {
	if l.Keep == "" {
		return nil
	}
	dir := filepath.Join(l.Keep, fmt.Sprintf("linear-%d", seed))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for name, part := range map[string]struct {
		model porcupine.Model
		ops   []history.Operation
	}{"kv": {history.KV, r.Kv.History()}, "locks": {history.Lock, r.Locks.History()}} {
		v := history.Check(part.model, part.ops, 10*time.Second)
		if v.Err() != nil {
			errs = append(errs, v.Picture(filepath.Join(dir, name+".html")))
		}
		f, err := os.Create(filepath.Join(dir, name+".jsonl"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, history.Write(f, part.ops), f.Close())
	}
	errs = append(errs,
		os.WriteFile(filepath.Join(dir, "faults.txt"), []byte(strings.Join(n.Log, "\n")), 0o644),
		os.WriteFile(filepath.Join(dir, "servers.txt"), []byte(r.Cluster.Logs()), 0o644))
	return errors.Join(append(errs, fmt.Errorf("kept in %s", dir))...)
}

// worker is one client of a run.
type worker struct {
	shared  *LinearRun
	id, of  int
	rng     *rand.Rand
	client  *Client
	counter int
	indexes map[string]uint64 // what this client last read of each key
	holder  lockHolder
}

func newWorker(r *LinearRun, id, of int, seed uint64) *worker {
	w := &worker{shared: r, id: id, of: of, rng: rand.New(rand.NewPCG(seed, uint64(100+id))), indexes: map[string]uint64{}}
	w.client = NewClient(r.Cluster.Servers[id%len(r.Cluster.Servers)].HTTP)
	w.client.Timeout = 2 * time.Second
	return w
}

// hop goes to any server, the same one included.
func (w *worker) hop() {
	servers := w.shared.Cluster.Servers
	w.client.At(servers[w.rng.IntN(len(servers))].HTTP)
}

func (w *worker) step(ctx context.Context) (history.Outcome, error) {
	switch n := w.rng.IntN(100); {
	case n < 55:
		return w.kvStep(ctx), nil
	case n < 65:
		return w.txnStep(ctx), nil
	case n < 75:
		return w.lockStep(ctx)
	case n < 83:
		return w.writeRegister(ctx), nil
	default:
		return w.readRegister(ctx)
	}
}

func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		outcome, err := w.step(ctx)
		if err != nil {
			return fmt.Errorf("client %d: %w", w.id, err)
		}
		if outcome != history.OK || w.rng.IntN(20) == 0 {
			w.hop()
		}
		pause := time.Duration(w.rng.IntN(8)) * time.Millisecond
		if outcome == history.Failed {
			pause += 20 * time.Millisecond // a refused client that comes back at once fills the history with nothing
		}
		_ = spawn.Sleep(ctx, pause)
	}
	return nil
}

// keys are those of the current epoch; the first two are joined by transactions.
func (w *worker) key(n int) string {
	return "a1/" + strconv.Itoa(int(time.Since(w.shared.Begin)/Epoch)) + "/" + strconv.Itoa(n)
}

func (w *worker) value() string {
	w.counter++
	return strconv.Itoa(w.id) + "-" + strconv.Itoa(w.counter)
}

func (w *worker) kvStep(ctx context.Context) history.Outcome {
	key := w.key(w.rng.IntN(6))
	switch n := w.rng.IntN(100); {
	case n < 40:
		return w.get(ctx, key)
	case n < 65:
		return w.write(ctx, "PUT", "/v1/kv/"+key, history.Step{Kind: history.Put, Key: key, Value: w.value()})
	case n < 85:
		index := w.indexes[key]
		return w.write(ctx, "PUT", fmt.Sprintf("/v1/kv/%s?cas=%d", key, index),
			history.Step{Kind: history.CAS, Key: key, Value: w.value(), Index: index})
	case n < 93:
		return w.write(ctx, "DELETE", "/v1/kv/"+key, history.Step{Kind: history.Delete, Key: key})
	default:
		index := max(w.indexes[key], 1) // 0 means something else for a delete
		return w.write(ctx, "DELETE", fmt.Sprintf("/v1/kv/%s?cas=%d", key, index),
			history.Step{Kind: history.DeleteCAS, Key: key, Index: index})
	}
}

func (w *worker) get(ctx context.Context, key string) history.Outcome {
	step := history.Step{Kind: history.Get, Key: key}
	p := w.shared.Kv.Begin(w.id, step)
	pair, found, r := w.client.get(ctx, key, "?consistent")
	step.Found, step.Value, step.Index = found, pair.Text(), pair.ModifyIndex
	if r.Outcome == history.OK {
		w.indexes[key] = pair.ModifyIndex
	}
	r.end(p, step)
	return r.Outcome
}

func (w *worker) write(ctx context.Context, method, path string, step history.Step) history.Outcome {
	p := w.shared.Kv.Begin(w.id, step)
	r := w.client.Do(ctx, method, path, []byte(step.Value))
	step.Done = strings.TrimSpace(string(r.Body)) == "true"
	if r.Outcome == history.OK && !step.Done && (step.Kind == history.Put || step.Kind == history.Delete) {
		r.Outcome = history.Failed // `false` to an unconditional write: refused, and worth a look
		r.Err = fmt.Errorf("an unconditional write was answered %q", r.Body)
	}
	r.end(p, step)
	return r.Outcome
}

// txnStep writes, or reads, the two joined keys together.
func (w *worker) txnStep(ctx context.Context) history.Outcome {
	a, b := w.key(0), w.key(1)
	if w.rng.IntN(3) == 0 {
		return w.txnRead(ctx, a, b)
	}
	first := txnOp{txnKV{Verb: "set", Key: a, Value: []byte(w.value())}}
	step := history.Step{Kind: history.Put, Key: a, Value: string(first.KV.Value)}
	switch w.rng.IntN(3) {
	case 0:
		if index := w.indexes[a]; index != 0 {
			first.KV.Verb, first.KV.Index = "cas", index
			step.Kind, step.Index, step.Done = history.CAS, index, true
		}
	case 1:
		first = txnOp{txnKV{Verb: "delete", Key: a}}
		step = history.Step{Kind: history.Delete, Key: a}
	}
	second := txnOp{txnKV{Verb: "set", Key: b, Value: []byte(w.value())}}
	steps := []history.Step{step, {Kind: history.Put, Key: b, Value: string(second.KV.Value)}}
	p := w.shared.Kv.Begin(w.id, steps...)
	_, r := w.client.txn(ctx, first, second)
	r.end(p, steps...)
	return r.Outcome
}

func (w *worker) txnRead(ctx context.Context, keys ...string) history.Outcome {
	var steps []history.Step
	var ops []txnOp
	for _, key := range keys {
		steps = append(steps, history.Step{Kind: history.Get, Key: key})
		ops = append(ops, txnOp{txnKV{Verb: "get-or-empty", Key: key}})
	}
	p := w.shared.Kv.Begin(w.id, steps...)
	pairs, r := w.client.txnConsistent(ctx, ops...)
	if r.Outcome == history.OK && len(pairs) != len(keys) {
		r.Outcome, r.Err = history.Unknown, fmt.Errorf("%d results for %d operations", len(pairs), len(keys))
	}
	if r.Outcome == history.OK {
		for i, pair := range pairs {
			steps[i].Found, steps[i].Value, steps[i].Index = pair.Value != nil, pair.Text(), pair.ModifyIndex
		}
	}
	r.end(p, steps...)
	return r.Outcome
}
