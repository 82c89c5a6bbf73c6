package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// DoctorOptions are the options of the bench of what the doctor costs.
type DoctorOptions struct {
	Options
	// Pairs is how many pairs of runs are made of each load, one with and one without the doctor.
	Pairs int
	// Loads are measured one after the other; empty is all of DoctorLoads.
	Loads []string
}

// DoctorLoads are the loads that RunDoctor knows.
var DoctorLoads = []string{"kv", "secrets", "events"}

// withoutDoctor is the configuration of a process that gathers no evidence.
const withoutDoctor = `telemetry { disable_doctor = true }`

func (o *DoctorOptions) complete() error {
	if o.Pairs == 0 {
		o.Pairs = 20
	}
	if o.Duration == 0 {
		o.Duration = 3 * time.Second
	}
	if len(o.Loads) == 0 {
		o.Loads = DoctorLoads
	}
	if o.Pairs < 1 || o.Pairs > 1000 {
		return fmt.Errorf("--pairs: must be between 1 and 1000, not %d", o.Pairs)
	}
	for _, l := range o.Loads {
		if !slices.Contains(DoctorLoads, l) {
			return fmt.Errorf("--loads: must be among %s, not %q", strings.Join(DoctorLoads, ", "), l)
		}
	}
	if o.Target != "" {
		return errors.New("--target: this bench starts the servers that it compares")
	}
	return o.Options.complete()
}

// costOf is what one run cost: microseconds of the servers' CPU for a request, and the 99th percentile in milliseconds.
type costOf struct{ cpu, p99 float64 }

// RunDoctor measures what the doctor's stage accounting, probes and profiles cost: runs with and without them alternate, and the
// rows' ratios are with over without, pair by pair.
func RunDoctor(ctx context.Context, o DoctorOptions) (*Result, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	r := newResult("doctor", &o.Options)
	for _, l := range o.Loads {
		run := map[string]func(context.Context, *DoctorOptions, *Result) error{"kv": doctorKV, "secrets": doctorSecrets, "events": doctorEvents}[l]
		if err := run(ctx, &o, r); err != nil {
			return nil, fmt.Errorf("%s: %w", l, err)
		}
	}
	return r, nil
}

// doctorPairs runs pairs of each kind of load and adds their rows. measure's first argument is 1 with the doctor, else 0.
func doctorPairs(ctx context.Context, o *DoctorOptions, r *Result, kinds []string, measure func(ctx context.Context, with int, kind string) (costOf, error)) error {
	for _, kind := range kinds {
		var cpu, p99 []float64
		var all [2][]costOf
		for pair := range o.Pairs {
			order := []int{0, 1}
			if pair%2 == 1 {
				slices.Reverse(order)
			}
			var got [2]costOf
			for _, with := range order {
				var err error
				if got[with], err = measure(ctx, with, kind); err != nil {
					return err
				}
				all[with] = append(all[with], got[with])
			}
			cpu, p99 = append(cpu, got[1].cpu/got[0].cpu), append(p99, got[1].p99/got[0].p99)
			o.say("%s, pair %d of %d: %.2f us of CPU and p99 %.2f ms without, %.2f us and %.2f ms with the doctor", kind, pair+1, o.Pairs, got[0].cpu, got[0].p99, got[1].cpu, got[1].p99)
		}
		for with, what := range []string{"without", "with"} {
			row := Row{What: kind + " " + what + " the doctor", ServerCPUMicros: median(pluck(all[with], func(c costOf) float64 { return c.cpu })),
				Millis: map[string]float64{"p99": median(pluck(all[with], func(c costOf) float64 { return c.p99 }))}}
			if with == 1 {
				row.Note = fmt.Sprintf("median ratio of CPU for a request %.3f, of p99 %.3f, %d pairs of %s", median(cpu), median(p99), o.Pairs, o.Duration)
			}
			r.Rows = append(r.Rows, row)
		}
	}
	return nil
}

func pluck(list []costOf, f func(costOf) float64) (out []float64) {
	for _, c := range list {
		out = append(out, f(c))
	}
	return out
}

