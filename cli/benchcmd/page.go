package benchcmd

import (
	"bytes"
	"fmt"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/kit/plotpage"
)

// savePage writes what a bench measured as a page: figures as bars where they are rows of a result, and the text that
// the terminal shows in any case.
func savePage(name, path string, r report) error {
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		return err
	}
	p := plotpage.Page{Title: "corbel bench " + name, Words: []string{bench.Machine()}}
	if result, ok := r.(*bench.Result); ok {
		p.At, p.Words = result.Date, []string{result.Target, result.Machine}
		p.Parts = resultParts(result)
	}
	p.Parts = append(p.Parts, plotpage.Part{Head: "As text", Pre: text.String()})
	return p.Save(path)
}

// resultParts are the rates with the floors that bound them, and the times that requests took.
func resultParts(r *bench.Result) (parts []plotpage.Part) {
	rates := plotpage.Part{Head: "Requests a second"}
	for i := range r.Rows {
		if row := &r.Rows[i]; row.PerSecond > 0 {
			words := fmt.Sprintf("%.0f/s", row.PerSecond)
			if row.FloorRatio > 0 {
				words += fmt.Sprintf(", %.2f of the floor (%s)", row.FloorRatio, row.Floor)
			}
			rates.Bars = append(rates.Bars, plotpage.Bar{Name: row.What, Value: row.PerSecond, Words: words})
		}
	}
	if len(rates.Bars) > 0 {
		parts = append(parts, rates)
	}
	if f := r.Floors; f != nil {
		part := plotpage.Part{Head: "Floors of this machine, a second"}
		for _, one := range []struct {
			name  string
			value float64
		}{{"fsync of 4 KiB appends", f.FsyncPerSecond}, {"the same, preallocated", f.FsyncPreallocatedPerSecond},
			{"bare net/http", f.HTTPPerSecond}, {"loopback gRPC", f.GRPCPerSecond}} {
			part.Bars = append(part.Bars, plotpage.Bar{Name: one.name, Value: one.value,
				Words: fmt.Sprintf("%.0f/s", one.value)})
		}
		parts = append(parts, part)
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		part := plotpage.Part{Head: row.What + ", ms"}
		for _, name := range []string{"mean", "p50", "p90", "p99", "p999", "max"} {
			if v, ok := row.Millis[name]; ok {
				part.Bars = append(part.Bars, plotpage.Bar{Name: name, Value: v, Words: fmt.Sprintf("%.3g ms", v)})
			}
		}
		if row.Note != "" {
			part.Words = []string{row.Note}
		}
		if row.Errors > 0 {
			part.State = "critical"
			part.Words = append(part.Words, fmt.Sprintf("%d of %d requests failed", row.Errors, row.Requests))
		}
		if len(part.Bars) > 0 || len(part.Words) > 0 {
			parts = append(parts, part)
		}
	}
	return parts
}
