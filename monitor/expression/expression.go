// Package expression evaluates the filter expressions that nearly everybody writes, without a JavaScript machine:
// comparisons of a check's occurrences, status, state and labels and the like, joined by &&, || and !.
//
// Compile says whether an expression is of that form; every other one is left to JavaScript. What it
// accepts has the value that JavaScript gives it: whatever that is in doubt about (texts compared with numbers, names
// that every object inherits) is not accepted. It is pure; an Expression is never changed and may be used by many
// goroutines.
package expression

import (
	"math"

	"corbel.dev/corbel/monitor"
)

// Subject is the event that an expression is about.
type Subject struct {
	Timestamp  int64
	Check      *monitor.Check // its configuration; nil where the event has none
	State      *monitor.State // the result; not nil where Check is not
	HasMetrics bool
	// Entity returns the event's entity with its secrets hidden; it is called when an expression asks for it.
	Entity func() *monitor.Entity
}

// Expression is a condition.
type Expression struct{ root node }

// Holds evaluates the expression. ok is false where JavaScript would throw.
func (e *Expression) Holds(s *Subject) (holds, ok bool) {
	v := e.root(s)
	return v.truth(), v.kind != thrown
}

// node computes a part of an expression.
type node func(*Subject) value

type kind uint8

const (
	undefined kind = iota
	null
	boolean
	number
	text
	thrown // there is none: an exception
)

// value is one of JavaScript's.
type value struct {
	kind kind
	n    float64 // of a number; 1 is true
	s    string
}

func numberOf[T int64 | uint32 | int | float64](n T) value { return value{kind: number, n: float64(n)} }

func textOf(s string) value { return value{kind: text, s: s} }

func truthOf(b bool) value {
	if b {
		return value{kind: boolean, n: 1}
	}
	return value{kind: boolean}
}

// optional is a text that is left out of an event's JSON when it is empty.
func optional(s string) value {
	if s == "" {
		return value{}
	}
	return textOf(s)
}

func (v value) truth() bool {
	switch v.kind {
	case boolean, number:
		return v.n != 0 && !math.IsNaN(v.n)
	case text:
		return v.s != ""
	}
	return false
}

// equal compares two values of one kind, or any with undefined or null; other pairs are not compiled.
func equal(a, b value, strict bool) bool {
	if a.kind != b.kind {
		return !strict && a.kind <= null && b.kind <= null
	}
	return a.n == b.n && a.s == b.s
}

// field is something of an event that expressions may name.
type field struct {
	kind kind // what it is where it is there
	get  node
}

// ofCheck wraps what a check is asked for: without a check, JavaScript throws.
func ofCheck(kind kind, get func(*monitor.Check, *monitor.State) value) field {
	return field{kind, func(s *Subject) value {
		if s.Check == nil {
			return value{kind: thrown}
		}
		return get(s.Check, s.State)
	}}
}

func ofEntity(kind kind, get func(*monitor.Entity) value) field {
	return field{kind, func(s *Subject) value { return get(s.Entity()) }}
}

