package node

import (
	"slices"

	"corbel.dev/corbel/monitor/pipeline"
)

const (
	// maxUnreached bounds what is named at once, maxUnreachedNames what is named in a process' life: each is a series.
	maxUnreached, maxUnreachedNames = 10, 100
)

// tellUnreached tells the doctor of checks and handlers whose events reach nobody. The plane's leader alone does: all
// servers know the same. One goroutine calls it.
func (m *monitorPlane) tellUnreached() {
	var list []pipeline.Unreached
	if m.raft.LeaseHeld() {
		list = m.pipes.Unreached()
	}
	m.p.Metrics.Gauge("monitor.unreached").Set(float64(len(list)))
	list = list[:min(len(list), maxUnreached)]
	for _, u := range m.unreached {
		if !slices.Contains(list, u) {
			m.unreachedGauge(u, 0)
		}
	}
	m.unreached = m.unreached[:0]
	for _, u := range list {
		if m.unreachedNamed[u] || len(m.unreachedNamed) < maxUnreachedNames {
			m.unreachedNamed[u] = true
			m.unreachedGauge(u, 1)
			m.unreached = append(m.unreached, u)
		}
	}
}

func (m *monitorPlane) unreachedGauge(u pipeline.Unreached, v float64) {
	m.p.Metrics.Gauge("monitor.unreached_by", "kind", u.Kind, "object", u.Namespace+"/"+u.Name, "reason", u.Reason).Set(v)
}
