package secretsruns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// SecretsFaults are the kinds that a nemesis does to servers of the secrets plane.
var SecretsFaults = []faultrun.FaultKind{faultrun.FaultKill, faultrun.FaultFreeze, faultrun.FaultPartition,
	faultrun.FaultOneWay, faultrun.FaultClock, faultrun.FaultSkew,
	faultrun.FaultSlowDisk, faultrun.FaultFullDisk, faultrun.FaultBadDisk, faultrun.FaultStallDisk, faultrun.FaultKillAll}

// RunSecretsLinear is A1 for the secrets plane: clients of three servers on Raft read, write and check-and-set
// secrets of KV version 2 while a nemesis breaks the servers, and the history is judged for linearizability. A
// secret's version is its index.
func RunSecretsLinear(ctx context.Context, l *faultrun.Lab, cfg faultrun.Linear,
	seed uint64) (report faultrun.LinearReport, err error) {
	if cfg.Clients == 0 {
		cfg.Clients = 6
	}
	if len(cfg.Faults) == 0 {
		cfg.Faults = SecretsFaults
	}
	if cfg.Judge == 0 {
		cfg.Judge = time.Minute
	}
	r, err := OpenSecrets(ctx, l, Secrets{Servers: 3})
	if err != nil {
		return report, err
	}
	defer r.Close()
	c := &faultrun.Cluster{Cluster: harness.Of(r.Servers...), Admin: faultrun.NewClient(r.Servers[0].HTTP)}
	defer c.Admin.Close()
	if err := r.must(ctx, "POST", "sys/mounts/two", map[string]any{"type": "kv-v2"}); err != nil {
		return report, r.Explain(err)
	}
	if err := r.findWires(ctx); err != nil {
		return report, r.Explain(err)
	}
	run := &faultrun.LinearRun{Cluster: c, Kv: history.NewRecorder(), Locks: history.NewRecorder(),
		Bounds: faultrun.NewBounds(cfg.Clients),
		Begin:  time.Now()}
	n := &faultrun.Nemesis{C: c, Rng: rand.New(rand.NewPCG(seed, 2)), Kinds: cfg.Faults, Begin: run.Begin}
	broken := r.loadLinear(ctx, cfg, seed, run, n)
	if broken == nil {
		broken = r.must(ctx, "PUT", "two/data/after", map[string]any{"data": map[string]any{"v": "1"}})
	}
	report.Faults = n.Done
	v := history.Check(history.KV, run.Kv.History(), cfg.Judge)
	report.Operations, report.Unknown, report.Failed = v.Judged+v.Failed, v.Open, v.Failed
	judged := v.Err()
	if v.Judged == 0 {
		judged = errors.Join(judged, errors.New("nothing to judge: no operation was answered"))
	}
	if err = errors.Join(broken, judged, c.Damage()); err != nil {
		err = errors.Join(r.Explain(err), l.KeepRun(seed, run, n))
	}
	return report, err
}