// fields are all of them but labels and annotations.
var fields = map[string]field{
	"event.timestamp": {number, func(s *Subject) value {
		if s.Timestamp == 0 { // left out of its JSON
			return value{}
		}
		return numberOf(s.Timestamp)
	}},
	"event.has_check":   {boolean, func(s *Subject) value { return truthOf(s.Check != nil) }},
	"event.has_metrics": {boolean, func(s *Subject) value { return truthOf(s.HasMetrics) }},
	"event.is_incident": {boolean, func(s *Subject) value { return truthOf(s.Check != nil && s.State.Status != 0) }},
	"event.is_silenced": {boolean, func(s *Subject) value { return truthOf(s.Check != nil && len(s.State.Silenced) > 0) }},
	"event.is_resolution": {boolean, func(s *Subject) value {
		before, known := s.before()
		return truthOf(known && before != 0 && s.State.Status == 0)
	}},
	"event.is_flapping_start": {boolean, func(s *Subject) value {
		_, known := s.before()
		return truthOf(known && s.State.Condition == monitor.Flapping)
	}},
	"event.is_flapping_end": {boolean, func(*Subject) value { return truthOf(false) }},

	"event.check.status": ofCheck(number, func(_ *monitor.Check, s *monitor.State) value {
		return numberOf(s.Status)
	}),
	"event.check.occurrences": ofCheck(number, func(_ *monitor.Check, s *monitor.State) value {
		return numberOf(s.Occurrences)
	}),
	"event.check.occurrences_watermark": ofCheck(number, func(_ *monitor.Check, s *monitor.State) value {
		return numberOf(s.Watermark)
	}),
	"event.check.total_state_change": ofCheck(number, func(_ *monitor.Check, s *monitor.State) value {
		return numberOf(s.Change)
	}),
	"event.check.last_ok": ofCheck(number, func(_ *monitor.Check, s *monitor.State) value {
		return numberOf(s.LastOK)
	}),
	"event.check.executed": ofCheck(number, func(_ *monitor.Check, s *monitor.State) value {
		return numberOf(s.Executed)
	}),
	"event.check.issued": ofCheck(number, func(_ *monitor.Check, s *monitor.State) value {
		return numberOf(s.Issued)
	}),
	"event.check.state": ofCheck(text, func(_ *monitor.Check, s *monitor.State) value {
		return optional(s.Condition.String())
	}),
	"event.check.is_silenced": ofCheck(boolean, func(_ *monitor.Check, s *monitor.State) value {
		return truthOf(len(s.Silenced) > 0)
	}),
	"event.check.interval": ofCheck(number, func(c *monitor.Check, _ *monitor.State) value {
		return numberOf(c.Interval)
	}),
	"event.check.timeout": ofCheck(number, func(c *monitor.Check, _ *monitor.State) value {
		return numberOf(c.Timeout)
	}),
	"event.check.ttl": ofCheck(number, func(c *monitor.Check, _ *monitor.State) value {
		return numberOf(c.TTL)
	}),
	"event.check.name": ofCheck(text, func(c *monitor.Check, _ *monitor.State) value {
		return optional(c.Name)
	}),
	"event.check.namespace": ofCheck(text, func(c *monitor.Check, _ *monitor.State) value {
		return optional(c.Namespace)
	}),
	"event.check.proxy_entity_name": ofCheck(text, func(c *monitor.Check, _ *monitor.State) value {
		return textOf(c.ProxyEntityName)
	}),

	"event.entity.name":         ofEntity(text, func(e *monitor.Entity) value { return optional(e.Name) }),
	"event.entity.namespace":    ofEntity(text, func(e *monitor.Entity) value { return optional(e.Namespace) }),
	"event.entity.entity_class": ofEntity(text, func(e *monitor.Entity) value { return textOf(e.Class) }),
	"event.entity.system.os":    ofEntity(text, func(e *monitor.Entity) value { return optional(e.System.OS) }),
}

// before returns the status of the run before the newest.
func (s *Subject) before() (status uint32, known bool) {
	if s.Check == nil {
		return 0, false
	}
	n := s.State.History.Len()
	if n < 2 {
		return 0, false
	}
	status, _ = s.State.History.At(n - 2)
	return status, true
}

// inherited are names that every object of JavaScript has.
var inherited = map[string]bool{
	"constructor": true, "hasOwnProperty": true, "isPrototypeOf": true, "propertyIsEnumerable": true,
	"toLocaleString": true, "toString": true,
	"valueOf": true, "__proto__": true, "__defineGetter__": true, "__defineSetter__": true, "__lookupGetter__": true,
	"__lookupSetter__": true,
}

// pair returns a label or an annotation.
func pair(owner, list, name string) (field, bool) {
	if inherited[name] {
		return field{}, false
	}
	of := func(m *monitor.Meta) value {
		from := m.Labels
		if list == "annotations" {
			from = m.Annotations
		}
		if v, ok := from[name]; ok {
			return textOf(v)
		}
		return value{}
	}
	switch owner {
	case "event.check":
		return ofCheck(text, func(c *monitor.Check, _ *monitor.State) value { return of(&c.Meta) }), true
	case "event.entity":
		return ofEntity(text, func(e *monitor.Entity) value { return of(&e.Meta) }), true
	}
	return field{}, false
}
