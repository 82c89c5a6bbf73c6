package fleet

import (
	"context"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

// failurePrefix begins the names of checks whose events are the catalog's.
const failurePrefix = "catalog:"

// failureOf returns the ID of the catalog's check that an event's check stands for.
func failureOf(check string) (id string, ok bool) { return strings.CutPrefix(check, failurePrefix) }

// failing is a check of a node.
type failing struct{ node, id string }

// failures is what is remembered of the catalog's failures between two ticks.
type failures struct {
	open    map[failing]bool // whose event fails, as far as is known
	version uint64           // of the catalog when it was looked through
	rescan  bool
}

// Due says whether an event is to be made: the catalog says now, and the newest event, which is age old, says stored
// (0 where there is none).
func Due(now Health, stored uint32, age, repeat time.Duration) bool {
	return now != HealthOf(stored) || now != 0 && (age >= repeat || age < 0)
}

// tell makes events of what fails in the catalog, and of what does no more: Burst at most, the rest with the next tick.
func (f *Fleet) tell(ctx context.Context) {
	if len(f.cfg.Failures) == 0 {
		return
	}
	x := &f.failures
	if version := f.cfg.Catalog.Version(); version != x.version || x.rescan {
		x.version, x.rescan = version, false
		f.cfg.Catalog.Nodes(func(name string) {
			for _, id := range f.cfg.Failures {
				if c, ok := f.cfg.Catalog.Check(name, id); ok && c.Status != 0 {
					x.open[failing{name, id}] = true
				}
			}
		})
	}
	left := f.cfg.Burst
	for at := range x.open {
		if left == 0 {
			f.delayed.Add(1)
			break
		}
		sent, over := f.event(ctx, at)
		if sent {
			left--
		}
		if over {
			delete(x.open, at)
		}
	}
}

// event makes the event of a check of a node, if one is due. over says that nothing more is to be expected of it for
// now.
func (f *Fleet) event(ctx context.Context, at failing) (sent, over bool) {
	name := failurePrefix + at.id
	stored, ok, err := f.cfg.Events.Summary(f.cfg.Namespace, at.node, name)
	if err != nil { // another server's; when it becomes ours a sweep finds it
		return false, true
	}
	c, known := f.cfg.Catalog.Check(at.node, at.id)
	if !known {
		c.Output = "the catalog does not have this node, or this check of it, any more"
	}
	now := f.cfg.Now()
	if !ok {
		stored.Status = 0
	}
	if !Due(c.Status, stored.Status, now.Sub(time.Unix(stored.Timestamp, 0)), f.cfg.Repeat) {
		return false, c.Status == 0
	}
	switch err := f.send(ctx, at.node, &monitor.Check{Meta: monitor.Meta{Name: name, Namespace: f.cfg.Namespace},
		Interval: uint32(f.cfg.Repeat / time.Second),
		Status:   uint32(c.Status), Output: c.Output, Issued: now.Unix(), Executed: now.Unix(), Handlers: f.cfg.Handlers}); {
	case errkind.Is(err, errkind.Invalid): // no entity can have such a name
		f.cfg.Log.Debug("a failure of the catalog cannot be an event", "node", at.node, "check", at.id, "error", err)
		f.failed.Add(1)
		return true, true
	case err != nil:
		f.cfg.Log.Warn("cannot create an event for a catalog failure yet", "node", at.node, "check", at.id, "error", err)
		f.failed.Add(1)
		return true, false // it counts, so that errors are bounded as well
	}
	f.told.Add(1)
	return true, c.Status == 0
}

// send makes a result an event of an entity: of the one that is known, else of a proxy entity.
func (f *Fleet) send(ctx context.Context, node string, check *monitor.Check) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	message := f.cfg.Events.Entity(f.cfg.Namespace, node)
	if message == nil {
		var err error
		if message, err = f.cfg.Proxy(ctx, f.cfg.Namespace, node); err != nil {
			return err
		}
	}
	e := &monitor.Event{Timestamp: check.Executed, Entity: new(monitor.Entity), Check: check}
	if err := tagproto.Unmarshal(message, e.Entity); err != nil {
		return errkind.E(errkind.Corrupt, "entity", err)
	}
	for _, p := range f.cfg.Pipelines {
		check.Pipelines = append(check.Pipelines, &monitor.Ref{Name: p, Type: "Pipeline", APIVersion: "core/v2"})
	}
	return f.cfg.Events.Frame(ctx, f.cfg.Namespace, tagproto.Append(nil, e))
}
