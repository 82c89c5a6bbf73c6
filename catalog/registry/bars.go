package registry

import (
	"context"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// expireBars lets the nodes back whose bar is over by this leader's clock.
func (r *Registry) expireBars(ctx context.Context) {
	now := r.cfg.Clock.Now()
	for rec := range r.State().Records(catalog.RecordNodeBar, "") {
		if b, err := catalog.ReadNodeBar(rec); err != nil || b.Until().After(now) {
			continue // one that cannot be read stays until somebody lifts it
		}
		// Only this bar: a newer one for the node stays.
		err := r.duty(ctx, &catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordDeleteCAS, Record: *rec}}})
		switch {
		case err == nil:
			r.cfg.Logger.Info("a removed node may register again: its bar has expired", "node", rec.Key)
		case ctx.Err() == nil:
			r.cfg.Logger.Warn("cannot lift the expired bar of a node; trying again", "node", rec.Key, "err", err)
		}
	}
}

// RenewLease gives a node its lease anew and returns the node. It writes nothing to the
// log. Errors: NotFound, Invalid for a node without a lease, and those of Read.
func (r *Registry) RenewLease(ctx context.Context, name string) (*catalog.Node, error) {
	for {
		if _, err := r.Read(ctx, Default); err != nil {
			return nil, err
		}
		n := r.State().Node(name)
		if n == nil {
			return nil, errkind.Errorf(errkind.NotFound, "node %q is not in the catalog: register it", name)
		}
		if LeaseOf(n) == 0 {
			return nil, errkind.Errorf(errkind.Invalid, "node %q has no lease: give it one with /v1/catalog/register?lease=30s",
				n.Name)
		}
		ending := r.leases.renew(n)
		if ending == nil {
			return n, nil
		}
		select { // it is just being deregistered
		case <-ending:
		case <-ctx.Done():
			return nil, errkind.E(errkind.Unavailable, "renew lease of node "+name, ctx.Err())
		}
	}
}
