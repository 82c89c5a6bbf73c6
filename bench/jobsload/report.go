package jobsload

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
)

// Report is what was measured.
type Report struct {
	Bench   string    `json:"bench"`
	Machine string    `json:"machine"`
	Date    time.Time `json:"date"`
	Shape
	Times
	Costs
	Floors *bench.Floors `json:"floors,omitempty"`
}

// Shape is what was placed on what.
type Shape struct {
	Servers     int     `json:"servers"`
	Nodes       int     `json:"nodes"`
	Jobs        int     `json:"jobs"`
	Allocations int     `json:"allocations"`
	Queued      bool    `json:"queued"`
	JoinSeconds float64 `json:"join_seconds"`
}

// Times count from when there was both work and capacity: with Queued from the first node, else from the first job.
type Times struct {
	RegisterSeconds float64            `json:"register_seconds"`
	RegisterMillis  map[string]float64 `json:"register_millis"` // p50 p90 p99 p999 max mean of one job
	PlacedSeconds   float64            `json:"placed_seconds"`
	RunningSeconds  float64            `json:"running_seconds"`
	PerSecond       float64            `json:"placements_per_second"`
	LookMillis      float64            `json:"look_millis"` // the longest look at all jobs' summaries
	Ended           int                `json:"ended"`       // allocations that ended meanwhile: none should
}

// Costs is what the run took of the machine.
type Costs struct {
	PeakRSSBytes  int64        `json:"peak_rss_bytes"` // of the largest server
	CPUSeconds    float64      `json:"cpu_seconds"`    // of all servers
	WrittenBytes  int64        `json:"written_bytes"`  // by all servers, to disks
	NodesCPU      float64      `json:"nodes_cpu_seconds"`
	NodesRSSBytes int64        `json:"nodes_peak_rss_bytes"`
	Fleet         fleetFigures `json:"fleet"`
}

// figures takes down what the run cost.
func (x *run) figures(ctx context.Context) (err error) {
	for _, s := range x.c.Started() {
		x.PeakRSSBytes = max(x.PeakRSSBytes, s.Peak())
		x.CPUSeconds += s.CPU()
		x.WrittenBytes += bench.WrittenBytes(s.PID())
	}
	for _, h := range x.fleet {
		x.NodesCPU += h.Proc.CPU()
		x.NodesRSSBytes += h.Proc.Peak()
	}
	x.Fleet, err = x.ask(ctx)
	return err
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	order := "nodes first"
	if r.Queued {
		order = "jobs queued first"
	}
	fmt.Fprintf(&b, "bench jobs  %d allocations of %d jobs on %d nodes, %s, %d server(s)\n%s  %s\n", r.Allocations, r.Jobs,
		r.Nodes, order, r.Servers, r.Machine, r.Date.Format(time.DateOnly))
	fmt.Fprintf(&b, "  registered      %9.2f s  %.0f jobs/s, p50 %.2f ms, p99 %.2f ms\n", r.RegisterSeconds,
		float64(r.Jobs)/r.RegisterSeconds, r.RegisterMillis["p50"], r.RegisterMillis["p99"])
	fmt.Fprintf(&b, "  all placed      %9.2f s  %.0f placements/s\n", r.PlacedSeconds, r.PerSecond)
	fmt.Fprintf(&b, "  all running     %9.2f s  (looked at every %.0f ms at worst; %d ended meanwhile)\n",
		r.RunningSeconds, max(20, 10*r.LookMillis), r.Ended)
	fmt.Fprintf(&b, "  servers         peak rss %.0f MiB, cpu %.1f s, %.1f MB written\n", float64(r.PeakRSSBytes)/(1<<20),
		r.CPUSeconds, float64(r.WrittenBytes)/1e6)
	fmt.Fprintf(&b, "  simulated nodes peak rss %.0f MiB, cpu %.1f s, %d batches of updates, %d heartbeats, "+
		"%d calls failed\n", float64(r.NodesRSSBytes)/(1<<20), r.NodesCPU, r.Fleet.Batches, r.Fleet.Beats, r.Fleet.Failed)
	if r.Fleet.Error != "" {
		fmt.Fprintf(&b, "  one failed call: %s\n", r.Fleet.Error)
	}
	if r.Floors != nil {
		b.WriteString(r.Floors.Text())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
