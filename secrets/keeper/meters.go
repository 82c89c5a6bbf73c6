package keeper

import "corbel.dev/corbel/telemetry"

// meters are what requests count, found once. Names are the contract's, without its prefix.
type meters struct {
	audit       map[string]*telemetry.Timing
	auditFailed map[string]*telemetry.Counter
}

func newMeters(r *telemetry.Registry) *meters {
	m := &meters{audit: map[string]*telemetry.Timing{}, auditFailed: map[string]*telemetry.Counter{}}
	for _, name := range []string{"log_request", "log_response"} {
		m.audit[name], m.auditFailed[name] = r.Timing("audit."+name), r.Counter("audit."+name+"_failure")
	}
	return m
}
