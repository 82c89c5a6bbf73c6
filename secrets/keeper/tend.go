package keeper

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/telemetry"
)

// tendWithin bounds one request that an engine makes for itself.
const tendWithin = 90 * time.Second

// tendRounds bounds how often one engine is asked in a row, so that none keeps the others waiting.
const tendRounds = 64

// Tend does what engines ask of themselves (engine.Tender), and says how much that was.
// What fails is logged and asked again the next time.
func (k *Keeper) Tend(ctx context.Context) (done int, err error) {
	st := k.gate.Load()
	if st == nil {
		return 0, nil
	}
	type tended struct {
		in *tables.Tables
		*mount.Entry
	}
	var mounts []tended
	for in := range st.Each() {
		if in.Space != nil && in.Space.Going {
			continue
		}
		for _, e := range in.Mounts.All() {
			if _, ok := in.Engines[e.Accessor].(engine.Tender); ok && (in.Space == nil || e.Type != "identity") {
				mounts = append(mounts, tended{in, e})
			}
		}
	}
	begin := time.Now()
	k.meters.own.rollbacksWait.Set(float64(len(mounts)))
	defer k.meters.own.rollbacksWait.Set(0)
	for _, m := range mounts {
		n, err := k.tendOne(ctx, m.in, m.Entry, time.Since(begin))
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// tendOne does what one engine asks of itself. An error is one of all mounts; waited is how long the others kept it
// waiting.
func (k *Keeper) tendOne(ctx context.Context, st *tables.Tables, e *mount.Entry, waited time.Duration) (done int,
	err error) {
	defer k.meters.tending(e, waited)()
	tender, ok := st.Engines[e.Accessor].(engine.Tender)
	for round := 0; ok && round < tendRounds; round++ {
		n, err := k.tend(ctx, st, e, tender)
		done += n
		// storage is away, or sealed: of no use to the others either
		if ctx.Err() != nil || errkind.Is(err, errkind.Unavailable) {
			return done, err
		}
		if err != nil {
			k.cfg.Log.Warn("secrets: a mount's periodic work failed; trying again", "mount", e.Path, "error", err)
		}
		ok = err == nil && n > 0
	}
	return done, nil
}

func (k *Keeper) tend(ctx context.Context, st *tables.Tables, e *mount.Entry, tender engine.Tender) (done int,
	err error) {
	v, now := k.records.At(e.Prefix()), k.cfg.Now()
	list, err := tender.Due(ctx, v, now)
	for _, r := range list {
		r.Mount, r.Path, r.Now, r.Due = e.Path, e.Path+r.Rest, now, true
		r.Space, r.SpaceID = st.Path(), st.SpaceID()
		if err := k.own(ctx, &task.Task{Request: r, Tables: st, Entry: e, Engine: tender, View: v}); err != nil {
			return done, err
		}
		done++
	}
	return done, err
}

// own answers a request that an engine made for itself.
func (k *Keeper) own(ctx context.Context, t *task.Task) error {
	ctx, cancel := context.WithTimeout(telemetry.WithAccount(ctx, &t.Account), tendWithin)
	defer cancel()
	defer k.serial.Take(t.Name())()
	_, err := k.run(ctx, t)
	return err
}
