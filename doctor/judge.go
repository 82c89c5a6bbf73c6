package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// rule looks at one member for one kind of cause.
type rule struct {
	code  string
	judge func(*view) []Finding
}

// Judge turns evidence into a report.
func Judge(c *Cluster) Report {
	r := Report{At: c.At, Asked: len(c.Members), Silent: c.Silent, Findings: []Finding{}, Fine: []string{}}
	var views []*view
	var symptoms []symptom
	var causes []Finding
	for i := range c.Members {
		v := newView(&c.Members[i], c)
		views = append(views, v)
		symptoms = append(symptoms, v.symptoms()...)
		for _, rule := range rules {
			for _, f := range rule.judge(v) {
				f.Code, f.Member = rule.code, v.Member
				f.Evidence = slices.Clone(f.Evidence)
				f.explains = within(f.explains, v)
				if v.Cluster != "" && strings.HasPrefix(f.subject, everywhere) {
					f.subject += " of " + v.Cluster
				}
				causes = append(causes, f)
			}
		}
		for _, gap := range v.Gaps {
			r.Gaps = append(r.Gaps, v.Member+": "+gap)
		}
	}
	causes = append(causes, missing(c, views)...)
	explained := score(causes, symptoms, views)
	for i := range symptoms {
		if !explained[i] {
			if v := viewOf(views, symptoms[i].member); !excused(v, &symptoms[i]) {
				causes = append(causes, symptoms[i].unexplained(v))
			}
		}
	}
	causes = merge(causes)
	r.Findings = append(r.Findings, fold(causes, views)...)
	rank(r.Findings)
	date(r.Findings, views)
	for i := range r.Findings {
		r.Findings[i].Not = exonerate(&r.Findings[i], causes, views)
	}
	r.Fine = fine(causes, views)
	return r
}

// date gives findings that do not tell since when the moment at which their member found them first.
func date(findings []Finding, views []*view) {
	for i := range findings {
		f := &findings[i]
		v := viewOf(views, f.Member)
		if !f.Since.IsZero() || v == nil {
			continue
		}
		for _, p := range v.Past {
			if p.Code == f.Code && p.Culprit == f.Culprit && p.Until.IsZero() {
				f.Since = p.From
			}
		}
	}
}

func viewOf(views []*view, member string) *view {
	for _, v := range views {
		if v.Member == member {
			return v
		}
	}
	return nil
}

// within bounds reaches to the cluster of the member that they come from: another one's groups may have the same names.
func within(reaches []reach, v *view) (out []reach) {
	for _, r := range reaches {
		if r.member != "" {
			out = append(out, r)
			continue
		}
		for i := range v.cluster.Members {
			if o := &v.cluster.Members[i]; o.Cluster == v.Cluster {
				out = append(out, reach{member: o.Member, plane: r.plane, stage: r.stage})
			}
		}
	}
	return out
}

// score gives each cause its part of the time lost, with the symptoms that it explains as evidence; it returns which
// are explained.
func score(causes []Finding, symptoms []symptom, views []*view) []bool {
	explained := make([]bool, len(symptoms))
	total := 0.0
	for _, y := range symptoms {
		total += y.lost
	}
	for i := range causes {
		f := &causes[i]
		reaches := spread(f, views)
		lines := 0
		for j := range symptoms {
			y := &symptoms[j]
			if !slices.ContainsFunc(reaches, func(r reach) bool { return r.covers(y.member, y.plane, y.stage) }) {
				continue
			}
			explained[j] = true
			f.Score += y.lost / max(total, 1e-9)
			if lines < 3 {
				f.Evidence = append(f.Evidence, y.line())
				lines++
			}
			if f.Since.IsZero() || (!y.series.Since.IsZero() && y.series.Since.Before(f.Since)) {
				f.Since = y.series.Since
			}
		}
		f.Score = min(f.Score, 1)
	}
	return explained
}

// spread is all that a cause slows: what it says itself, and what stores in a member that it slows.
func spread(f *Finding, views []*view) []reach {
	out := slices.Clone(f.explains)
	for _, v := range views {
		for _, d := range v.Depends {
			for _, on := range views {
				if on.Member != v.Member && dependsOn(d, on) &&
					slices.ContainsFunc(f.explains, func(r reach) bool { return r.covers(on.Member, "catalog", "") }) {
					out = append(out, reach{member: v.Member, plane: d.Plane})
				}
			}
		}
	}
	return out
}