func doctorKV(ctx context.Context, o *DoctorOptions, r *Result) error {
	var both [2]*cluster
	for with := range both {
		one := o.Options
		if with == 0 {
			one.ServerArgs = append(slices.Clone(one.ServerArgs), "-hcl", withoutDoctor)
		}
		c, err := openCluster(ctx, &one)
		if err != nil {
			return err
		}
		defer c.close()
		both[with] = c
	}
	return doctorPairs(ctx, o, r, []string{"KV PUT", "KV GET"}, func(ctx context.Context, with int, kind string) (costOf, error) {
		c := both[with]
		method, body := "PUT", make([]byte, kvValueBytes)
		if kind == "KV GET" {
			method, body = "GET", nil
		}
		spec := loadSpec{addr: c.http, connections: o.Connections, duration: o.Duration, warmup: o.Duration / 10, ok: func(r reply) bool { return r.status == 200 || r.status == 404 },
			next: func(int, int64) []byte {
				return request(method, c.http, fmt.Sprintf("/v1/kv/bench/%d", rand.IntN(kvKeys)), "", body)
			}}
		begin := c.servers[0].proc.cpuSeconds()
		load, err := runLoad(ctx, spec)
		if err != nil {
			return costOf{}, err
		}
		return costOf{(c.servers[0].proc.cpuSeconds() - begin) * 1e6 / float64(load.requests), millis(load.hist)["p99"]}, nil
	})
}

func doctorSecrets(ctx context.Context, o *DoctorOptions, r *Result) error {
	dir, err := os.MkdirTemp("", "corbel-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "doctor.hcl")
	if err := os.WriteFile(file, []byte(withoutDoctor), 0o600); err != nil {
		return err
	}
	var both [2]*vaultCluster
	for with := range both {
		one := SecretsOptions{Options: o.Options}
		if with == 0 {
			one.ServerArgs = append(slices.Clone(one.ServerArgs), "-config="+file)
		}
		if err := one.complete(); err != nil {
			return err
		}
		c, err := openVault(ctx, &one)
		if err != nil {
			return err
		}
		defer c.close()
		if err := c.call(ctx, "POST", "sys/mounts/"+secretsMount, map[string]any{"type": "kv"}, nil); err != nil {
			return err
		}
		both[with] = c
	}
	const names = 1000
	puts, gets := [2][][]byte{}, [2][][]byte{}
	for with, c := range both {
		for i := range names {
			puts[with] = append(puts[with], c.request("PUT", secretPath(1, i), c.token, secretBody(1)))
			gets[with] = append(gets[with], c.request("GET", secretPath(1, i), c.token, nil))
		}
		if err := c.fill(ctx, puts[with]); err != nil {
			return err
		}
	}
	return doctorPairs(ctx, o, r, []string{"secrets write", "secrets read"}, func(ctx context.Context, with int, kind string) (costOf, error) {
		list := puts[with]
		if kind == "secrets read" {
			list = gets[with]
		}
		row, err := both[with].measure(ctx, kind, "", loadSpec{next: func(int, int64) []byte { return list[rand.IntN(len(list))] }})
		return costOf{row.ServerCPUMicros, row.Millis["p99"]}, err
	})
}

// doctorEvents offers each server the same 5,000 results a second, well below what it takes, so that latency is the path's and not a queue's.
func doctorEvents(ctx context.Context, o *DoctorOptions, r *Result) error {
	return doctorPairs(ctx, o, r, []string{"events"}, func(ctx context.Context, with int, _ string) (costOf, error) {
		one := MonitorOptions{Options: o.Options, Agents: 500, Checks: 40, Subscriptions: 4, Interval: 1}
		one.SkipFloors, one.Progress = true, nil
		if with == 0 {
			one.ServerArgs = append(slices.Clone(one.ServerArgs), "-hcl", withoutDoctor)
		}
		got, err := RunAgents(ctx, one)
		if err != nil {
			return costOf{}, err
		}
		return costOf{got.Steady.ServersCPU * float64(runtime.NumCPU()) * 1e6 / got.EventsPerSecond, got.P99}, nil
	})
}
