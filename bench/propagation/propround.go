package propagation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/curve"
	"corbel.dev/corbel/bench/sidecars"
)

// faultShares are the shares of agents whose connections are cut before a change.
type faultShares struct {
	Stall, Reset float64
}

// parseFaults reads "stall=1%,reset=1%".
func parseFaults(text string) (f faultShares, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		share, perr := strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
		if perr != nil || !strings.HasSuffix(value, "%") || share < 0 || share > 50 {
			return f, fmt.Errorf("--faults: %q must be a share between 0%% and 50%%, as in stall=1%%", part)
		}
		switch name {
		case "stall":
			f.Stall = share / 100
		case "reset":
			f.Reset = share / 100
		default:
			return f, fmt.Errorf("--faults: %q is neither stall nor reset", name)
		}
	}
	return f, nil
}

// roundResult is a round and its arrivals, sorted.
type roundResult struct {
	PropagationRound
	took  []time.Duration
	start int64
}

// cut makes the faults of a round, spread over one second, and returns when that
// second is over. affected tells the hosts that have one.
func (f *propFleet) cut(ctx context.Context, n int) (affected map[int]bool, err error) {
	if f.o.faults == (faultShares{}) {
		return nil, nil
	}
	order := rand.New(rand.NewPCG(uint64(n), 178000)).Perm(len(f.all)) // the same in every run
	count := func(share float64) int { return int(share*float64(len(order)) + 0.999) }
	stall, reset := count(f.o.faults.Stall), count(f.o.faults.Reset)
	affected = map[int]bool{}
	kinds := map[int]string{}
	for i, h := range order[:min(stall+reset, len(order))] {
		affected[h] = true
		kinds[h] = "stall"
		if i >= stall {
			kinds[h] = "reset"
		}
	}
	for _, c := range f.hosts {
		faults := map[string]any{"within": time.Second}
		for h, kind := range kinds {
			if h >= c.First && h < c.First+c.Count {
				list, _ := faults[kind].([]int)
				faults[kind] = append(list, h-c.First)
			}
		}
		if err := c.Call(ctx, bench.CallMost, "fault", faults, nil); err != nil {
			return nil, err
		}
	}
	bench.Settle(ctx, time.Second)
	return affected, ctx.Err()
}

func (f *propFleet) heal(ctx context.Context) error {
	if f.o.faults == (faultShares{}) {
		return nil
	}
	var errs []error
	for _, c := range f.hosts {
		errs = append(errs, c.Call(ctx, bench.CallMost, "heal", nil, nil))
	}
	return errors.Join(errs...)
}

// settled makes a step that is not measured and waits until all proxies have it.
func (f *propFleet) settled(ctx context.Context, c *bench.Target, s changeStep) error {
	r, err := f.measure(ctx, c, s, nil, "")
	if err == nil && r.Missing > 0 {
		err = fmt.Errorf("%s %s did not reach %d of %d proxies within %s", s.method, s.path, r.Missing, r.Count, f.o.Deadline)
	}
	if err == nil {
		bench.Settle(ctx, 500*time.Millisecond) // acknowledgements on their way
	}
	return err
}

// measure makes a step and times its arrival at every proxy.
func (f *propFleet) measure(ctx context.Context, c *bench.Target, s changeStep, affected map[int]bool,
	name string) (*roundResult, error) {
	if err := f.sidecars.Call(ctx, bench.CallMost, sidecars.CallArm, s.watch, nil); err != nil {
		return nil, err
	}
	var before, after sidecars.Counts
	if err := f.sidecars.Call(ctx, bench.CallMost, sidecars.CallCounts, nil, &before); err != nil {
		return nil, err
	}
	if _, err := f.figures(ctx); err != nil { // what was before the change is passed over
		return nil, err
	}
	cpu := f.cpu(c)
	if err := f.profile(ctx, name); err != nil {
		return nil, err
	}
	conn, err := bench.DialWire(ctx, c.HTTP, 64<<10)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	raw := bench.Request(s.method, c.HTTP, s.path, c.Opts.Token, s.body)
	start := sidecars.Monotonic() // t0: just before the request is sent
	answer, err := conn.Do(raw, true, bench.IoDeadline)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", s.method, s.path, err)
	}
	r := &roundResult{start: start,
		PropagationRound: PropagationRound{HTTPMillis: float64(sidecars.Monotonic()-start) / 1e6}}
	if answer.Status != 200 {
		return nil, fmt.Errorf("%s %s: status %d: %.300s", s.method, s.path, answer.Status, answer.Body)
	}
	var got sidecars.Waited
	if err := f.sidecars.Call(ctx, f.o.Deadline+bench.CallMost, sidecars.CallWait, sidecars.Wait{Most: f.o.Deadline},
		&got); err != nil {
		return nil, err
	}
	r.CPU = f.cpu(c).minus(cpu)
	if err := f.profiled(ctx); err != nil {
		return nil, err
	}
	if err := f.sidecars.Call(ctx, bench.CallMost, sidecars.CallCounts, nil, &after); err != nil {
		return nil, err
	}
	if r.Hosts, err = f.figures(ctx); err != nil {
		return nil, err
	}
	r.Messages, r.Bytes, r.Lost = after.Messages-before.Messages, after.Bytes-before.Bytes, after.Lost-before.Lost
	r.Reads, r.Writes = after.Reads-before.Reads, after.Writes-before.Writes
	var at []int64
	if err := f.sidecars.Call(ctx, bench.CallMost, sidecars.CallCollect, nil, &at); err != nil {
		return nil, err
	}
	err = r.count(f, at, start, affected)
	if err != nil || r.Missing > 0 {
		f.explain(ctx, at, start)
	}
	return r, err
}

