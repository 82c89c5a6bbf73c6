package xds

import (
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/xds/h2"
	"corbel.dev/corbel/api/xds/session"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/telemetry"
)

// meters are made once; all of them are nil-safe.
type meters struct {
	open                   atomic.Int64 // discovery streams
	responses, acks, nacks [mesh.TypeRoute + 1]*telemetry.Counter
	// From the commit of a change to the system call that wrote it, from there to the
	// proxy's acknowledgement, and both together.
	written, acked, applied *telemetry.Timing
	start                   *telemetry.Timing // from a stream's begin to its first response
	unauthenticated, denied *telemetry.Counter
	refused                 *telemetry.Counter
}

func newMeters(t *telemetry.Registry) *meters {
	m := &meters{
		written: t.Timing("xds.propagation.written"), acked: t.Timing("xds.propagation.answered"),
		applied: t.Timing("xds.propagation.applied"),
		start:   t.Timing("xds.server.streamStart"), unauthenticated: t.Counter("xds.server.streamsUnauthenticated"),
		denied: t.Counter("xds.server.streamsDenied"), refused: t.Counter("xds.server.streamsRefused"),
	}
	for _, typ := range mesh.Every {
		m.responses[typ] = t.Counter("xds.responses", "type", typ.String())
		m.acks[typ] = t.Counter("xds.acks", "type", typ.String())
		m.nacks[typ] = t.Counter("xds.nacks", "type", typ.String())
	}
	return m
}

// wrote is told when the content of a write was changed.
func (m *meters) wrote(changed []int64, now time.Time) {
	at := now.UnixNano()
	for _, one := range changed {
		m.written.Observe(time.Duration(at - one))
	}
}

func (m *meters) turnedAway(code h2.Code) {
	switch code {
	case h2.Unauthenticated:
		m.unauthenticated.Add(1)
	case h2.PermissionDenied:
		m.denied.Add(1)
	default:
		m.refused.Add(1)
	}
}

// refusals remembers what was logged: a proxy that refuses a resource may do so for ever.
type refusals struct {
	mu   sync.Mutex
	seen map[uint64]struct{}
}

const maxRefusals = 4096

func (r *refusals) log(log *slog.Logger, node string, a *session.Answer) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node))
	_, _ = h.Write([]byte{0, byte(a.Type)})
	for _, res := range a.Resources {
		_, _ = h.Write([]byte(res.Name))
		_, _ = h.Write([]byte(res.Version))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.seen[h.Sum64()]; ok {
		return
	}
	if len(r.seen) >= maxRefusals || r.seen == nil {
		r.seen = map[uint64]struct{}{}
	}
	r.seen[h.Sum64()] = struct{}{}
	log.Warn("xds: the proxy refused its configuration and keeps what it had", "proxy", node, "type", a.Type.String(),
		"resources", len(a.Resources), "reason", a.Refused)
}

// The Envoys of 1.x that are taken, and those that tests run.
const oldestEnvoy, testedEnvoy = 31, 36

func (s *Server) checkVersion(node *session.Node) error {
	if !node.HasVersion || node.Agent != "envoy" || node.Major != 1 || node.Minor >= testedEnvoy {
		return nil
	}
	if node.Minor < oldestEnvoy {
		s.meters.refused.Add(1)
		return errkind.Errorf(errkind.Invalid, "Envoy %d.%d.%d is too old: use %d.%d or newer", node.Major, node.Minor,
			node.Patch, 1, testedEnvoy)
	}
	if bit := uint64(1) << (node.Minor & 63); s.old.Or(bit)&bit == 0 {
		s.cfg.Log.Warn("xds: this Envoy is older than those that are tested", "version",
			[]uint32{node.Major, node.Minor, node.Patch}, "proxy", node.ID, "tested_from", "1.36")
	}
	return nil
}
