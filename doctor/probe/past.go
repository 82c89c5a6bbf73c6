package probe

import (
	"slices"
	"time"

	"corbel.dev/corbel/doctor"
)

const (
	// maxPast is how many findings are remembered.
	maxPast = 64
	// goneAfter is for how long a finding has to be away until it has ended: what flickers is one.
	goneAfter = 30 * time.Second
)

// past remembers what was found in this process. The newest comes last.
type past struct {
	all  []doctor.Past
	seen map[string]time.Time // of those that last, when they were found last
}

// take notes what is found now and returns what began and what ended.
func (p *past) take(now time.Time, findings []doctor.Finding) (began, ended []doctor.Past) {
	if p.seen == nil {
		p.seen = map[string]time.Time{}
	}
	for _, f := range findings {
		key := f.Code + "\x00" + f.Culprit
		if _, lasts := p.seen[key]; !lasts {
			from := f.Since
			if from.IsZero() || from.After(now) {
				from = now
			}
			one := doctor.Past{Code: f.Code, Title: f.Title, Culprit: f.Culprit, From: from}
			if len(p.all) >= maxPast {
				p.all = slices.Delete(p.all, 0, 1)
			}
			p.all, began = append(p.all, one), append(began, one)
		}
		p.seen[key] = now
	}
	for i := range p.all {
		one := &p.all[i]
		key := one.Code + "\x00" + one.Culprit
		if at, lasts := p.seen[key]; one.Until.IsZero() && (!lasts || now.Sub(at) >= goneAfter) {
			one.Until = at
			if !lasts {
				one.Until = now
			}
			delete(p.seen, key)
			ended = append(ended, *one)
		}
	}
	return began, ended
}

// list is what is remembered, the newest first.
func (p *past) list() []doctor.Past {
	out := slices.Clone(p.all)
	slices.Reverse(out)
	return out
}

// tellsAfter is how often evidence is told after the last finding is gone: one that does not arrive costs nothing.
const tellsAfter = 3

// judge looks at this process alone after each tick: for the log, the gauges doctor.findings{code}, and the memory of
// what was.
func (p *Probe) judge() {
	e := p.Evidence()
	report := doctor.Judge(&doctor.Cluster{At: e.At, Members: []doctor.Evidence{e}})
	p.mu.Lock()
	began, ended := p.past.take(e.At, report.Findings)
	p.mu.Unlock()
	for _, f := range began {
		p.cfg.Log.Warn("doctor: "+f.Title, "code", f.Code, "culprit", f.Culprit)
	}
	for _, f := range ended {
		p.cfg.Log.Info("doctor: resolved: "+f.Title, "code", f.Code, "lasted", f.Until.Sub(f.From).Round(time.Second))
	}
	for _, code := range doctor.Codes() {
		n := 0
		for i := range report.Findings {
			if report.Findings[i].Code == code {
				n++
			}
		}
		p.cfg.Metrics.Gauge("doctor.findings", "code", code).Set(float64(n))
	}
	if len(report.Findings) > 0 {
		p.tells = tellsAfter + 1
		if p.cfg.Look != nil {
			p.cfg.Look()
		}
	}
	if p.tells == 0 {
		return
	}
	p.tells--
	if p.cfg.Tell != nil {
		p.cfg.Tell(e)
	}
}
