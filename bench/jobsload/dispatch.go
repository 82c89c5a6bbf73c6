package jobsload

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/kit/spawn"
)

// DispatchOptions of a run that dispatches jobs.
type DispatchOptions struct {
	Options
	// Dispatches is how many; zero means 1,000.
	Dispatches int
}

// DispatchReport is what was measured.
type DispatchReport struct {
	Bench   string    `json:"bench"`
	Machine string    `json:"machine"`
	Date    time.Time `json:"date"`
	Shape
	Dispatches int                `json:"dispatches"`
	PerSecond  float64            `json:"per_second"` // answered
	EndToEnd   float64            `json:"end_to_end_per_second"`
	Millis     map[string]float64 `json:"millis"`
	Floors     *bench.Floors      `json:"floors,omitempty"`
}

// parameterized is the job that is dispatched: its task ends at once.
func parameterized() any {
	type object = map[string]any
	return object{"Job": object{"ID": "dispatched", "Name": "dispatched", "Type": "batch", "Datacenters": []string{"*"},
		"ParameterizedJob": object{"Payload": "forbidden"},
		"TaskGroups": []object{{"Name": "g", "Count": 1, "EphemeralDisk": object{"SizeMB": taskDiskMB},
			"Tasks": []object{{"Name": "t", "Driver": "mock_driver", "Config": object{"run_for": "1ms"},
				"Resources": object{"CPU": taskCPU, "MemoryMB": taskMemoryMB}}}}}}}
}

// RunDispatch measures how many dispatches a second are taken, and end to end: until all have run.
func RunDispatch(ctx context.Context, o DispatchOptions) (*DispatchReport, error) {
	if o.Dispatches = cmp.Or(o.Dispatches, 1000); o.Dispatches < 1 || o.Dispatches > 1_000_000 {
		return nil, fmt.Errorf("--dispatches: must be between 1 and 1000000, not %d", o.Dispatches)
	}
	o.Allocations = cmp.Or(o.Allocations, o.Dispatches) // the room that the nodes have
	r := &DispatchReport{Dispatches: o.Dispatches}
	x, err := open(ctx, &o.Options, "dispatch", nil, func(x *run) error {
		for _, step := range []func(context.Context) error{x.come, x.allThere} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return r.measure(ctx, x)
	})
	if err != nil {
		return nil, err
	}
	r.Bench, r.Machine, r.Date, r.Shape, r.Floors = x.Report.Bench, x.Machine, x.Date, x.Shape, x.Floors
	return r, nil
}

func (r *DispatchReport) measure(ctx context.Context, x *run) error {
	if err := x.api.Put(ctx, "jobs", nil, parameterized(), nil); err != nil {
		return err
	}
	x.o.Say("dispatching %d jobs ...", r.Dispatches)
	began := time.Now()
	took, err := x.each(r.Dispatches, func(int) error {
		return x.api.Put(ctx, "job/dispatched/dispatch", nil, map[string]any{}, nil)
	})
	if err != nil {
		return fmt.Errorf("dispatch: %w", err)
	}
	r.PerSecond = float64(r.Dispatches) / time.Since(began).Seconds()
	r.Millis = took
	err = spawn.Until(ctx, x.o.Deadline, "all dispatched jobs to be over", func() error {
		var children struct {
			Children struct{ Pending, Running, Dead int }
		}
		if _, err := x.api.Get(ctx, "job/dispatched/summary", url.Values{"stale": {""}}, &children); err != nil {
			return spawn.Hopeless(err)
		}
		if c := children.Children; c.Dead < r.Dispatches {
			return fmt.Errorf("%d of %d are; %d wait and %d run", c.Dead, r.Dispatches, c.Pending, c.Running)
		}
		return nil
	})
	r.EndToEnd = float64(r.Dispatches) / time.Since(began).Seconds()
	return err
}

// WriteJSON writes the report as JSON.
func (r *DispatchReport) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes the report for people.
func (r *DispatchReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "bench dispatch  %d dispatches on %d nodes\n%s  %s\n", r.Dispatches, r.Nodes, r.Machine,
		r.Date.Format(time.DateOnly))
	fmt.Fprintf(&b, "  answered        %9.0f /s  p50 %.2f ms, p99 %.2f ms\n", r.PerSecond, r.Millis["p50"],
		r.Millis["p99"])
	fmt.Fprintf(&b, "  end to end      %9.0f /s\n", r.EndToEnd)
	if r.Floors != nil {
		b.WriteString(r.Floors.Text())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
