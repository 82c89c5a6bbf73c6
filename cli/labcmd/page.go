package labcmd

import (
	"fmt"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/kit/plotpage"
	"corbel.dev/corbel/lab"
)

// savePage writes what runs came to as a page: what was done to the cluster, what the doctor said, after how long.
func savePage(path string, all []lab.Outcome) error {
	p := plotpage.Page{Title: "corbel lab", Words: []string{bench.Machine()}}
	took := plotpage.Part{Head: "From the fault to the diagnosis"}
	var runs []plotpage.Part
	for i := range all {
		o := &all[i]
		name := fmt.Sprintf("%s, run %d", o.Name, o.Run)
		part := plotpage.Part{Head: name, State: "passing", Pre: o.Text}
		if s := lab.Find(o.Name); s != nil {
			part.Words = append(part.Words, "The fault: "+s.About)
		}
		switch {
		case o.Error != "":
			part.State = "warning"
			part.Words = append(part.Words, "It could not be run to its end: "+o.Error)
		case !o.Diagnosed:
			part.State = "critical"
			part.Words = append(part.Words, "Expected: "+o.Expected+". Found first: "+o.Finding+" "+o.Culprit)
		case o.Expected != "":
			took.Bars = append(took.Bars, plotpage.Bar{Name: name, Value: o.Seconds, Words: fmt.Sprintf("%.1f s", o.Seconds)})
			part.Words = append(part.Words, fmt.Sprintf("Found after %.1f s: %s %s", o.Seconds, o.Finding, o.Culprit))
		}
		part.List = append(part.List, o.Not...)
		curve := plotpage.Part{Head: name + ": round trips to the cache, 99th percentile"}
		for _, s := range o.Steps {
			part.Rows = append(part.Rows, []string{s.About, s.Finding, s.Culprit, fmt.Sprintf("%.1f s", s.Seconds)})
			if s.RoundTrip > 0 {
				curve.Bars = append(curve.Bars, plotpage.Bar{Name: s.About, Value: s.RoundTrip,
					Words: fmt.Sprintf("%.1f ms", s.RoundTrip)})
			}
		}
		if len(curve.Bars) > 0 {
			runs = append(runs, curve)
		}
		if len(part.Rows) > 0 {
			part.Columns = []string{"Step", "Finding", "Culprit", "After"}
		}
		runs = append(runs, part)
	}
	if len(took.Bars) > 0 {
		p.Parts = append(p.Parts, took)
	}
	p.Parts = append(p.Parts, runs...)
	return p.Save(path)
}
