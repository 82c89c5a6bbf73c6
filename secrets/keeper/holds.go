package keeper

import (
	"context"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/task"
)

// holds judges again whether whoever reads a stream may. A token's uses are not counted. Its error is that the right
// has ended: what cannot be known at the moment, without an active server for instance, ends nothing. Paths below the
// mount that are protected need sudo.
func (k *Keeper) holds(ctx context.Context, t *task.Task, protected ...string) error {
	defer k.gate.Hold()()
	st := k.gate.Load()
	if st == nil {
		st = k.replica.table()
	}
	if st == nil {
		if k.Sealed() {
			return rights.ErrDenied
		}
		return nil
	}
	r := *t.Request
	r.Now = k.cfg.Now()
	again := k.newTask(st, &r)
	h, err := k.rights.Known(ctx, again.Tables, again.Token, again.Now, again.Remote)
	if err == nil {
		q := policy.Request{Path: h.At(again.Tables, r.Path), Need: r.Op.Need(), Protected: engine.Matches(protected, r.Rest)}
		if h.ACL.AsksParameters() {
			if f, err := t.Fields(); err == nil {
				q.Data = f.Plain()
			}
		}
		if !h.ACL.Allow(&q).Allowed {
			err = rights.ErrDenied
		}
	}
	if errkind.Is(err, errkind.Denied) {
		return err
	}
	return nil
}
