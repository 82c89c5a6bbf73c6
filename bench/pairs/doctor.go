// Package pairs compares in pairs of runs, so that what both have in common goes out: two binaries, with the doctor and
// without, with telemetry sinks that take nothing and without.
package pairs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
)

// DoctorOptions are the options of the bench of what the doctor costs.
type DoctorOptions struct {
	bench.Options
	// Pairs is how many pairs of runs are made of each load, one with and one without the doctor. Four of KV and of
	// secrets have servers of their own.
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
	return o.Options.Complete()
}

// costOf is what one run cost: microseconds of the servers' CPU for a request, how many there were, and the 99th
// percentile in milliseconds.
type costOf struct{ cpu, requests, p99 float64 }

// ratiosOf compares runs without the doctor and with it, pair by pair.
func ratiosOf(without, with []costOf) bench.PairRatios {
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
	return bench.PairRatios{CPUMedian: median(cpu), CPULow: cpu[(n-1)/4], CPUHigh: cpu[n-1-(n-1)/4],
		CPUAll: spent[1] / served[1] / (spent[0] / served[0]), P99Median: median(p99), Pairs: n}
}

// RunDoctor measures what the doctor's stage accounting, probes and profiles cost: runs with and without them
// alternate, or go on at once, and the rows' ratios are with over without. Twenty pairs of all loads take eleven
// minutes.
func RunDoctor(ctx context.Context, o DoctorOptions) (*bench.Result, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	r := bench.NewResult("doctor", &o.Options)
	for _, l := range o.Loads {
		run := map[string]func(context.Context, *DoctorOptions, *bench.Result) error{"kv": doctorKV, "secrets": doctorSecrets,
			"events": doctorEvents}[l]
		if err := run(ctx, &o, r); err != nil {
			return nil, fmt.Errorf("%s: %w", l, err)
		}
	}
	return r, nil
}

// pairsOfServers is how many pairs of runs share two servers. A process keeps its luck for life, where its heap lies
// and how its maps hash: two that are alike in everything differ by one or two percent, which is as much as what is
// measured, so that some of them are needed.
const pairsOfServers = 4

// pairOf makes a pair of runs of a kind of load. Of what it returns the second has the doctor.
type pairOf func(ctx context.Context, kind string, n int) ([2]costOf, error)

// doctorPairs runs pairs of each kind of load and adds their rows. Kinds take turns, each open gives two new servers
// for some of the pairs and is told which of the two comes first.
func doctorPairs(ctx context.Context, o *DoctorOptions, r *bench.Result, kinds []string, shared int,
	open func(ctx context.Context, order []int) (pairOf, func(), error)) error {
	all := map[string]*[2][]costOf{}
	for _, kind := range kinds {
		all[kind] = &[2][]costOf{}
	}
	for first := 0; first < o.Pairs; first += shared {
		pair, done, err := open(ctx, turn(first/shared))
		if err != nil {
			return err
		}
		for n := first; err == nil && n < min(first+shared, o.Pairs); n++ {
			for _, kind := range kinds {
				var got [2]costOf
				if got, err = pair(ctx, kind, n); err != nil {
					break
				}
				for with := range got {
					all[kind][with] = append(all[kind][with], got[with])
				}
				o.Say("%s, pair %d of %d: %.2f us of CPU and p99 %.2f ms without, %.2f us and %.2f ms with the doctor", kind, n+1,
					o.Pairs, got[0].cpu, got[0].p99, got[1].cpu, got[1].p99)
			}
		}
		done()
		if err != nil {
			return err
		}
	}
	for _, kind := range kinds {
		r.Rows = append(r.Rows, doctorRows(o, kind, all[kind])...)
	}
	return nil
}

// doctorRows are the rows of one kind of load.
func doctorRows(o *DoctorOptions, kind string, all *[2][]costOf) (rows []bench.Row) {
	for with, what := range []string{"without", "with"} {
		row := bench.Row{What: kind + " " + what + " the doctor",
			ServerCPUMicros: median(pluck(all[with], func(c costOf) float64 { return c.cpu })),
			Millis:          map[string]float64{"p99": median(pluck(all[with], func(c costOf) float64 { return c.p99 }))}}
		if with == 1 {
			ratios := ratiosOf(all[0], all[1])
			row.Ratios, row.Note = &ratios, ratios.Text(o.Duration)
		}
		rows = append(rows, row)
	}
	return rows
}

// turn is the order in which the n-th two come: without and with the doctor take turns in being first.
func turn(n int) []int {
	if n%2 == 1 {
		return []int{1, 0}
	}
	return []int{0, 1}
}

// alternating makes pairs of runs one after the other, each time another first. measure's first number is 1 with the
// doctor, else 0.
func alternating(measure func(ctx context.Context, with int, kind string) (costOf, error)) pairOf {
	return func(ctx context.Context, kind string, n int) (got [2]costOf, err error) {
		for _, with := range turn(n) {
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
