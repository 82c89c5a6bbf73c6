package pairs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/monitorload"
	"corbel.dev/corbel/bench/secretsload"
)

func doctorKV(ctx context.Context, o *DoctorOptions, r *bench.Result) error {
	return doctorPairs(ctx, o, r, []string{"KV PUT", "KV GET"}, pairsOfServers, o.openKV)
}

// closing returns what closes those that were opened.
func closing[C interface {
	comparable
	Stop()
}](both *[2]C) func() {
	return func() {
		for _, c := range both {
			if none := *new(C); c != none {
				c.Stop()
			}
		}
	}
}

// openKV starts two servers that have done some work.
func (o *DoctorOptions) openKV(ctx context.Context, order []int) (pair pairOf, done func(), err error) {
	var both [2]*bench.Target
	done = closing(&both)
	defer func() {
		if err != nil {
			done()
		}
	}()
	run := func(ctx context.Context, with int, kind string, d time.Duration) (costOf, error) {
		c := both[with]
		method, body := "PUT", make([]byte, bench.KvValueBytes)
		if kind == "KV GET" {
			method, body = "GET", nil
		}
		spec := bench.LoadSpec{Addr: c.HTTP, Connections: o.Connections, Duration: d,
			OK: func(r bench.Reply) bool { return r.Status == 200 || r.Status == 404 },
			Next: func(int, int64) []byte {
				return bench.Request(method, c.HTTP, fmt.Sprintf("/v1/kv/bench/%d", rand.IntN(bench.KvKeys)), "", body)
			}}
		begin := c.Servers[0].CPU()
		load, err := bench.RunLoad(ctx, spec)
		if err != nil {
			return costOf{}, err
		}
		return costOf{(c.Servers[0].CPU() - begin) * 1e6 / float64(load.Requests), float64(load.Requests),
			bench.Millis(load.Hist)["p99"]}, nil
	}
	for _, with := range order {
		one := o.Options
		if with == 0 {
			one.ServerArgs = append(slices.Clone(one.ServerArgs), "-hcl", withoutDoctor)
		}
		if both[with], err = bench.OpenTarget(ctx, &one); err != nil {
			return nil, nil, err
		}
		if _, err = run(ctx, with, "KV PUT", o.Duration/3); err != nil {
			return nil, nil, err
		}
	}
	return alternating(func(ctx context.Context, with int, kind string) (costOf, error) {
		return run(ctx, with, kind, o.Duration)
	}), done, nil
}

