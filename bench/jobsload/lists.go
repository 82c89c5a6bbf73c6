package jobsload

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/bench"
)

// ListsOptions of a run that reads lists and waits for changes.
type ListsOptions struct {
	Options
	// Watchers is how many long polls wait for one change; zero means 100.
	Watchers int
}

// ListsReport is what was measured.
type ListsReport struct {
	Bench   string    `json:"bench"`
	Machine string    `json:"machine"`
	Date    time.Time `json:"date"`
	Shape
	Lists  []ListFigures `json:"lists"`
	Polls  []PollFigures `json:"polls"`
	Floors *bench.Floors `json:"floors,omitempty"`
}

// ListFigures are of one list.
type ListFigures struct {
	Path      string             `json:"path"`
	PerSecond float64            `json:"per_second"`
	Errors    int64              `json:"errors"`
	Millis    map[string]float64 `json:"millis"`
}

// PollFigures are of long polls on the allocations of one job: from the change until they were answered.
type PollFigures struct {
	Allocations int     `json:"allocations"`
	Watchers    int     `json:"watchers"`
	MaxMillis   float64 `json:"max_millis"`
}

// polled are the counts of the jobs that are waited for.
var polled = []int{11, 500}

// RunLists measures lists of allocations, whole and by pages, and of nodes; then how long one change of a job takes to
// all that wait for it.
func RunLists(ctx context.Context, o ListsOptions) (*ListsReport, error) {
	o.Allocations = cmp.Or(o.Allocations, 1000)
	if o.Watchers = cmp.Or(o.Watchers, 100); o.Watchers < 1 || o.Watchers > 10_000 {
		return nil, fmt.Errorf("--watchers: must be between 1 and 10000, not %d", o.Watchers)
	}
	big := o.Allocations
	for _, n := range polled {
		o.Allocations += n
	}
	r := &ListsReport{}
	x, err := open(ctx, &o.Options, "joblists", append([]int{big}, polled...), func(x *run) error {
		x.kind = "batch" // without deployments: what is waited for is at rest
		if err := x.fill(ctx); err != nil {
			return err
		}
		if err := r.lists(ctx, x); err != nil {
			return err
		}
		for i, count := range polled {
			if err := r.polls(ctx, x, i+1, count, o.Watchers); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.Bench, r.Machine, r.Date, r.Shape, r.Floors = x.Report.Bench, x.Machine, x.Date, x.Shape, x.Floors
	return r, nil
}

// fill has all nodes there, and all allocations run.
func (x *run) fill(ctx context.Context) error {
	for _, step := range []func(context.Context) error{x.come, x.allThere, x.register} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return x.follow(ctx, time.Now())
}

func (r *ListsReport) lists(ctx context.Context, x *run) error {
	for _, path := range []string{"/v1/job/" + jobID(0) + "/allocations", "/v1/allocations?per_page=50", "/v1/nodes"} {
		x.o.Say("reading %s ...", path)
		request := []byte("GET " + path + " HTTP/1.1\r\nHost: bench\r\nX-Nomad-Token: " + x.o.Token + "\r\n\r\n")
		load, err := bench.RunLoad(ctx, bench.LoadSpec{Addr: x.addr, Connections: x.o.Connections, Duration: x.o.Duration,
			Next: func(int, int64) []byte { return request }})
		if err != nil {
			return err
		}
		if load.FirstError != nil && load.Errors == load.Requests {
			return fmt.Errorf("%s: %w", path, load.FirstError)
		}
		r.Lists = append(r.Lists, ListFigures{Path: path, PerSecond: float64(load.Requests-load.Errors) /
			x.o.Duration.Seconds(), Errors: load.Errors, Millis: bench.Millis(load.Hist)})
	}
	return nil
}

// polls waits for one change of a job with so many that ask for its allocations.
func (r *ListsReport) polls(ctx context.Context, x *run, n, count, watchers int) error {
	x.o.Say("%d long polls on a job with %d allocations ...", watchers, count)
	path := "job/" + jobID(n) + "/allocations"
	meta, err := x.api.Get(ctx, path, nil, nil)
	if err != nil {
		return err
	}
	answered := make([]time.Time, watchers)
	failed := make([]error, watchers)
	var wg sync.WaitGroup
	query := url.Values{"index": {strconv.FormatUint(meta.Index, 10)}, "wait": {"60s"}}
	for i := range watchers {
		wg.Go(func() {
			_, failed[i] = x.api.Get(ctx, path, query, nil)
			answered[i] = time.Now()
		})
	}
	if err := x.settled(ctx); err != nil {
		return err
	}
	changed := time.Now()
	if err := x.api.Put(ctx, "jobs", nil, job(jobID(n), x.kind, count+1), nil); err != nil {
		return err
	}
	wg.Wait()
	p := PollFigures{Allocations: count, Watchers: watchers}
	for i := range answered {
		if failed[i] != nil {
			return fmt.Errorf("a long poll: %w", failed[i])
		}
		if answered[i].Before(changed) {
			return fmt.Errorf("a long poll was answered before the change: the job with %d allocations is not at rest", count)
		}
		p.MaxMillis = max(p.MaxMillis, answered[i].Sub(changed).Seconds()*1000)
	}
	r.Polls = append(r.Polls, p)
	return nil
}

// settled gives long polls time to reach the server.
func (x *run) settled(ctx context.Context) error {
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WriteJSON writes the report as JSON.
func (r *ListsReport) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes the report for people.
func (r *ListsReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "bench joblists  %d allocations of %d jobs on %d nodes\n%s  %s\n", r.Allocations, r.Jobs, r.Nodes,
		r.Machine, r.Date.Format(time.DateOnly))
	for _, l := range r.Lists {
		fmt.Fprintf(&b, "  %-34s %8.0f /s  p50 %.2f ms, p99 %.2f ms, %d errors\n", l.Path, l.PerSecond, l.Millis["p50"],
			l.Millis["p99"], l.Errors)
	}
	for _, p := range r.Polls {
		fmt.Fprintf(&b, "  %d long polls, %d allocations: the last answered %.0f ms after the change\n", p.Watchers,
			p.Allocations, p.MaxMillis)
	}
	if r.Floors != nil {
		b.WriteString(r.Floors.Text())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
