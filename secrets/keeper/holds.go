package keeper

import (
	"context"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/policy"
)

// holds judges again whether whoever reads a stream may. A token's uses are not counted. Its error is that the right
// has ended: what cannot be known at the moment, without an active server for instance, ends nothing.
func (k *Keeper) holds(ctx context.Context, t *task) error {
	k.reign.RLock()
	defer k.reign.RUnlock()
	st := k.state.Load()
	if st == nil && k.Standby() && k.replica.at.Load() == k.replica.gen.Load() {
		st = k.replica.state.Load()
	}
	if st == nil {
		if k.Sealed() {
			return errDenied
		}
		return nil
	}
	r := *t.Request
	r.Now = k.cfg.Now()
	again := &task{Request: &r, st: st}
	again.entry, r.Rest = st.mounts.Route(r.Path)
	h, err := k.known(ctx, again)
	if err == nil {
		q := policy.Request{Path: r.Path, Need: r.Op.Need(), Protected: matches(t.engine.Special().Protected, r.Rest)}
		if h.acl.AsksParameters() {
			if f, err := t.Fields(); err == nil {
				q.Data = f.Plain()
			}
		}
		if !h.acl.Allow(&q).Allowed {
			err = errDenied
		}
	}
	if errkind.Is(err, errkind.Denied) {
		return err
	}
	return nil
}
