package jobsload

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
	Gzip      bool               `json:"gzip"` // as clients ask for it
	PerSecond float64            `json:"per_second"`
	Errors    int64              `json:"errors"`
	Millis    map[string]float64 `json:"millis"`
}

// PollFigures are of long polls on the allocations of one job: from the change until they were answered, to the last
// byte. Nothing is decompressed: the clients of a fleet do that on machines of their own.
type PollFigures struct {
	Allocations int     `json:"allocations"`
	Gzip        bool    `json:"gzip"`
	Watchers    int     `json:"watchers"`
	MaxMillis   float64 `json:"max_millis"`
}

// polled are the counts of the jobs that are waited for.
var polled = []int{11, 500}

// pollDeadline bounds a long poll's answer.
const pollDeadline = 90 * time.Second

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
			for more, gzip := range []bool{false, true} {
				if err := r.polls(ctx, x, i+1, count+more, o.Watchers, gzip); err != nil {
					return err
				}
				if err := x.follow(ctx, time.Now()); err != nil { // what the change started runs before the next
					return err
				}
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

// request is a GET as its bytes go over the wire.
func (x *run) request(path string, gzip bool) []byte {
	b := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: bench\r\n", path)
	if x.o.Token != "" {
		b = fmt.Appendf(b, "X-Nomad-Token: %s\r\n", x.o.Token)
	}
	if gzip {
		b = append(b, "Accept-Encoding: gzip\r\n"...)
	}
	return append(b, "\r\n"...)
}

func (r *ListsReport) lists(ctx context.Context, x *run) error {
	whole := "/v1/job/" + jobID(0) + "/allocations"
	for _, list := range []ListFigures{{Path: whole}, {Path: whole, Gzip: true}, {Path: "/v1/allocations?per_page=50"},
		{Path: "/v1/nodes"}, {Path: "/v1/nodes", Gzip: true}} {
		x.o.Say("reading %s%s ...", list.Path, compressed(list.Gzip))
		request := x.request(list.Path, list.Gzip)
		load, err := bench.RunLoad(ctx, bench.LoadSpec{Addr: x.addr, Connections: x.o.Connections, Duration: x.o.Duration,
			Next: func(int, int64) []byte { return request }})
		if err != nil {
			return err
		}
		if load.FirstError != nil && load.Errors == load.Requests {
			return fmt.Errorf("%s: %w", list.Path, load.FirstError)
		}
		list.PerSecond = float64(load.Requests-load.Errors) / x.o.Duration.Seconds()
		list.Errors, list.Millis = load.Errors, bench.Millis(load.Hist)
		r.Lists = append(r.Lists, list)
	}
	return nil
}

func compressed(gzip bool) string {
	if gzip {
		return ", gzip"
	}
	return ""
}

// polls waits for one change of a job with so many that ask for its allocations.
func (r *ListsReport) polls(ctx context.Context, x *run, n, count, watchers int, gzip bool) error {
	x.o.Say("%d long polls on a job with %d allocations%s ...", watchers, count, compressed(gzip))
	path := "job/" + jobID(n) + "/allocations"
	meta, err := x.api.Get(ctx, path, nil, nil)
	if err != nil {
		return err
	}
	request := x.request(fmt.Sprintf("/v1/%s?index=%d&wait=60s", path, meta.Index), gzip)
	answered := make([]time.Time, watchers)
	failed := make([]error, watchers)
	var wg sync.WaitGroup
	for i := range watchers {
		conn, err := bench.DialWire(ctx, x.addr, 64<<10)
		if err != nil {
			return err
		}
		defer conn.Close()
		wg.Go(func() {
			reply, err := conn.Do(request, false, pollDeadline)
			answered[i] = time.Now()
			if failed[i] = err; err == nil && reply.Status != http.StatusOK {
				failed[i] = fmt.Errorf("status %d", reply.Status)
			}
		})
	}
	if err := x.settled(ctx); err != nil {
		return err
	}
	changed := time.Now()
	x.o.Allocations++
	if err := x.api.Put(ctx, "jobs", nil, job(jobID(n), x.kind, count+1), nil); err != nil {
		return err
	}
	wg.Wait()
	p := PollFigures{Allocations: count, Gzip: gzip, Watchers: watchers}
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
		fmt.Fprintf(&b, "  %-40s %8.0f /s  p50 %.2f ms, p99 %.2f ms, %d errors\n", l.Path+compressed(l.Gzip), l.PerSecond,
			l.Millis["p50"], l.Millis["p99"], l.Errors)
	}
	for _, p := range r.Polls {
		fmt.Fprintf(&b, "  %d long polls, %d allocations%s: the last answered %.0f ms after the change\n", p.Watchers,
			p.Allocations, compressed(p.Gzip), p.MaxMillis)
	}
	if r.Floors != nil {
		b.WriteString(r.Floors.Text())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
