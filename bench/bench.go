// Package bench holds Corbel's load generators: one function per headline, each
// of which anyone can run against Corbel or, with a target, against the system
// that Corbel replaces.
//
// A bench comes through the front doors only (HTTP, DNS) as clients do. Without
// Options.Target it starts real server processes with fresh durable data
// directories and stops them. Every result carries the machine's floors, so that
// figures from different machines compare. Loads are bounded in connections and
// time; a Run function owns all its goroutines and processes and returns after
// the last has ended.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Options are what all benches share. The zero value measures for 10 s with 16 connections.
type Options struct {
	// Target is the HTTP address (host:port) of a running server or agent; empty
	// starts the servers that the bench needs.
	Target string
	// DNSTarget is the DNS address that goes with Target; only the dns bench needs it.
	DNSTarget string
	// Binary is the corbel binary to start; empty is the running one.
	Binary string
	// Servers is how many servers to start: 1, 3 or 5.
	Servers int
	// Connections is the number of client connections.
	Connections int
	// Duration is how long the measured part runs.
	Duration time.Duration
	// Token is sent as X-Consul-Token when set.
	Token string
	// Progress receives progress lines; nil is silent.
	Progress io.Writer
	// SkipFloors leaves out the floors (compare runs measure them once).
	SkipFloors bool
	// KeepDir keeps the data directories of started servers under this folder.
	KeepDir string
	// ServerArgs are appended to the started servers' command line.
	ServerArgs []string
	HCL        []string // further configuration of started servers
	Monitor    bool     // they have a monitor plane
}

func (o *Options) Complete() error {
	if o.Servers == 0 {
		o.Servers = 1
	}
	if o.Servers != 1 && o.Servers != 3 && o.Servers != 5 {
		return fmt.Errorf("--servers: must be 1, 3 or 5, not %d", o.Servers)
	}
	if o.Connections == 0 {
		o.Connections = 16
	}
	if o.Connections < 1 || o.Connections > 20000 {
		return fmt.Errorf("--connections: must be between 1 and 20000, not %d", o.Connections)
	}
	if o.Duration == 0 {
		o.Duration = 10 * time.Second
	}
	if o.Duration < 0 || o.Duration > time.Hour {
		return fmt.Errorf("--duration: must be between 0 and 1h, not %s", o.Duration)
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the running binary: %w", err)
		}
		o.Binary = self
	}
	return nil
}

func (o *Options) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(o.Progress, format+"\n", args...)
}

// Row is one measured figure set.
type Row struct {
	What      string             `json:"what"`
	Requests  int64              `json:"requests,omitempty"`
	Errors    int64              `json:"errors,omitempty"`
	PerSecond float64            `json:"per_second,omitempty"`
	Millis    map[string]float64 `json:"millis,omitempty"` // p50 p90 p99 p999 max mean
	RSSBytes  int64              `json:"rss_bytes,omitempty"`
	// LeaseBytes is the memory that one lease takes: what there is more of it with all leases than without, divided by
	// them.
	LeaseBytes int64  `json:"lease_bytes,omitempty"`
	Note       string `json:"note,omitempty"`
	// Ratios compare the row with the one before it.
	Ratios *PairRatios `json:"ratios,omitempty"`
	// ServerCPUMicros is the processor time that the server took for a request, in user mode and in the kernel.
	ServerCPUMicros float64 `json:"server_cpu_micros,omitempty"`
	// FloorRatio is PerSecond over the floor that bounds the row; Floor names it.
	Floor      string  `json:"floor,omitempty"`
	FloorRatio float64 `json:"floor_ratio,omitempty"`
}

// PairRatios are with the doctor over without. A pair's run is too short for what the doctor does once a minute
// (profiles): some runs have all of it, most have nothing. So beside the median of pairs stands the ratio of all runs
// together, in which it has its part of the time.
type PairRatios struct {
	CPUMedian float64 `json:"cpu_median"`
	CPULow    float64 `json:"cpu_low"` // the first and the third quartile of pairs
	CPUHigh   float64 `json:"cpu_high"`
	CPUAll    float64 `json:"cpu_all"`
	P99Median float64 `json:"p99_median"`
	Pairs     int     `json:"pairs"`
}

