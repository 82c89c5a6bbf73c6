package cluster

import (
	"strconv"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/telemetry"
)

// meters are what a server counts of its turns and of what it hands on, by Vault's names. Found once.
type meters struct {
	// how long a turn was; how long it took until one could not begin; to give way
	lost, setupFailed, stepDown *telemetry.Timing
	forward, echo               *telemetry.Timing
	forwardFailed, echoFailed   *telemetry.Counter
	nodes                       *telemetry.GaugeSet // whether each member is healthy, on the leader
	registry                    *telemetry.Registry
}

func newMeters(r *telemetry.Registry) meters {
	return meters{lost: r.Timing("core.leadership_lost"), setupFailed: r.Timing("core.leadership_setup_failed"),
		stepDown: r.Timing("core.step_down"),
		forward:  r.Timing("ha.rpc.client.forward"), echo: r.Timing("ha.rpc.client.echo"),
		forwardFailed: r.Counter("ha.rpc.client.forward.errors"), echoFailed: r.Counter("ha.rpc.client.echo.errors"),
		nodes: r.GaugeSet("autopilot.node.healthy"), registry: r}
}

// forwarded counts a request that was handed on. A client that went away is no error of the servers'.
func (m *meters) forwarded(took time.Duration, err error, left bool) {
	m.forward.Observe(took)
	if err != nil && !left {
		m.forwardFailed.Add(1)
	}
}

func (m *meters) echoed(took time.Duration, err error) {
	m.echo.Observe(took)
	if err != nil {
		m.echoFailed.Add(1)
	}
}

// steppedDown begins to time how this server gives way: what it gives ends that.
func (m *meters) steppedDown(c clock.Clock) (done func()) {
	begin := c.Now()
	return func() { m.stepDown.Observe(c.Since(begin)) }
}

// raftGauges are figures of the Raft library, by its names, and what they are called outside.
var raftGauges = map[string]string{"fsm_pending": "raft_storage.stats.fsm_pending",
	"applied_index": "raft_storage.stats.applied_index", "commit_index": "raft_storage.stats.commit_index"}

// tell sets the gauges of the Raft member and, on the leader, of all members. One goroutine's: echo's.
func (m *meters) tell(n *Node) {
	g, pilot := n.group.Load(), n.pilot.Load()
	if m.registry == nil || g == nil || pilot == nil {
		return
	}
	stats := g.Stats()
	for key, name := range raftGauges {
		if v, err := strconv.ParseUint(stats[key], 10, 64); err == nil {
			m.registry.Gauge(name).Set(float64(v))
		}
	}
	var points []telemetry.Point
	if st, ok := pilot.State(); ok {
		for id, h := range st.Servers {
			healthy := 0.0
			if h.Healthy {
				healthy = 1
			}
			points = append(points, telemetry.Point{Labels: []string{"node_id", id}, Value: healthy})
		}
	}
	m.nodes.Replace(points)
}