func dependsOn(d Dependency, on *view) bool {
	return slices.ContainsFunc(d.Addresses, func(a string) bool { return slices.Contains(on.Addresses, a) })
}

// everywhere begins the subjects of findings that are the same whichever member reports them.
const everywhere = "cluster:"

// merge joins findings of one code and subject that several members report, such as a dead peer: the first keeps the
// words.
func merge(all []Finding) []Finding {
	var out []Finding
	for _, f := range all {
		same := slices.IndexFunc(out, func(o Finding) bool {
			return o.Code == f.Code && o.subject == f.subject && (o.Member == f.Member ||
				strings.HasPrefix(f.subject, everywhere))
		})
		if same < 0 {
			out = append(out, f)
			continue
		}
		o := &out[same]
		if o.Member != f.Member && len(o.Evidence) < 8 {
			o.Evidence = append(o.Evidence, Line{Text: "also seen by " + f.Member})
		}
		if f.Severity.weight() > o.Severity.weight() {
			o.Severity = f.Severity
		}
		o.Score = max(o.Score, f.Score)
	}
	return out
}

// fold puts findings that a deeper one explains under it.
func fold(all []Finding, views []*view) []Finding {
	under := make([]int, len(all))
	for i := range all {
		under[i] = -1
		for j := range all {
			deeper := all[i].effect && all[j].layer > all[i].layer && len(all[j].explains) > 0
			if i == j || !deeper || (under[i] >= 0 && all[under[i]].layer >= all[j].layer) {
				continue
			}
			f := &all[i]
			if slices.ContainsFunc(spread(&all[j], views), func(r reach) bool { return r.covers(f.Member, f.Plane, f.Stage) }) {
				under[i] = j
			}
		}
	}
	top := func(i int) int {
		for range all {
			if under[i] < 0 {
				break
			}
			i = under[i]
		}
		return i
	}
	for i := range all {
		if t := top(i); t != i {
			all[t].Causes = append(all[t].Causes, Consequence{all[i].Code, all[i].Member, all[i].Title})
			all[t].Score = max(all[t].Score, all[i].Score)
			if all[i].Severity == Critical {
				all[t].Severity = Critical
			}
		}
	}
	var out []Finding
	for i := range all {
		if under[i] < 0 {
			out = append(out, all[i])
		}
	}
	return out
}

// excused reports whether a symptom needs no finding: a machine whose CPU is used up by work keeps up as well as it
// can, and is slow by itself only far beyond the limits.
func excused(v *view, y *symptom) bool {
	return v.cpuScarce() && y.series.Now.Mean < 5*y.limit
}

// cpuScarce reports whether work on this machine waits for its CPU: nearly all of it is in use, or some work waited
// for it most of the last ten seconds, which the kernel knows from the first moment on.
func (v *view) cpuScarce() bool {
	busy, _ := v.value("host.cpu.busy")
	waited, _ := v.value("host.psi", "resource", "cpu", "kind", "some")
	return busy > cpuUsedUp || waited > cpuWaited
}

// missing are findings about who did not answer.
func missing(c *Cluster, views []*view) []Finding {
	var out []Finding
	for _, s := range c.Silent {
		if s.Role == RoleAgent {
			continue // an agent that is away is the catalog's to tell
		}
		f := Finding{Code: "member-silent", Severity: Critical, Member: s.Member,
			cause:   cause{layer: layerMachine, fact: true},
			subject: "cluster:" + s.Member,
			Culprit: s.Member, Title: fmt.Sprintf("%s does not answer: %s", s.Member, s.Reason),
			Evidence: []Line{{Text: fmt.Sprintf("%d other members answered, %s did not: %s", len(views), s.Member, s.Reason)}},
			Do: []string{
				"Check that its process runs and its host answers: systemctl status corbel; ping.",
				"If it runs but hangs: kill -ABRT leaves its stacks in the log, then start it again.",
			}}
		out = append(out, f)
	}
	return out
}
