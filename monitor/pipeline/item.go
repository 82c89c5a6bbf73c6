package pipeline

import (
	"encoding/json"
	"sync"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/expression"
	"corbel.dev/corbel/monitor/ingest"
)

// item is an event on its way. The whole event and its JSON are made once, by the first that asks, and shared; nobody
// changes them.
type item struct {
	p *ingest.Published

	wholeOnce sync.Once
	event     *monitor.Event
	wholeErr  error

	textOnce sync.Once
	json     []byte
	textErr  error

	shownOnce sync.Once
	shown     *monitor.Entity
}

func (i *item) whole() (*monitor.Event, error) {
	i.wholeOnce.Do(func() { i.event, i.wholeErr = i.p.Event() })
	return i.event, i.wholeErr
}

// text returns the event's JSON; the values of labels that its entity hides are hidden.
func (i *item) text() ([]byte, error) {
	i.textOnce.Do(func() {
		var e *monitor.Event
		if e, i.textErr = i.whole(); i.textErr == nil {
			i.json, i.textErr = json.Marshal(e)
		}
	})
	return i.json, i.textErr
}

// entity returns the event's entity as scripts see it.
func (i *item) entity() *monitor.Entity {
	i.shownOnce.Do(func() {
		i.shown = new(monitor.Entity)
		if e, err := i.whole(); err == nil && e.Entity != nil {
			shown := *e.Entity
			shown.Meta = monitor.RedactMeta(shown.Meta, shown.Redact)
			i.shown = &shown
		}
	})
	return i.shown
}

// subject is what expressions are evaluated on.
func (i *item) subject() expression.Subject {
	s := expression.Subject{Timestamp: i.p.State().Timestamp, HasMetrics: i.p.HasMetrics(), Entity: i.entity}
	if i.p.Kind != nil {
		s.Check, s.State = i.p.Kind.Check, i.p.State()
	}
	return s
}

// key is whose newest state matters.
func (i *item) key() key { return key{i.p.Namespace, i.p.Entity, i.p.Check} }

type key struct{ namespace, entity, check string }

// edge reports whether the event begins or ends an incident: such an event is given up last.
func (i *item) edge() bool {
	return i.p.Outcome.Resolution || i.p.Outcome.Incident && i.p.State().Occurrences <= 1
}
