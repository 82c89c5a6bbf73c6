package parts

import (
	"context"
	"slices"
	"time"

	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/definitions"
)

// shared is what is to be done about a part whose log brokers have: another server leads it when its lead is silent.
// Its home asks for it by itself: see part.reclaim.
func (f *fleet) shared(view *definitions.View, name string, voters map[string]bool) (next definitions.Part, ok bool) {
	if !f.silent(view.Part(name).Lead) {
		return next, false
	}
	best := ""
	for s := range voters {
		switch {
		case !f.fresh(s):
		case s == name:
			return definitions.Part{Lead: s}, true
		case best == "" || led(view, s) < led(view, best) || led(view, s) == led(view, best) && s < best:
			best = s
		}
	}
	return definitions.Part{Lead: best}, best != ""
}

// takeOver makes this server the lead of a part whose log brokers have, with all that stands there.
func (t *part) takeOver(ctx context.Context, was definitions.Part) error {
	if err := t.change(ctx, was, was.Lead, ""); err != nil {
		return err // somebody else leads, or nobody can say
	}
	now := t.now()
	if now.Lead != t.p.cfg.Self {
		return nil
	}
	if err := t.Counter.Share().CatchUp(ctx); err != nil {
		return err
	}
	if t.now() != now {
		return nil // it was decided anew meanwhile
	}
	t.p.cfg.Log.Info("usage: this server leads a part", "part", t.name, "epoch", now.Epoch)
	return t.start(ctx, now.Epoch, map[string]counter.Replica{})
}

// follow looks, now and then, for what a former lead has stored after this one took over.
func (t *part) follow(ctx context.Context) {
	if now := t.p.cfg.Clock.Now(); now.Sub(t.looked) >= time.Second {
		t.looked = now
		if err := t.Counter.Share().CatchUp(ctx); err != nil && ctx.Err() == nil {
			t.p.cfg.Log.Warn("usage: the log of a part cannot be read now", "part", t.name, "error", err)
		}
	}
}

// reclaim asks for this server's own part, when it has been up for a while and has counted nearly all of it.
func (t *part) reclaim(ctx context.Context, now definitions.Part) {
	clock := t.p.cfg.Clock
	if t.name != t.p.cfg.Self || !slices.Contains(t.p.cfg.Voters(), t.name) {
		return
	}
	if t.ready.IsZero() {
		t.ready = clock.Now()
	}
	if clock.Since(t.ready) < t.p.cfg.Failover || t.Counter.Share().CatchUp(ctx) != nil {
		return
	}
	t.ready = clock.Now()
	t.p.cfg.Log.Info("usage: this server asks for its part", "part", t.name, "lead", now.Lead)
	if err := t.change(ctx, now, t.name, ""); err != nil && ctx.Err() == nil {
		t.p.cfg.Log.Info("usage: it does not have its part yet", "part", t.name, "error", err)
	}
}
