package sizing

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
)

// Report is the line and what it was derived from.
type Report struct {
	Bench   string    `json:"bench"`
	Machine string    `json:"machine"`
	Date    time.Time `json:"date"`
	Fleet   Fleet     `json:"fleet"`
	Line    Line      `json:"line"`
	On      Machine   `json:"this_machine"`
	// EmptyBytes is the memory of a server that has nothing yet.
	EmptyBytes int64         `json:"empty_bytes"`
	Parts      []Part        `json:"parts"`
	Floors     *bench.Floors `json:"floors,omitempty"`
}

// WriteJSON writes the report as one indented JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	f := r.Fleet
	fmt.Fprintf(&b, "bench size  %s  %s\n", r.Machine, r.Date.Format(time.DateOnly))
	fmt.Fprintf(&b, "for %d nodes, %d services, %d watchers, %d proxies, %d leases, %d agents, %.1f changes/s\n",
		f.Nodes, f.Services, f.Watchers, f.Proxies, f.Leases, f.Agents, f.ChangesPerSecond)
	fmt.Fprintf(&b, "each of 3 or 5 servers: %d cores, %s of memory, a disk of %d fsyncs/s\n", r.Line.Cores,
		inBytes(float64(r.Line.MemoryBytes)), r.Line.IOPS)
	fmt.Fprintf(&b, "  of which used: %.2f cores, %s; the rest is left free\n", r.Line.UsedCores,
		inBytes(float64(r.Line.UsedBytes)))
	if len(r.Line.Lacks) > 0 {
		fmt.Fprintf(&b, "  THIS MACHINE HAS TOO LITTLE: %s\n", strings.Join(r.Line.Lacks, ", "))
	}
	fmt.Fprintf(&b, "derived from:\n  an empty server: %s\n", inBytes(float64(r.EmptyBytes)))
	for _, p := range r.Parts {
		fmt.Fprintf(&b, "  %s: %d, of which %d were measured", p.What, p.Units, p.Sample)
		if p.BytesEach > 0 {
			fmt.Fprintf(&b, "; %s each, %s", inBytes(p.BytesEach), inBytes(p.Bytes()))
		}
		if p.PerSecond > 0 {
			fmt.Fprintf(&b, "; %.1f/s at %.0f us: %.2f cores", p.PerSecond, p.CPUMicros, p.Cores())
		}
		if p.IOPS() > 0 {
			fmt.Fprintf(&b, "; %.2f fsyncs each: %.0f/s", p.Fsyncs, p.IOPS())
		}
		fmt.Fprintf(&b, "\n    measure it: %s\n", p.From)
		if p.Assumes != "" {
			fmt.Fprintf(&b, "    assumed: %s\n", p.Assumes)
		}
	}
	if r.Floors != nil {
		b.WriteString(r.Floors.Text())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// inBytes writes a size for people.
func inBytes(n float64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", n/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", n/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", n/(1<<10))
	}
	return fmt.Sprintf("%.0f bytes", n)
}
