package parts

import (
	"cmp"
	"context"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage/definitions"
)

var errDrains = errkind.New(errkind.Unavailable, "usage: this server is being stopped")

// Drain gives up all that this server has, before it is stopped: the copies of its parts lead them, and the parts of
// which it has copies go on without it, so that nothing waits until somebody notices that it is gone. It returns when
// the others lead, or when ctx ends: what is left is taken over as after a crash. There is no way back but a start.
func (p *Parts) Drain(ctx context.Context) {
	p.leaving.Store(true)
	if p.draining.Swap(true) {
		return
	}
	began, had := p.cfg.Clock.Now(), p.has()
	for p.drained(had) > 0 && ctx.Err() == nil {
		changed := p.cfg.Definitions.Changed()
		t := p.cfg.Clock.NewTimer(look / 10)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
	p.cfg.Log.Info("usage: this server has handed its parts over", "parts", len(had), "left", p.drained(had),
		"after", p.cfg.Clock.Since(began))
}

// has are the parts of this server as the table has them now.
func (p *Parts) has() map[string]definitions.Part {
	view, list := p.cfg.Definitions.View(), map[string]definitions.Part{}
	for _, name := range p.Names() {
		if now := view.Part(name); now.Lead == p.cfg.Self || now.Copy == p.cfg.Self {
			list[name] = now
		}
	}
	return list
}

// drained is how many of these are not in the hands of others. A new lead takes an epoch of its own when it begins.
func (p *Parts) drained(had map[string]definitions.Part) (left int) {
	view := p.cfg.Definitions.View()
	for name, was := range had {
		now := view.Part(name)
		gone := now.Lead != p.cfg.Self && now.Copy != p.cfg.Self
		if was.Lead == p.cfg.Self {
			gone = gone && now.Epoch >= was.Epoch+2
		}
		if !gone && !p.stays(was) {
			left++
		}
	}
	return left
}

// stays says whether a part is not given up at a stop: nobody can lead it but this server, or its lead goes on without
// a copy at no price.
func (p *Parts) stays(now definitions.Part) bool {
	switch {
	case p.cfg.Shared:
		return false
	case now.Lead == p.cfg.Self:
		return now.Copy == ""
	}
	return p.cfg.Alone <= 0
}

// yield gives a part up, once. It is tried again with the next step.
func (t *part) yield(ctx context.Context, now definitions.Part) {
	self, c := t.p.cfg.Self, t.Counter
	if !slices.Contains(t.p.cfg.Definitions.View().Owners, t.name) {
		return
	}
	if now.Lead != self && c.Leads() {
		c.Share().Follow(now.Epoch)
	}
	if now.Lead != self && now.Copy != self || t.p.stays(now) {
		return
	}
	next, err := t.successor(ctx, now)
	switch {
	case err != nil:
	case now.Lead == self:
		err = t.hand(ctx, now, next, "")
	default:
		err = t.change(ctx, now, next, "")
	}
	if err != nil && ctx.Err() == nil {
		t.p.cfg.Log.Info("usage: a part is not handed over yet", "part", t.name, "error", err)
		return
	}
	t.p.cfg.Log.Info("usage: a part is handed over", "part", t.name, "from", now.Lead, "to", next)
}

// successor is who leads a part without this server, and is there to do so.
func (t *part) successor(ctx context.Context, now definitions.Part) (string, error) {
	switch {
	case now.Lead != t.p.cfg.Self:
		return now.Lead, t.there(ctx, now.Lead)
	case !t.p.cfg.Shared:
		return now.Copy, t.there(ctx, now.Copy)
	}
	view := t.p.cfg.Definitions.View()
	others := slices.Clone(t.p.cfg.Voters())
	slices.SortFunc(others, func(a, b string) int {
		return cmp.Or(cmp.Compare(led(view, a), led(view, b)), cmp.Compare(a, b))
	})
	for _, s := range others {
		if s != t.p.cfg.Self && t.there(ctx, s) == nil {
			return s, nil
		}
	}
	return "", errkind.New(errkind.Unavailable, "usage: no other server answers")
}

// there asks a server for a sign of life; one that is being stopped, too, gives none.
func (t *part) there(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := t.call(ctx, server, MethodPing, nil)
	return err
}
