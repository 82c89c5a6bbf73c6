// Package business watches business services: it evaluates service components (bsm/v1 ServiceComponent) when they are
// due, and makes an event of each of their rules on each of their services' entities.
//
// A component selects events of its namespace; a rule's template (RuleTemplate) is a program that makes one event of
// these. Programs run where those of filters do (package script), with the same limits of time and memory; one that is
// wrong, is cut or finds no arguments makes an event of status 3 that says so. What a component makes itself it does
// not select.
// Nor does it replace what somebody else said: its events say which component made them, services are entities of
// their own class, and an event of an agent, of the API or of another component stays, with a line in the log.
//
// The events that programs get are held while their component is evaluated: 8 MiB for one, 16 MiB for those of a
// namespace together, four namespaces at once. Components beyond that wait for another reading of the events.
//
// The leader of the plane's group evaluates, and no other server. Components of a namespace that are due together read
// its events once; namespaces wait for each other when more than a few are due, and a tick that comes while its
// component is still evaluated is left out. When another server leads, it begins with the next tick.
//
// Run owns all goroutines. The other methods may be called from any goroutine.
package business

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/script"
)

const (
	lookEvery  = time.Second      // for components that are due
	roundTime  = 30 * time.Second // for what is due at one time in one namespace
	namespaces = 4                // at once
)

// Fields are what field selectors may ask of events.
type Fields map[string]func(monitor.Object) string

// Events is where events are, whichever server has them.
type Events interface {
	List(ctx context.Context, r ingest.Range) iter.Seq2[*ingest.Published, error]
	Frame(ctx context.Context, namespace string, b []byte) error
}

// Config of a Services.
type Config struct {
	Resources *resources.Resources
	Events    Events
	Scripts   *script.Engine
	Fields    Fields
	Labels    func(monitor.Object) func(string) (string, bool)
	// Leads says whether it is this server's turn.
	Leads func() bool
	Clock clock.Clock
	Log   *slog.Logger
}

// Stats is what a Services counts.
type Stats struct {
	Components int    // that are evaluated here
	Evaluated  uint64 // rules
	Failed     uint64 // rules whose program failed, or was not there
	Refused    uint64 // rules that would have replaced an event of somebody else
	Skipped    uint64 // rounds that could not read all events, or not write theirs
	Again      uint64 // readings of events for components that found no room
	Held       int64  // bytes of events, now
}

// planned is a component and when it is due.
type planned struct {
	item *objects.Item
	*component
	due, done time.Time // done is when it was evaluated last
}

// Services evaluates components. Make it with New.
type Services struct {
	cfg   Config
	view  *resources.View     // that plan is of; Run's
	plan  map[string]*planned // by namespace and name; Run's, who waits while others read it
	known templates

	planned, held                              atomic.Int64
	evaluated, failed, refused, skipped, again atomic.Uint64
}

// New returns a Services that does nothing before Run.
func New(cfg Config) *Services { return &Services{cfg: cfg, plan: map[string]*planned{}} }

// Stats returns what was counted since New.
func (s *Services) Stats() Stats {
	return Stats{int(s.planned.Load()), s.evaluated.Load(), s.failed.Load(), s.refused.Load(), s.skipped.Load(),
		s.again.Load(), s.held.Load()}
}

// Run evaluates while this server leads, until ctx ends.
func (s *Services) Run(ctx context.Context) error {
	timer := s.cfg.Clock.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if s.cfg.Leads() {
			s.look()
			s.round(ctx, s.due())
		} else {
			clear(s.plan)
			s.view = nil
		}
		s.planned.Store(int64(len(s.plan)))
		timer.Reset(lookEvery)
	}
}

// look takes over what was changed.
func (s *Services) look() {
	view := s.cfg.Resources.View()
	if view == s.view {
		return
	}
	s.view = view
	now, there := s.cfg.Clock.Now(), map[string]bool{}
	view.List(Components, "", "", "", func(i *objects.Item) bool {
		key := i.Namespace + "/" + i.Name
		if old := s.plan[key]; old != nil && old.item == i {
			there[key] = true
			return true
		}
		c, err := readComponent(i.Object().(*monitor.Provider), s.cfg.Fields)
		if err != nil { // it was looked at when it was written: by a version with other rules
			s.cfg.Log.Error("a service component cannot be evaluated", "namespace", i.Namespace, "component", i.Name,
				"error", err)
			return true
		}
		there[key] = true
		s.plan[key] = &planned{item: i, component: c, due: c.schedule.Next(now)}
		return true
	})
	for key := range s.plan {
		if !there[key] {
			delete(s.plan, key)
		}
	}
}

// due are the components whose time has come, by namespace. Of ticks that were missed there is one.
func (s *Services) due() map[string][]*planned {
	now, out := s.cfg.Clock.Now(), map[string][]*planned{}
	for _, p := range s.plan {
		if !p.due.IsZero() && !p.due.After(now) {
			out[p.item.Namespace] = append(out[p.item.Namespace], p)
			p.due = p.schedule.Next(now)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b *planned) int { // who waited longest comes first, should the time not do for all
			return cmp.Or(a.done.Compare(b.done), cmp.Compare(a.item.Name, b.item.Name))
		})
	}
	return out
}

// round evaluates what is due, some namespaces at once.
func (s *Services) round(ctx context.Context, due map[string][]*planned) {
	var all sync.WaitGroup
	turns := make(chan struct{}, namespaces)
	for namespace, list := range due {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			within, cancel := context.WithTimeout(ctx, roundTime)
			defer cancel()
			if err := s.evaluate(within, namespace, list); err != nil && ctx.Err() == nil {
				s.skipped.Add(1)
				s.cfg.Log.Warn("service components were not evaluated; the next time they are due they are", "namespace", namespace,
					"error", err)
			}
		})
	}
	all.Wait()
}
