package host

import (
	"context"
	"time"

	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/telemetry"
)

// meters are the figures of a Host. The timings go from the commit at the server, by its clock, to this host's.
type meters struct {
	decoded, undecodable *telemetry.Counter
	received             *telemetry.Timing // commit -> value read here
	refused              [len(mesh.Sets{})]*telemetry.Counter
	answered             [len(mesh.Sets{})]*telemetry.Timing // response written -> answer read
	applied              [len(mesh.Sets{})]*telemetry.Timing // commit -> answer read
	written              [len(mesh.Sets{})]*telemetry.Timing // commit -> response written
	costs                *telemetry.Stages                   // of changes: sent to a proxy, acknowledged by it
}

func newMeters(h *Host, r *telemetry.Registry) meters {
	m := meters{decoded: r.Counter("mesh.host.values"), undecodable: r.Counter("mesh.host.unreadable"),
		received: r.Timing("mesh.received")}
	m.costs = r.Stages("mesh", "change")
	for _, t := range mesh.Every {
		m.refused[t] = r.Counter("mesh.refused", "type", t.String())
		m.answered[t] = r.Timing("mesh.acknowledged", "type", t.String())
		m.written[t] = r.Timing("mesh.propagation", "type", t.String(), "stage", "written")
		m.applied[t] = r.Timing("mesh.propagation", "type", t.String(), "stage", "applied")
	}
	r.GaugeFunc("mesh.host.proxies", func() float64 {
		h.mu.Lock()
		defer h.mu.Unlock()
		return float64(len(h.proxies))
	})
	r.GaugeFunc("mesh.host.subjects", func() float64 {
		h.mu.Lock()
		defer h.mu.Unlock()
		return float64(len(h.subjects))
	})
	return m
}

func (m *meters) answer(r *Report) {
	if r.Refused != "" {
		m.refused[r.Type].Add(1)
		return
	}
	if r.Sent.IsZero() {
		return // it had them before
	}
	m.answered[r.Type].Observe(r.Answered.Sub(r.Sent))
	for _, res := range r.Resources {
		// What was committed before the proxy came is not news: its age says nothing of how fast it went.
		if age := r.Sent.Sub(res.Changed); !res.Changed.IsZero() && age >= 0 && age < newsAge {
			m.written[r.Type].Observe(age)
			whole := r.Answered.Sub(res.Changed)
			m.applied[r.Type].Observe(whole)
			var spent telemetry.Spent
			spent[telemetry.StageSend], spent[telemetry.StageAck] = age, whole-age
			m.costs.Done(context.Background(), 0, whole, &spent)
		}
	}
}

// value notes a value of the servers.
func (m *meters) value(at, now time.Time) {
	m.decoded.Add(1)
	if age := now.Sub(at); !at.IsZero() && age >= 0 && age < newsAge {
		m.received.Observe(age)
	}
}