func doctorSecrets(ctx context.Context, o *DoctorOptions, r *bench.Result) error {
	dir, err := os.MkdirTemp("", "corbel-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "doctor.hcl")
	if err := os.WriteFile(file, []byte(withoutDoctor), 0o600); err != nil {
		return err
	}
	return doctorPairs(ctx, o, r, []string{"secrets write", "secrets read"}, pairsOfServers,
		func(ctx context.Context, order []int) (pairOf, func(), error) {
			return o.openSecrets(ctx, order, file)
		})
}

// openSecrets starts two servers with a thousand secrets each; file is the configuration of that without the doctor.
func (o *DoctorOptions) openSecrets(ctx context.Context, order []int, file string) (pair pairOf, done func(),
	err error) {
	var both [2]*secretsload.VaultCluster
	done = closing(&both)
	defer func() {
		if err != nil {
			done()
		}
	}()
	const names = 1000
	puts, gets := [2][][]byte{}, [2][][]byte{}
	for _, with := range order {
		one := secretsload.SecretsOptions{Options: o.Options}
		if with == 0 {
			one.ServerArgs = append(slices.Clone(one.ServerArgs), "-config="+file)
		}
		if err = one.Complete(); err != nil {
			return nil, nil, err
		}
		c, err := secretsload.OpenVault(ctx, &one)
		if err != nil {
			return nil, nil, err
		}
		both[with] = c
		if err = c.Call(ctx, "POST", "sys/mounts/"+secretsload.SecretsMount, map[string]any{"type": "kv"}, nil); err != nil {
			return nil, nil, err
		}
		for i := range names {
			puts[with] = append(puts[with], c.Request("PUT", secretsload.SecretPath(1, i), c.Token, secretsload.SecretBody(1)))
			gets[with] = append(gets[with], c.Request("GET", secretsload.SecretPath(1, i), c.Token, nil))
		}
		if err = c.Fill(ctx, puts[with]); err != nil {
			return nil, nil, err
		}
	}
	return alternating(func(ctx context.Context, with int, kind string) (costOf, error) {
		list := puts[with]
		if kind == "secrets read" {
			list = gets[with]
		}
		row, err := both[with].Measure(ctx, kind, "",
			bench.LoadSpec{Next: func(int, int64) []byte { return list[rand.IntN(len(list))] }})
		return costOf{row.ServerCPUMicros, float64(row.Requests), row.Millis["p99"]}, err
	}), done, nil
}

// doctorEvents has two servers take the same 5,000 results a second each at the same time, well below what they take,
// so that latency is the path's and not a queue's. Both live through all pairs: a server's start, its agents'
// registration and the doctor's first minute would be most of a short run.
func doctorEvents(ctx context.Context, o *DoctorOptions, r *bench.Result) error {
	var both [2]*monitorload.Plane
	for with := range both {
		one := &monitorload.MonitorOptions{Options: o.Options, Agents: 500, Checks: 40, Subscriptions: 4, Interval: 1}
		one.Progress = nil
		if with == 0 {
			one.ServerArgs = append(slices.Clone(one.ServerArgs), "-hcl", withoutDoctor)
		}
		if err := one.Complete(); err != nil {
			return err
		}
		p, err := monitorload.OpenPlane(ctx, one)
		if err != nil {
			return err
		}
		defer p.Close()
		both[with] = p
		if err := p.Prepare(ctx); err != nil {
			return err
		}
		if err := p.Play(ctx); err != nil {
			return err
		}
		if err := p.AwaitSessions(ctx, monitorload.RampMost(one)); err != nil {
			return err
		}
	}
	for _, p := range both {
		if err := p.Checks(ctx); err != nil {
			return err
		}
	}
	// each key's first result is written whole
	bench.Settle(ctx, max(2*time.Second, min(2*o.Duration, monitorload.StartUp)))
	measure := func(ctx context.Context, _ string, _ int) (got [2]costOf, err error) {
		var before, after [2]eventsAt
		for with, p := range both {
			if before[with], err = eventsNow(ctx, p, true); err != nil {
				return got, err
			}
		}
		bench.Settle(ctx, o.Duration)
		for with, p := range both {
			if after[with], err = eventsNow(ctx, p, false); err != nil {
				return got, err
			}
		}
		for with, p := range both {
			stored := after[with].stored - before[with].stored
			if stored <= 0 {
				return got, fmt.Errorf("no event was stored in %s", o.Duration)
			}
			durable, _ := p.Follow.Latencies()
			got[with] = costOf{(after[with].cpu - before[with].cpu) * 1e6 / stored, stored, durable["p99"]}
		}
		return got, ctx.Err()
	}
	return doctorPairs(ctx, o, r, []string{"events"}, o.Pairs, func(context.Context, []int) (pairOf, func(),
		error) {
		return measure, func() {}, nil
	})
}

// eventsAt is how many results servers had stored, and for how many seconds of CPU.
type eventsAt struct{ stored, cpu float64 }

// eventsNow begins or ends a run: both figures are of one moment.
func eventsNow(ctx context.Context, p *monitorload.Plane, begins bool) (eventsAt, error) {
	now, err := p.Figures(ctx)
	at := eventsAt{now.Stored, p.Usage().Servers}
	if begins {
		p.Follow.Forget()
	}
	p.Follow.Record(begins)
	return at, err
}
