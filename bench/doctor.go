package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// costOf is what one run cost: microseconds of the servers' CPU for a request, how many there were, and the 99th percentile in milliseconds.
type costOf struct{ cpu, requests, p99 float64 }

// PairRatios are with the doctor over without. A pair's run is too short for what the doctor does once a minute (profiles): some runs have all of it, most
// have nothing. So beside the median of pairs stands the ratio of all runs together, in which it has its part of the time.
type PairRatios struct {
	CPUMedian float64 `json:"cpu_median"`
	CPULow    float64 `json:"cpu_low"` // the first and the third quartile of pairs
	CPUHigh   float64 `json:"cpu_high"`
	CPUAll    float64 `json:"cpu_all"`
	P99Median float64 `json:"p99_median"`
	Pairs     int     `json:"pairs"`
}

func (r *PairRatios) text(d time.Duration) string {
	return fmt.Sprintf("median ratio of CPU for a request %.3f (half of the pairs %.3f to %.3f), of all runs together %.3f; of p99 %.3f; %d pairs of %s",
		r.CPUMedian, r.CPULow, r.CPUHigh, r.CPUAll, r.P99Median, r.Pairs, d)
}

// ratiosOf compares runs without the doctor and with it, pair by pair.
func ratiosOf(without, with []costOf) PairRatios {
	var cpu, p99 []float64
	var spent, served [2]float64
	for i := range without {
		cpu, p99 = append(cpu, with[i].cpu/without[i].cpu), append(p99, with[i].p99/without[i].p99)
		for k, c := range [2]costOf{without[i], with[i]} {
			spent[k] += c.cpu * c.requests
			served[k] += c.requests
		}
	}
	slices.Sort(cpu)
	n := len(cpu)
	return PairRatios{CPUMedian: median(cpu), CPULow: cpu[(n-1)/4], CPUHigh: cpu[n-1-(n-1)/4], CPUAll: spent[1] / served[1] / (spent[0] / served[0]), P99Median: median(p99), Pairs: n}
}

// RunDoctor measures what the doctor's stage accounting, probes and profiles cost: runs with and without them alternate, or go on at once, and the
// rows' ratios are with over without. Twenty pairs of all loads take eleven minutes.
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

// doctorPairs runs pairs of each kind of load and adds their rows. Of what pair returns the second has the doctor.
func doctorPairs(ctx context.Context, o *DoctorOptions, r *Result, kinds []string, pair func(ctx context.Context, kind string, n int) ([2]costOf, error)) error {
	for _, kind := range kinds {
		var all [2][]costOf
		for n := range o.Pairs {
			got, err := pair(ctx, kind, n)
			if err != nil {
				return err
			}
			for with := range got {
				all[with] = append(all[with], got[with])
			}
			o.say("%s, pair %d of %d: %.2f us of CPU and p99 %.2f ms without, %.2f us and %.2f ms with the doctor", kind, n+1, o.Pairs, got[0].cpu, got[0].p99, got[1].cpu, got[1].p99)
		}
		for with, what := range []string{"without", "with"} {
			row := Row{What: kind + " " + what + " the doctor", ServerCPUMicros: median(pluck(all[with], func(c costOf) float64 { return c.cpu })),
				Millis: map[string]float64{"p99": median(pluck(all[with], func(c costOf) float64 { return c.p99 }))}}
			if with == 1 {
				ratios := ratiosOf(all[0], all[1])
				row.Ratios, row.Note = &ratios, ratios.text(o.Duration)
			}
			r.Rows = append(r.Rows, row)
		}
	}
	return nil
}