// count sorts the arrivals into the round's figures.
func (r *roundResult) count(f *propFleet, at []int64, start int64, affected map[int]bool) error {
	var took [2][]time.Duration // without and with fault
	var missing [2]int
	i := 0
	for h := range f.all {
		part := 0
		if affected[h] {
			part = 1
		}
		for range f.all[h].Proxies {
			switch t := at[i]; {
			case t == 0:
				missing[part]++
			case t < start:
				return fmt.Errorf("proxy %d had the change %s before it was made", i, time.Duration(start-t))
			default:
				took[part] = append(took[part], time.Duration(t-start))
			}
			i++
		}
	}
	r.took = append(append([]time.Duration(nil), took[0]...), took[1]...)
	r.Stats = curve.Of(r.took, missing[0]+missing[1])
	if affected != nil {
		without, with := curve.Of(took[0], missing[0]), curve.Of(took[1], missing[1])
		r.Unaffected, r.Affected = &without, &with
	}
	return nil
}

func (a CPUSeconds) minus(b CPUSeconds) CPUSeconds {
	return CPUSeconds{a.Servers - b.Servers, a.Hosts - b.Hosts, a.Sidecars - b.Sidecars}
}

// over is the time that was taken in each second of d.
func (a CPUSeconds) over(d time.Duration) CPUSeconds {
	s := d.Seconds()
	return CPUSeconds{a.Servers / s, a.Hosts / s, a.Sidecars / s}
}

// cpu is the processor time that the processes took so far.
func (f *propFleet) cpu(c *bench.Target) (t CPUSeconds) {
	for _, s := range c.Started() {
		t.Servers += s.CPU()
	}
	for _, h := range f.hosts {
		t.Hosts += h.Proc.CPU()
	}
	t.Sidecars = f.sidecars.Proc.CPU()
	return t
}

// profile starts CPU profiles of the agents' processes for a round with a name.
func (f *propFleet) profile(ctx context.Context, name string) error {
	if f.o.Profiles == "" || name == "" {
		return nil
	}
	if err := os.MkdirAll(f.o.Profiles, 0o755); err != nil {
		return err
	}
	for i, h := range f.hosts {
		file, err := filepath.Abs(filepath.Join(f.o.Profiles, fmt.Sprintf("%s-hosts-%d.pprof", name, i+1)))
		if err != nil {
			return err
		}
		if err := h.Call(ctx, bench.CallMost, "profile", file, nil); err != nil {
			return err
		}
	}
	return nil
}

func (f *propFleet) profiled(ctx context.Context) error {
	if f.o.Profiles == "" {
		return nil
	}
	var errs []error
	for _, h := range f.hosts {
		errs = append(errs, h.Call(ctx, bench.CallMost, "profile", "", nil))
	}
	return errors.Join(errs...)
}

// figures is what the agents counted since the last call: counts of all processes
// added up, of times the largest.
func (f *propFleet) figures(ctx context.Context) (map[string]float64, error) {
	all := map[string]float64{}
	for _, h := range f.hosts {
		var part map[string]float64
		if err := h.Call(ctx, bench.CallMost, "figures", nil, &part); err != nil {
			return nil, err
		}
		for name, v := range part {
			if strings.HasSuffix(name, "_ms") {
				all[name] = max(all[name], v)
			} else {
				all[name] += v
			}
		}
	}
	return all, nil
}
