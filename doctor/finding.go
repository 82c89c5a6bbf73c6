package doctor

import (
	"cmp"
	"slices"
	"time"
)

// Severity says how soon somebody has to act.
type Severity string

// The severities. Critical: requests fail or wait for seconds. Warning: slower than the limits allow, or about to fail.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
)

func (s Severity) weight() int {
	if s == Critical {
		return 2
	}
	return 1
}

// Finding is one thing that is wrong.
type Finding struct {
	// Code is stable; docs/runbook has a page for each.
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	// Title is one sentence: what is slow, and who is at fault.
	Title  string `json:"title"`
	Member string `json:"member"`
	Plane  string `json:"plane,omitempty"`
	Stage  string `json:"stage,omitempty"`
	// Culprit names the guilty part: a sink, a disk, a peer, a handler.
	Culprit string `json:"culprit"`
	// Since is when it began, zero when that is not known.
	Since time.Time `json:"since,omitzero"`
	// Evidence is what it rests on, the weightiest first.
	Evidence []Line `json:"evidence"`
	// Not is what it is not, with the figures that say so.
	Not []Line `json:"not,omitempty"`
	// Do is what to do, the first step first.
	Do []string `json:"do"`
	// Causes are findings that this one explains, and which go when it goes.
	Causes []Consequence `json:"causes,omitempty"`
	// Score ranks findings of the same severity: how much of the time lost it explains, 0 to 1.
	Score float64 `json:"score"`
	cause
	// subject tells findings of one code on one member apart.
	subject string
}

// cause says how a finding stands to others: which it explains, and which explain it.
type cause struct {
	// explains says which parts of which requests it slows.
	explains []reach
	// layer is how deep it lies: a deeper one explains those above it that are effects.
	layer layer
	// effect says that a deeper cause may be all there is to it.
	effect bool
	// fact says that it was seen as it is and not derived from figures: it comes before those of its severity, however
	// much of the time lost they explain, since what a dead server would have shown is in nobody's figures.
	fact bool
}

// Line is a worded figure.
type Line struct {
	Text string `json:"text"`
	// Key is the series or fact that it comes from.
	Key string `json:"key,omitempty"`
}

// Consequence is a finding that another one explains.
type Consequence struct {
	Code   string `json:"code"`
	Member string `json:"member"`
	Title  string `json:"title"`
}

// Report is the doctor's answer.
type Report struct {
	At       time.Time `json:"at"`
	Findings []Finding `json:"findings"`
	// Fine are statements about what was measured and is in order.
	Fine []string `json:"fine"`
	// Members that gave evidence, and those that did not.
	Asked  int      `json:"asked"`
	Silent []Silent `json:"silent,omitempty"`
	Gaps   []string `json:"gaps,omitempty"`
}

// Healthy reports whether there is nothing to act on.
func (r *Report) Healthy() bool { return len(r.Findings) == 0 }

// layer orders causes. What lies deeper may explain what lies above it on the same path.
type layer int

const (
	layerSymptom  layer = iota // something is slow, and why is not known
	layerLoad                  // who asks, and for how much
	layerWork                  // what a plane does with it
	layerStorage               // what it waits for
	layerCommit                // the group under it
	layerMachine               // disk, network, CPU, clock, descriptors
	layerObserver              // what should only look on, and blocks: it is in nobody's way by nature
)

// reach is a part of the cluster's work that a cause slows: empty fields mean all.
type reach struct {
	member, plane, stage string
}

func (r reach) covers(member, plane, stage string) bool {
	return (r.member == "" || r.member == member) && (r.plane == "" || plane == "" || r.plane == plane) &&
		(r.stage == "" || stage == "" || r.stage == stage)
}

// place is a finding's before its score counts.
func (f *Finding) place() int {
	place := 2 * f.Severity.weight()
	if f.fact {
		place++
	}
	return place
}

// rank orders findings: severity, then facts, then how much they explain, then code and member, so that equal evidence
// gives an equal report.
func rank(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(
			-cmp.Compare(a.place(), b.place()),
			-cmp.Compare(a.Score, b.Score),
			-cmp.Compare(a.layer, b.layer),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Member, b.Member),
			cmp.Compare(a.subject, b.subject))
	})
}
