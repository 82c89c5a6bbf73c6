package usageplane

import (
	"context"
	"time"

	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/senders"
)

const (
	tellEvery = 10 * time.Second
	// mostTold bounds what is told of each kind by name.
	mostTold = 10
	// maxLabel bounds a name in a label.
	maxLabel = 80
)

// tell tells the doctor what is found of senders and limits, until ctx ends.
func (p *Plane) tell(ctx context.Context) error {
	r := newReporter(p.d.Metrics)
	for {
		t := p.d.Clock.NewTimer(tellEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		now := p.d.Clock.Now()
		clocks, growing := p.Router.Senders().Look(now, mostTold)
		r.clocks(clocks)
		r.growing(growing)
		r.unjudged(p.Aggregator.Unjudged(), now)
	}
}

// reporter has what is told by name.
type reporter struct{ clock, identities, limits *telemetry.GaugeSet }

func newReporter(m *telemetry.Registry) *reporter {
	return &reporter{clock: m.GaugeSet("usage.sender.clock_ms"), identities: m.GaugeSet("usage.identities.growth"),
		limits: m.GaugeSet("usage.limits.unjudged_ms")}
}

func (r *reporter) clocks(list []senders.Clock) {
	var points []telemetry.Point
	for _, c := range list {
		points = append(points, telemetry.Point{Labels: []string{"sender", cut(string(c.Sender))},
			Value: float64(c.Ahead) / float64(time.Millisecond)})
	}
	r.clock.Replace(points)
}

func (r *reporter) growing(list []senders.Growth) {
	var points []telemetry.Point
	for _, g := range list {
		points = append(points, telemetry.Point{Labels: []string{"product", cut(g.Product), "field", cut(g.Name)},
			Value: g.Times})
	}
	r.identities.Replace(points)
}

func (r *reporter) unjudged(list []aggregator.Unjudged, now time.Time) {
	var points []telemetry.Point
	for _, u := range list[:min(len(list), mostTold)] {
		points = append(points, telemetry.Point{Labels: []string{"limit", cut(u.Limit), "reason", u.Reason},
			Value: float64(now.Sub(u.Since)) / float64(time.Millisecond)})
	}
	r.limits.Replace(points)
}

func cut(name string) string { return name[:min(len(name), maxLabel)] }
