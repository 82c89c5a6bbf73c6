package keeper

import (
	"context"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/rights"
)

// errLargeOpen refuses a large body where nobody's rights are asked for.
var errLargeOpen = errkind.New(errkind.TooLarge, "request body too large: without a token it may have 1 MiB")

// MayBeLarge judges whether a request may bring a large body, before it is read: r has its path, token and address, and
// no body yet. Who has a token that counts may; a login may bring up to openBytes. Whoever does not may not, which is
// recorded. It is no more than that: Handle judges the request itself, and counts its token's use. A standby leaves
// it to the active server.
func (k *Keeper) MayBeLarge(ctx context.Context, r *secrets.Request, bytes, openBytes int64) error {
	st, leave, err := k.gate.Enter(ctx)
	if errkind.Is(err, errkind.NotLeader) && (r.Token != "" || bytes <= openBytes) {
		return nil
	} else if errkind.Is(err, errkind.NotLeader) {
		return rights.ErrDenied
	} else if err != nil {
		return err
	}
	defer leave()
	t := k.newTask(st, r)
	_, err = k.rights.Known(ctx, t.Tables, t.Token, t.Now, t.Remote)
	if err == nil || !errkind.Is(err, errkind.Denied) {
		return err
	}
	if t.Entry != nil {
		if open := engine.Matches(t.Engine.Special().Open, r.Rest); open && bytes > openBytes {
			return errLargeOpen
		} else if open {
			return nil
		}
	}
	return k.audited(ctx, t, err)
}
