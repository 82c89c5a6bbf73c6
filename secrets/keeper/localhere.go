package keeper

import (
	"context"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/task"
)

// IsLocal is whether a path tells of the server that it is asked of, and not of the cluster.
func IsLocal(path string) bool {
	switch path {
	case "sys/host-info", "sys/in-flight-req", "sys/monitor", "sys/metrics", "sys/config/state/sanitized", "sys/pprof":
		return true
	}
	return strings.HasPrefix(path, "sys/pprof/")
}

// LocalHere answers a path that tells of this server, on a standby that can judge who asks by its copy. False: it
// cannot, and nothing was done or recorded.
func (k *Keeper) LocalHere(ctx context.Context, r *secrets.Request) (*task.Reply, bool) {
	if r.Op != secrets.Read || r.Wrap != 0 || r.Token == "" || !IsLocal(r.Path) {
		return nil, false
	}
	t, ok := k.judgedHere(ctx, r)
	if !ok {
		return nil, false
	}
	begin := time.Now()
	defer k.flying.Begin(&t.Flight).End(&t.Flight) // no lock is held: a profile takes its time
	resp, err := t.Handle(ctx, r)
	if err != nil {
		return nil, false
	}
	reply := &task.Reply{Response: resp, Mount: t.Entry}
	if !k.recordedHere(ctx, t, reply) {
		return nil, false
	}
	k.meters.done(ctx, t, begin, reply)
	return reply, true
}

// judgedHere finds whose request it is and whether the policies surely allow it.
func (k *Keeper) judgedHere(ctx context.Context, r *secrets.Request) (*task.Task, bool) {
	defer k.gate.Hold()()
	st := k.replica.state.Load()
	if st == nil || k.replica.at.Load() != k.replica.gen.Load() || !k.Standby() {
		return nil, false
	}
	r.Now = k.cfg.Now()
	t := &task.Task{Request: r, Tables: st, Flight: flight.Entry{Request: r, Method: r.Op.String()}}
	t.Entry, r.Rest = st.Mounts.Route(r.Path)
	if t.Entry == nil || t.Entry.Type != "system" || k.admit(ctx, t) != nil {
		return nil, false
	}
	r.Mount = t.Entry.Path
	t.Engine, t.View = k.system, k.records.At(t.Entry.Prefix())
	return t, k.allowedHere(ctx, t)
}