func (r *PairRatios) Text(d time.Duration) string {
	return fmt.Sprintf("median ratio of CPU for a request %.3f (half of the pairs %.3f to %.3f), of all runs together "+
		"%.3f; of p99 %.3f; %d pairs of %s",
		r.CPUMedian, r.CPULow, r.CPUHigh, r.CPUAll, r.P99Median, r.Pairs, d)
}

// Result is what a bench measured.
type Result struct {
	Bench   string    `json:"bench"`
	Target  string    `json:"target"`
	Machine string    `json:"machine"`
	Date    time.Time `json:"date"`
	Floors  *Floors   `json:"floors,omitempty"`
	Rows    []Row     `json:"rows"`
}

// Machine names the hardware in a few words: cores, memory and processor.
func Machine() string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.SplitSeq(string(info), "\n") {
			if rest, ok := strings.CutPrefix(line, "model name"); ok {
				model = strings.TrimSpace(strings.TrimLeft(rest, "\t :"))
				break
			}
		}
	}
	memory := ""
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib int64
		if _, err := fmt.Sscanf(string(info), "MemTotal: %d kB", &kib); err == nil {
			memory = fmt.Sprintf(", %d GiB", (kib+1<<19)>>20)
		}
	}
	return fmt.Sprintf("%d cores%s, %s, %s/%s", runtime.NumCPU(), memory, model, runtime.GOOS, runtime.GOARCH)
}

func NewResult(name string, o *Options) *Result {
	target := o.Target
	if target == "" {
		target = fmt.Sprintf("corbel, %d server(s) started by the bench", o.Servers)
	}
	return &Result{Bench: name, Target: target, Machine: Machine(), Date: time.Now().UTC().Truncate(time.Second)}
}

// AddFloors measures the floors unless told not to, and relates the rows to them.
func (r *Result) AddFloors(ctx context.Context, o *Options) error {
	if o.SkipFloors {
		return nil
	}
	floors, err := MeasureFloors(ctx, o)
	if err != nil {
		return err
	}
	r.Floors = floors
	for i := range r.Rows {
		row := &r.Rows[i]
		switch row.Floor {
		case FloorHTTP:
			row.FloorRatio = row.PerSecond / floors.HTTPPerSecond
		case floorFsync:
			row.FloorRatio = row.PerSecond / floors.FsyncPerSecond
		}
	}
	return nil
}

// WriteJSON writes the result as one indented JSON object.
func (r *Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the result for people.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "bench %s  against %s\n%s  %s\n", r.Bench, r.Target, r.Machine, r.Date.Format(time.DateOnly))
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "  %-44s", row.What)
		if row.PerSecond > 0 {
			fmt.Fprintf(&b, " %9.0f/s", row.PerSecond)
		}
		for _, q := range []string{"p50", "p90", "p99", "max"} {
			if v, ok := row.Millis[q]; ok {
				fmt.Fprintf(&b, "  %s %.2f ms", q, v)
			}
		}
		if row.Errors > 0 {
			fmt.Fprintf(&b, "  ERRORS %d", row.Errors)
		}
		if row.RSSBytes > 0 {
			fmt.Fprintf(&b, "  rss %.0f MiB", float64(row.RSSBytes)/(1<<20))
		}
		if row.ServerCPUMicros > 0 {
			fmt.Fprintf(&b, "  server cpu %.1f us", row.ServerCPUMicros)
		}
		if row.FloorRatio > 0 {
			fmt.Fprintf(&b, "  = %.2f of %s", row.FloorRatio, row.Floor)
		}
		if row.Note != "" {
			fmt.Fprintf(&b, "  (%s)", row.Note)
		}
		b.WriteByte('\n')
	}
	if f := r.Floors; f != nil {
		b.WriteString(f.Text())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// NewHistogram records microseconds from 1 us to 10 min with three digits.
func NewHistogram() *hdr.Histogram { return hdr.New(1, 600_000_000, 3) }

func Record(h *hdr.Histogram, d time.Duration) {
	_ = h.RecordValue(max(1, min(int64(d/time.Microsecond), 600_000_000)))
}

func Millis(h *hdr.Histogram) map[string]float64 {
	if h.TotalCount() == 0 {
		return nil
	}
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return map[string]float64{"p50": at(50), "p90": at(90), "p99": at(99), "p999": at(99.9),
		"max": float64(h.Max()) / 1000, "mean": h.Mean() / 1000}
}