// alternating makes pairs of runs one after the other, each time another first. measure's first number is 1 with the doctor, else 0.
func alternating(measure func(ctx context.Context, with int, kind string) (costOf, error)) func(context.Context, string, int) ([2]costOf, error) {
	return func(ctx context.Context, kind string, n int) (got [2]costOf, err error) {
		order := []int{0, 1}
		if n%2 == 1 {
			slices.Reverse(order)
		}
		for _, with := range order {
			if got[with], err = measure(ctx, with, kind); err != nil {
				return got, err
			}
		}
		return got, nil
	}
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
	return doctorPairs(ctx, o, r, []string{"KV PUT", "KV GET"}, alternating(func(ctx context.Context, with int, kind string) (costOf, error) {
		c := both[with]
		method, body := "PUT", make([]byte, kvValueBytes)
		if kind == "KV GET" {
			method, body = "GET", nil
		}
		spec := loadSpec{addr: c.http, connections: o.Connections, duration: o.Duration, ok: func(r reply) bool { return r.status == 200 || r.status == 404 },
			next: func(int, int64) []byte {
				return request(method, c.http, fmt.Sprintf("/v1/kv/bench/%d", rand.IntN(kvKeys)), "", body)
			}}
		begin := c.servers[0].proc.cpuSeconds()
		load, err := runLoad(ctx, spec)
		if err != nil {
			return costOf{}, err
		}
		return costOf{(c.servers[0].proc.cpuSeconds() - begin) * 1e6 / float64(load.requests), float64(load.requests), millis(load.hist)["p99"]}, nil
	}))
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
	return doctorPairs(ctx, o, r, []string{"secrets write", "secrets read"}, alternating(func(ctx context.Context, with int, kind string) (costOf, error) {
		list := puts[with]
		if kind == "secrets read" {
			list = gets[with]
		}
		row, err := both[with].measure(ctx, kind, "", loadSpec{next: func(int, int64) []byte { return list[rand.IntN(len(list))] }})
		return costOf{row.ServerCPUMicros, float64(row.Requests), row.Millis["p99"]}, err
	}))
}

// doctorEvents has two servers take the same 5,000 results a second each at the same time, well below what they take, so that latency is the path's and
// not a queue's. Both live through all pairs: a server's start, its agents' registration and the doctor's first minute would be most of a short run.
func doctorEvents(ctx context.Context, o *DoctorOptions, r *Result) error {
	var both [2]*plane
	for with := range both {
		one := &MonitorOptions{Options: o.Options, Agents: 500, Checks: 40, Subscriptions: 4, Interval: 1}
		one.Progress = nil
		if with == 0 {
			one.ServerArgs = append(slices.Clone(one.ServerArgs), "-hcl", withoutDoctor)
		}
		if err := one.complete(); err != nil {
			return err
		}
		p, err := openPlane(ctx, one)
		if err != nil {
			return err
		}
		defer p.close()
		both[with] = p
		if err := p.prepare(ctx); err != nil {
			return err
		}
		if err := p.play(ctx); err != nil {
			return err
		}
		if err := p.awaitSessions(ctx, rampMost(one)); err != nil {
			return err
		}
	}
	for _, p := range both {
		if err := p.checks(ctx); err != nil {
			return err
		}
	}
	settle(ctx, max(2*time.Second, min(2*o.Duration, startUp))) // each key's first result is written whole
	return doctorPairs(ctx, o, r, []string{"events"}, func(ctx context.Context, _ string, _ int) (got [2]costOf, err error) {
		var before, after [2]eventsAt
		for with, p := range both {
			if before[with], err = p.eventsNow(ctx, true); err != nil {
				return got, err
			}
		}
		settle(ctx, o.Duration)
		for with, p := range both {
			if after[with], err = p.eventsNow(ctx, false); err != nil {
				return got, err
			}
		}
		for with, p := range both {
			stored := after[with].stored - before[with].stored
			if stored <= 0 {
				return got, fmt.Errorf("no event was stored in %s", o.Duration)
			}
			durable, _ := p.follow.latencies()
			got[with] = costOf{(after[with].cpu - before[with].cpu) * 1e6 / stored, stored, durable["p99"]}
		}
		return got, ctx.Err()
	})
}

// eventsAt is how many results servers had stored, and for how many seconds of CPU.
type eventsAt struct{ stored, cpu float64 }

// eventsNow begins or ends a run: both figures are of one moment.
func (p *plane) eventsNow(ctx context.Context, begins bool) (eventsAt, error) {
	now, err := p.figures(ctx)
	at := eventsAt{now.stored, p.usage().servers}
	if begins {
		p.follow.forget()
	}
	p.follow.record(begins)
	return at, err
}
