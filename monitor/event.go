package monitor

import "corbel.dev/corbel/kit/tagproto"

// Event is a result of a check, a set of metrics, or both, of one entity.
type Event struct {
	Timestamp int64    `json:"timestamp,omitempty" pb:"1"`
	Entity    *Entity  `json:"entity,omitempty" pb:"2"`
	Check     *Check   `json:"check,omitempty" pb:"3"`
	Metrics   *Metrics `json:"metrics,omitempty" pb:"4"`
	Meta      `json:"metadata" pb:"5"`
	ID        ID             `json:"id" pb:"6"`
	Sequence  int64          `json:"sequence" pb:"7"`
	Pipelines []*Ref         `json:"pipelines" pb:"8"`
	Extra     tagproto.Extra `json:"-"`
}

// ID is an event's UUID: 16 bytes, or none.
type ID []byte

// Metrics are points that a check's output held, or that an agent gathered.
type Metrics struct {
	Handlers []string       `json:"handlers" pb:"1"`
	Points   []*Point       `json:"points" pb:"2"`
	Extra    tagproto.Extra `json:"-"`
}

// Point is one value of one metric. Its time is in seconds, or nanoseconds where an agent's statsd made it.
type Point struct {
	Name      string         `json:"name,omitempty" pb:"1"`
	Value     float64        `json:"value" pb:"2"`
	Timestamp int64          `json:"timestamp" pb:"3"`
	Tags      []*MetricTag   `json:"tags" pb:"4"`
	Extra     tagproto.Extra `json:"-"`
}

// IsIncident reports whether the event's check fails.
func (e *Event) IsIncident() bool { return e.Check != nil && e.Check.Status != 0 }

// IsResolution reports whether the event ends an incident: its check passes, and the run before failed.
func (e *Event) IsResolution() bool {
	if e.Check == nil || e.Check.Status != 0 {
		return false
	}
	before, ok := e.Check.before()
	return ok && before.Status != 0
}

// before returns the run before the newest one of c's history.
func (c *Check) before() (Run, bool) {
	if n := len(c.History); n >= 2 {
		return c.History[n-2], true
	}
	return Run{}, false
}

// Silenced reports whether a silence holds for the event.
func (e *Event) Silenced() bool { return e.Check != nil && e.Check.IsSilenced }
