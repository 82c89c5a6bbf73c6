package resources

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

const (
	reapEvery = 30 * time.Second
	reapMost  = 500 // objects with one command
)

// Reap removes silences and records of logins that are over, while leads says that it is this server's turn. It
// returns when ctx ends.
func (r *Resources) Reap(ctx context.Context, leads func() bool, now func() time.Time) error {
	tick := time.NewTicker(reapEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !leads() {
			continue
		}
		if err := r.reap(ctx, now().Unix()); err != nil && ctx.Err() == nil {
			r.log.Warn("cannot remove expired silences and logins; trying again", "error", err)
		}
	}
}

func (r *Resources) reap(ctx context.Context, now int64) error {
	for {
		ops := r.over(now)
		if len(ops) == 0 {
			return nil
		}
		// one was changed meanwhile: look again
		if err := r.Write(ctx, ops...); err != nil && !errkind.Is(err, errkind.Conflict) {
			return err
		}
		if len(ops) < reapMost {
			return nil
		}
	}
}

// over lists what may go. What was changed since it was looked at stays.
func (r *Resources) over(now int64) (ops []objects.Op) {
	view := r.View()
	drop := func(i *objects.Item, over bool) bool {
		if over {
			ops = append(ops, objects.Op{Verb: objects.Drop, Type: i.Type, Namespace: i.Namespace, Name: i.Name, If: i.Index})
		}
		return len(ops) < reapMost
	}
	view.List("silenced", "", "", "", func(i *objects.Item) bool {
		return drop(i, i.Object().(*monitor.Silenced).Over(now))
	})
	if len(ops) < reapMost {
		view.List("logins", "", "", "", func(i *objects.Item) bool {
			return drop(i, i.Object().(*monitor.Login).Expires < now)
		})
	}
	return ops
}
