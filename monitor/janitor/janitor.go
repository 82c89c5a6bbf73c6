// Package janitor does what follows from stored events and changes the configuration: it removes silences that ended
// with their incident, and entities that are to go with their agent.
//
// Orders never wait: they are queued, bounded, and done one after the other, each with a deadline and tried again
// while no leader is known. When the queue is full an order is dropped and counted; a silence then holds on until
// somebody removes it, and an entity is removed at its next alarm.
package janitor

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
)

const (
	queued = 4096             // orders that may wait
	within = 10 * time.Second // for one attempt of an order
	tries  = 5
)

// Events is where an entity's events are: a *ingest.Ingest.
type Events interface {
	List(namespace, entity string) []*ingest.Published
	Delete(namespace, entity, check string) bool
	Announce(*monitor.Event) error
}

// Config of an Janitor.
type Config struct {
	Resources *resources.Resources
	Events    Events
	// DeregistrationHandler is for entities that name none themselves; "" is none.
	DeregistrationHandler string
	Log                   *slog.Logger
	Now                   func() time.Time
}

// order is one thing to do: to remove silences, or an entity.
type order struct {
	namespace string
	silences  []string
	entity    string
}

// Janitor does orders. Lift and Deregister may be called from any goroutine; Run does them.
type Janitor struct {
	cfg     Config
	orders  chan order
	dropped atomic.Uint64
}

// New returns an Janitor.
func New(cfg Config) *Janitor { return &Janitor{cfg: cfg, orders: make(chan order, queued)} }

// Lift asks for silences to be removed.
func (u *Janitor) Lift(namespace string, names []string) {
	u.put(order{namespace: namespace, silences: names})
}

// Deregister asks for an entity to be removed, with its events.
func (u *Janitor) Deregister(namespace, entity string) {
	u.put(order{namespace: namespace, entity: entity})
}

func (u *Janitor) put(o order) {
	select {
	case u.orders <- o:
	default:
		u.dropped.Add(1)
	}
}

// Dropped counts the orders that found the queue full.
func (u *Janitor) Dropped() uint64 { return u.dropped.Load() }

// Deregisters says whether an entity is to go with its agent.
func (u *Janitor) Deregisters(namespace, entity string) bool {
	c := u.entity(namespace, entity)
	return c != nil && c.Deregister
}

func (u *Janitor) entity(namespace, entity string) *monitor.EntityConfig {
	item := u.cfg.Resources.View().Get("entities", namespace, entity)
	if item == nil {
		return nil
	}
	return item.Object().(*monitor.EntityConfig)
}

// Run does orders until ctx ends.
func (u *Janitor) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case o := <-u.orders:
			u.do(ctx, o)
		}
	}
}

func (u *Janitor) do(ctx context.Context, o order) {
	if o.entity != "" {
		u.deregister(ctx, o)
		return
	}
	for _, name := range o.silences {
		u.remove(ctx, objects.Op{Verb: objects.Delete, Type: "silenced", Namespace: o.namespace, Name: name})
	}
}

// remove does one delete; what is gone is as well.
func (u *Janitor) remove(ctx context.Context, op objects.Op) {
	pause := backoff.Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}
	for range tries {
		attempt, cancel := context.WithTimeout(ctx, within)
		err := u.cfg.Resources.Write(attempt, op)
		cancel()
		if err == nil || errkind.Is(err, errkind.NotFound) || ctx.Err() != nil {
			return
		}
		u.cfg.Log.Warn("could not remove an object yet", "type", op.Type, "namespace", op.Namespace, "name", op.Name,
			"error", err)
		t := time.NewTimer(pause.Next())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// deregister removes an entity and its events. Each event is told as passing, so that whoever was alerted learns of
// the end, and the handler for it gets an event of its own.
func (u *Janitor) deregister(ctx context.Context, o order) {
	c := u.entity(o.namespace, o.entity)
	if c == nil || !c.Deregister { // it came back, or changed its mind
		return
	}
	var last *monitor.Entity
	for _, p := range u.cfg.Events.List(o.namespace, o.entity) {
		e, err := p.Event()
		if err != nil || e.Check == nil {
			continue
		}
		last = e.Entity
		e.Check.Status, e.Check.History, e.Timestamp = 0, nil, u.cfg.Now().Unix()
		u.announce(e)
	}
	u.cfg.Events.Delete(o.namespace, o.entity, "")
	u.remove(ctx, objects.Op{Verb: objects.Delete, Type: "entities", Namespace: o.namespace, Name: o.entity})
	handler := u.cfg.DeregistrationHandler
	if c.Deregistration.Handler != "" {
		handler = c.Deregistration.Handler
	}
	if handler == "" || last == nil {
		return
	}
	now := u.cfg.Now().Unix()
	u.announce(&monitor.Event{Timestamp: now, Entity: last, Check: &monitor.Check{
		Meta: monitor.Meta{Name: "deregistration", Namespace: o.namespace}, Interval: 1, Status: 1, Issued: now,
		Executed: now, Handlers: []string{handler}}})
}

func (u *Janitor) announce(e *monitor.Event) {
	if err := u.cfg.Events.Announce(e); err != nil {
		u.cfg.Log.Warn("cannot report an event of a removed entity", "entity", e.Entity.Name, "error", err)
	}
}
