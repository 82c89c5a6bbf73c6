package doctorcmd

import (
	"bytes"
	"fmt"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/doctor/text"
	"corbel.dev/corbel/kit/plotpage"
)

// savePage writes a report as a page to attach to a postmortem: findings with their evidence, when each began, and the
// text that the terminal shows. flames are drawn after the findings.
func savePage(path string, r *doctor.Report, cluster *doctor.Cluster, since time.Duration,
	flames []plotpage.Part) error {
	p := plotpage.Page{Title: "corbel doctor", At: cluster.At,
		Words: []string{fmt.Sprintf("%d of %d members answered", r.Asked, r.Asked+len(r.Silent))}}
	if r.Healthy() {
		p.Parts = append(p.Parts, plotpage.Part{Head: "Nothing makes the cluster slow", State: "passing"})
	}
	share := plotpage.Part{Head: "How much of the lost time each finding explains"}
	begun := plotpage.Part{Head: "When it began", Columns: []string{"Since", "For", "Finding"}}
	var findings []plotpage.Part
	for i := range r.Findings {
		f := &r.Findings[i]
		share.Bars = append(share.Bars, plotpage.Bar{Name: f.Code + " " + f.Member, Value: f.Score, Of: 1,
			Words: fmt.Sprintf("%.0f %%", f.Score*100)})
		if !f.Since.IsZero() {
			begun.Rows = append(begun.Rows, []string{f.Since.UTC().Format("15:04:05"),
				cluster.At.Sub(f.Since).Round(time.Second).String(), f.Title})
		}
		part := plotpage.Part{Head: f.Title, State: string(f.Severity), Columns: []string{"", ""}}
		for _, l := range f.Evidence {
			part.Rows = append(part.Rows, []string{"evidence", l.Text})
		}
		for _, l := range f.Not {
			part.Rows = append(part.Rows, []string{"it is not", l.Text})
		}
		for _, c := range f.Causes {
			part.Rows = append(part.Rows, []string{"explains", c.Title})
		}
		for _, do := range f.Do {
			part.Rows = append(part.Rows, []string{"do", do})
		}
		findings = append(findings, part)
	}
	if len(share.Bars) > 0 {
		p.Parts = append(p.Parts, share)
	}
	if len(begun.Rows) > 0 {
		p.Parts = append(p.Parts, begun)
	}
	p.Parts = append(append(p.Parts, findings...), flames...)
	var b bytes.Buffer
	err := text.Write(&b, r)
	if err == nil && since > 0 {
		err = text.WritePast(&b, cluster, since)
	}
	if err != nil {
		return err
	}
	p.Parts = append(p.Parts, plotpage.Part{Head: "As text", Pre: b.String()})
	return p.Save(path)
}
