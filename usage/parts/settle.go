package parts

import (
	"context"
	"time"

	"corbel.dev/corbel/usage/definitions"
)

// settle finds out, after a start, of which parts the table names this server as the copy, and has it named no more
// where the disk is a new one: who has lost a copy must not be taken for one.
func (p *Parts) settle(ctx context.Context) {
	for ctx.Err() == nil {
		err := barrier(ctx, p)
		if err == nil && handBack(ctx, p) && p.disown(ctx) {
			p.settled.Store(true)
			return
		}
		t := p.cfg.Clock.NewTimer(look)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// barrier returns when the table of this server is as new as the question.
func barrier(ctx context.Context, p *Parts) error {
	ctx, cancel := context.WithTimeout(ctx, decideWithin)
	defer cancel()
	_, err := p.cfg.Definitions.Do(ctx, definitions.Command{At: p.cfg.Clock.Now(), Barrier: true})
	return err
}

// handBackWithin bounds what is waited for the answer of a copy that is to lead.
const handBackWithin = time.Second

// handBack gives the parts that the table has this server lead, on a disk that is new, to their copies where these
// answer: they take events at once, and this server's state may come from far away. False is where it is not known yet
// whether a disk is new.
func handBack(ctx context.Context, p *Parts) bool {
	view, all := p.cfg.Definitions.View(), true
	for _, name := range view.Owners {
		now := view.Part(name)
		if now.Lead != p.cfg.Self || now.Copy == "" {
			continue
		}
		t := opened(p, name)
		if t == nil {
			all = false
			continue
		}
		anew, known := t.Counter.Share().Anew()
		if all = all && known; !anew {
			continue
		}
		within, cancel := context.WithTimeout(ctx, handBackWithin)
		_, err := t.ask(within, now.Copy, now.Epoch)
		cancel()
		if err == nil {
			p.cfg.Log.Warn("usage: this server's disk is new: the copy leads its part", "part", name, "server", now.Copy)
			err = t.change(ctx, now, now.Copy, "")
		}
		if err != nil && ctx.Err() == nil {
			p.cfg.Log.Info("usage: the copy of a part does not lead it yet", "part", name, "server", now.Copy,
				"error", err)
		}
	}
	return all
}

// disown does it once; false where something is not known yet.
func (p *Parts) disown(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	view, all := p.cfg.Definitions.View(), true
	for _, name := range view.Owners {
		now := view.Part(name)
		if now.Copy != p.cfg.Self {
			continue
		}
		t := opened(p, name)
		if t == nil {
			all = false
			continue
		}
		whole, err := t.Counter.Share().Whole(ctx)
		if err == nil && !whole {
			p.cfg.Log.Error("usage: this server's copy of a part is gone: its disk is new", "part", name)
			err = t.change(ctx, now, now.Lead, "")
		}
		all = all && err == nil
	}
	return all
}
