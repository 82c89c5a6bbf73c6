package keeper

import (
	"context"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
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
func (k *Keeper) LocalHere(ctx context.Context, r *secrets.Request) (*Reply, bool) {
	if r.Op != secrets.Read || r.Wrap != 0 || r.Token == "" || !IsLocal(r.Path) {
		return nil, false
	}
	t, ok := k.judgedHere(ctx, r)
	if !ok {
		return nil, false
	}
	begin := time.Now()
	defer k.flying.begin(t).end(t) // no lock is held: a profile takes its time
	resp, err := t.engine.Handle(context.WithValue(ctx, taskKey{}, t), t.view, r)
	if err != nil {
		return nil, false
	}
	reply := &Reply{Response: resp, Mount: t.entry}
	if !k.recordedHere(ctx, t, reply) {
		return nil, false
	}
	k.meters.done(ctx, t, begin, reply)
	return reply, true
}

// judgedHere finds whose request it is and whether the policies surely allow it.
func (k *Keeper) judgedHere(ctx context.Context, r *secrets.Request) (*task, bool) {
	k.reign.RLock()
	defer k.reign.RUnlock()
	st := k.replica.state.Load()
	if st == nil || k.replica.at.Load() != k.replica.gen.Load() || !k.Standby() {
		return nil, false
	}
	r.Now = k.cfg.Now()
	t := &task{Request: r, st: st, method: r.Op.String()}
	t.entry, r.Rest = st.mounts.Route(r.Path)
	if t.entry == nil || t.entry.Type != "system" || k.admit(ctx, t) != nil {
		return nil, false
	}
	r.Mount = t.entry.Path
	t.engine, t.view = &system{k}, k.records.At(t.entry.Prefix())
	return t, k.allowedHere(ctx, t)
}