// findWires learns where servers reach each other.
func (r *SecretsRun) findWires(ctx context.Context) error {
	code, body, err := r.Do(ctx, r.Servers[0], "GET", "sys/storage/raft/configuration", r.Token, nil)
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("status %d, %w", code, faultrun.OrNone(err))
	}
	var got struct {
		Data struct {
			Config struct {
				Servers []struct {
					ID      string `json:"node_id"`
					Address string `json:"address"`
				} `json:"servers"`
			} `json:"config"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return err
	}
	for _, s := range r.Servers {
		for _, known := range got.Data.Config.Servers {
			if known.ID == s.Name {
				s.RPC = known.Address
			}
		}
		if s.RPC == "" {
			return fmt.Errorf("%s is not in %s", s.Name, body)
		}
	}
	return nil
}

// loadLinear runs clients and nemesis for the duration, and returns what stopped them early.
func (r *SecretsRun) loadLinear(ctx context.Context, cfg faultrun.Linear, seed uint64, run *faultrun.LinearRun,
	n *faultrun.Nemesis) error {
	ctx, cancel := context.WithTimeout(ctx, cfg.Duration)
	defer cancel()
	var clients sync.WaitGroup
	for i := range cfg.Clients {
		clients.Go(func() {
			w := &secretsWorker{r: r, run: run, id: i, rng: rand.New(rand.NewPCG(seed, uint64(500+i))),
				versions: map[string]uint64{}}
			w.work(ctx)
		})
	}
	err := n.Run(ctx)
	cancel()
	clients.Wait()
	return err
}

// secretsWorker is one client. Each of its requests goes to any of the servers.
type secretsWorker struct {
	r        *SecretsRun
	run      *faultrun.LinearRun
	id       int
	rng      *rand.Rand
	counter  int
	versions map[string]uint64 // what it last read
}

// secretsTimeout is how long a client waits: less than a request may be parked for want of an active server.
const secretsTimeout = 2 * time.Second

func (w *secretsWorker) work(ctx context.Context) {
	for ctx.Err() == nil {
		key := "a1-" + strconv.Itoa(int(time.Since(w.run.Begin)/faultrun.Epoch)) + "-" + strconv.Itoa(w.rng.IntN(4))
		outcome := history.OK
		w.counter++
		step := history.Step{Kind: history.Put, Key: key, Value: fmt.Sprintf("%d-%d", w.id, w.counter)}
		switch n := w.rng.IntN(100); {
		case n < 45:
			outcome = w.read(ctx, key)
		case n < 70:
			outcome = w.write(ctx, step)
		default:
			step.Kind, step.Index = history.CAS, w.versions[key]
			outcome = w.write(ctx, step)
		}
		pause := time.Duration(w.rng.IntN(8)) * time.Millisecond
		if outcome == history.Failed {
			pause += 20 * time.Millisecond
		}
		_ = spawn.Sleep(ctx, pause)
	}
}

// ask sends a request to any server, for the active one: standbys answer reads of their own copy else.
func (w *secretsWorker) ask(ctx context.Context, method, key string, in any) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, secretsTimeout)
	defer cancel()
	return w.r.Do(ctx, w.r.Servers[w.rng.IntN(len(w.r.Servers))], method, "two/data/"+key, w.r.Token, in,
		"X-Vault-Forward", "active-node")
}

func (w *secretsWorker) read(ctx context.Context, key string) history.Outcome {
	step := history.Step{Kind: history.Get, Key: key}
	p := w.run.Kv.Begin(w.id, step)
	code, body, err := w.ask(ctx, http.MethodGet, key, nil)
	var got struct {
		Data struct {
			Data struct {
				V string `json:"v"`
			} `json:"data"`
			Metadata struct {
				Version uint64 `json:"version"`
			} `json:"metadata"`
		} `json:"data"`
	}
	switch {
	case err == nil && code == http.StatusNotFound && !bytes.Contains(body, []byte("unsupported path")):
	case err != nil || code != http.StatusOK:
		p.Fail(fmt.Errorf("status %d, %s, %w", code, body, faultrun.OrNone(err)))
		return history.Failed
	default:
		if err := json.Unmarshal(body, &got); err != nil || got.Data.Metadata.Version == 0 {
			p.Fail(fmt.Errorf("the answer %s: %w", body, faultrun.OrNone(err)))
			return history.Failed
		}
		step.Found, step.Value, step.Index = true, got.Data.Data.V, got.Data.Metadata.Version
	}
	w.versions[key] = step.Index
	p.OK(step)
	return history.OK
}

// write puts a value, or checks the version and sets. A refusal that says why nothing was done has no effect;
// anything else that is no answer may have had one.
func (w *secretsWorker) write(ctx context.Context, step history.Step) history.Outcome {
	in := map[string]any{"data": map[string]any{"v": step.Value}}
	if step.Kind == history.CAS {
		in["options"] = map[string]any{"cas": step.Index}
	}
	p := w.run.Kv.Begin(w.id, step)
	code, body, err := w.ask(ctx, http.MethodPost, step.Key, in)
	nothing := bytes.Contains(body, []byte("active cluster node not found")) ||
		bytes.Contains(body, []byte("Vault is sealed"))
	switch {
	case err == nil && code == http.StatusOK:
		step.Done = true
		p.OK(step)
		return history.OK
	case err == nil && code == http.StatusBadRequest && step.Kind == history.CAS &&
		bytes.Contains(body, []byte("check-and-set")):
		p.OK(step)
		return history.OK
	case err == nil && code == http.StatusServiceUnavailable && nothing, isDial(err):
		p.Fail(fmt.Errorf("status %d, %s, %w", code, body, faultrun.OrNone(err)))
		return history.Failed
	}
	p.Unknown(fmt.Errorf("status %d, %s, %w", code, body, faultrun.OrNone(err)))
	return history.Unknown
}

// isDial reports whether nothing was sent.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
