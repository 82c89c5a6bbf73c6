package feed

import (
	"slices"

	"corbel.dev/corbel/telemetry"
)

// serverMeters are what a Server counts.
type serverMeters struct {
	conns *telemetry.Gauge
	// written is from the commit of a change to the end of its write to a socket.
	written *telemetry.Timing
	// values were sent whole, conflated were replaced by newer ones before they were sent,
	// unchanged were answered without a body.
	values, bytes, conflated, unchanged *telemetry.Counter
	heartbeats, denied, refused         *telemetry.Counter
	cutStalled, cutFrames, cutHello     *telemetry.Counter
	late                                *telemetry.Laggards
}

func newServerMeters(r *telemetry.Registry, s *Server) serverMeters {
	cut := func(reason string) *telemetry.Counter { return r.Counter("feed.server.cut", "reason", reason) }
	m := serverMeters{
		conns:   r.Gauge("feed.server.connections"),
		written: r.Timing("feed.server.written"),
		values:  r.Counter("feed.server.values"), bytes: r.Counter("feed.server.bytes"),
		conflated: r.Counter("feed.server.conflated"), unchanged: r.Counter("feed.server.unchanged"),
		heartbeats: r.Counter("feed.server.heartbeats"), denied: r.Counter("feed.server.denied"),
		refused: r.Counter("feed.server.refused"),
		late:    r.Laggards("feed"), cutStalled: cut("stalled"), cutFrames: cut("protocol"), cutHello: cut("hello"),
	}
	r.GaugeFunc("feed.server.subjects", func() float64 { return float64(s.followed.Load()) })
	r.GaugeFunc("feed.server.dirty", func() float64 { return float64(s.dirtied.Load()) })
	return m
}

// clientMeters are what a Client counts.
type clientMeters struct {
	conns *telemetry.Gauge
	// received is from the commit of a change to its arrival, as far as two hosts' clocks agree.
	received *telemetry.Timing
	// outdated are values that another connection had brought before, or a newer one.
	values, bytes, outdated, denied, missed *telemetry.Counter
	reconnects                              [10]*telemetry.Counter // by the place of their reason in reconnectReasons
	// offset is how far the server's clock is behind this one, plus the way.
	offset *telemetry.Gauge
}

// The reasons for which a connection is given up.
var reconnectReasons = [10]string{"dial", "lost", "bye", "protocol", "silent", "lagging", "unanswered", "overflow",
	"removed", "rebalance"}

func newClientMeters(r *telemetry.Registry) clientMeters {
	m := clientMeters{
		conns: r.Gauge("feed.client.connections"), received: r.Timing("feed.client.received"),
		values: r.Counter("feed.client.values"), bytes: r.Counter("feed.client.bytes"),
		outdated: r.Counter("feed.client.outdated"),
		denied:   r.Counter("feed.client.denied"), missed: r.Counter("feed.client.heartbeats_missed"),
		offset: r.Gauge("feed.client.clock_offset"),
	}
	for i, reason := range reconnectReasons {
		m.reconnects[i] = r.Counter("feed.client.reconnects", "reason", reason)
	}
	return m
}

func (m *clientMeters) reconnect(reason string) {
	m.reconnects[slices.Index(reconnectReasons[:], reason)].Add(1)
}
