package business

import (
	"context"
	"encoding/json"
	"slices"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
)

// Bounds of the events that programs of somebody's get. The built-in template gets numbers, and has none.
const (
	maxEvents = 10_000   // of a component
	maxBytes  = 8 << 20  // of a component
	roomBytes = 16 << 20 // of those of a namespace that are evaluated together: more than maxBytes
)

// selected is what a component's query finds.
type selected struct {
	*planned
	texts  bool // some rule's program looks at the events themselves
	events []json.RawMessage
	bytes  int
	over   bool              // there are more than programs get
	found  map[string]string // which component made the events that are this one's to make, "" is none; by ENTITY/CHECK
	counts struct {
		All      int `json:"all"`
		OK       int `json:"ok"`
		Warning  int `json:"warning"`
		Critical int `json:"critical"`
		Unknown  int `json:"unknown"`
		NonZero  int `json:"non-zero"`
	}
}

func (s *Services) selections(namespace string, list []*planned) []*selected {
	all := make([]*selected, len(list))
	for i, p := range list {
		all[i] = &selected{planned: p, found: map[string]string{}}
		for _, r := range p.Rules {
			if t, err := s.template(namespace, r.Template); err == nil && !t.builtin {
				all[i].texts = true
			}
		}
	}
	return all
}

// read goes through a namespace's events once. later are the last components, where the events of all do not fit in
// memory together: at least one is read, whatever it selects.
func (s *Services) read(ctx context.Context, namespace string, all []*selected) (now, later []*selected, err error) {
	now = slices.Clone(all)
	for p, err := range s.cfg.Events.List(ctx, ingest.Range{Namespace: namespace}) {
		var e *monitor.Event
		if err == nil {
			e, err = p.Event()
		}
		if err == nil && e.Check != nil {
			err = s.show(e, now)
		}
		if err != nil {
			s.drop(now...)
			return nil, nil, err
		}
		for i := len(now) - 1; i > 0 && held(now) > roomBytes; i-- {
			if x := now[i]; x.bytes > 0 {
				s.drop(x)
				now = slices.Delete(now, i, i+1)
				later = append(later, &selected{planned: x.planned, texts: true, found: map[string]string{}})
			}
		}
	}
	slices.Reverse(later)
	return now, later, nil
}

func held(all []*selected) (bytes int) {
	for _, x := range all {
		bytes += x.bytes
	}
	return bytes
}

// drop lets the events of components go.
func (s *Services) drop(all ...*selected) {
	for _, x := range all {
		s.held.Add(-int64(x.bytes))
		x.events, x.bytes = nil, 0
	}
}

// show shows an event to components. Its text is one for all of them.
func (s *Services) show(e *monitor.Event, all []*selected) (err error) {
	var text []byte
	for _, x := range all {
		if x.own(e.Entity.Name, e.Check.Name) {
			x.found[e.Entity.Name+"/"+e.Check.Name] = e.Check.Annotations[madeBy]
			continue
		}
		if !s.matches(x.component, e) {
			continue
		}
		x.count(e.Check.Status)
		if !x.texts || x.over {
			continue
		}
		if text == nil {
			if text, err = json.Marshal(e); err != nil {
				return err
			}
		}
		x.events, x.bytes = append(x.events, text), x.bytes+len(text)
		s.held.Add(int64(len(text)))
		if x.over = len(x.events) > maxEvents || x.bytes > maxBytes; x.over {
			s.drop(x)
		}
	}
	return nil
}

func (s *Services) matches(c *component, e *monitor.Event) bool {
	for _, q := range c.fields {
		if !q.Matches(func(name string) (string, bool) { return s.cfg.Fields[name](e), true }) {
			return false
		}
	}
	for _, q := range c.labels {
		if !q.Matches(s.cfg.Labels(e)) {
			return false
		}
	}
	return true
}

func (x *selected) count(status uint32) {
	x.counts.All++
	switch status {
	case 0:
		x.counts.OK++
	case 1:
		x.counts.Warning++
	case 2:
		x.counts.Critical++
	default:
		x.counts.Unknown++
	}
	x.counts.NonZero = x.counts.All - x.counts.OK
}
