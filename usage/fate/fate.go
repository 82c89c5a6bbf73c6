// Package fate explains what became of one event: received, stored, counted in which shard and windows, or why not.
//
// It needs no memory of its own: the memory of deduplication says at which minute an id arrived, the log's records of
// that minute say the rest, and Explain puts it together. Pure.
package fate

import (
	"fmt"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/route"
	"corbel.dev/corbel/usage/window"
)

// Stored is an event as it stands in the log.
type Stored struct {
	Offset  uint64
	At      time.Time // of its record
	Event   usage.Event
	Verdict dedup.Verdict
}

// Known is what the caller knows about the event's surroundings.
type Known struct {
	// Product is the definition in use when the event was stored; nil when there was none.
	Product *usage.Product
	// Observation is the event as its product understood it, where Rejected is nil.
	Observation usage.Observation
	Rejected    error
	Table       route.Table
	Zone        window.Zone
	Voided      bool
	Watermark   time.Time // of the shard's owner
}

// Window is one that the event counts in.
type Window struct {
	Name string    `json:"window"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// State is open, ending (late events still count) or closed.
	State string `json:"state"`
}

// Answer is the fate of an event.
type Answer struct {
	Received time.Time `json:"received"`
	Offset   uint64    `json:"offset"`
	Product  string    `json:"product"`
	// Counted says whether estimates have it; if not, Why says why.
	Counted bool     `json:"counted"`
	Why     string   `json:"why,omitempty"`
	Shard   int      `json:"shard"`
	Owner   string   `json:"owner,omitempty"`
	Windows []Window `json:"windows,omitempty"`
}

var states = map[window.State]string{window.Open: "open", window.Ending: "ending", window.Closed: "closed"}

// Explain tells the fate of an event.
func Explain(s Stored, k Known) Answer {
	a := Answer{Received: s.At.UTC(), Offset: s.Offset, Product: s.Event.Product}
	if k.Product == nil {
		a.Why = fmt.Sprintf("product %q was not defined when the event came", s.Event.Product)
		return a
	}
	if k.Rejected != nil {
		a.Why = k.Rejected.Error()
		return a
	}
	a.Shard = k.Observation.Identity.Shard()
	place := k.Table.At(a.Shard)
	a.Owner = place.Owner
	at := time.Unix(0, k.Observation.Time).UTC()
	switch {
	case s.Verdict == dedup.Duplicate:
		a.Why = "it is a duplicate: an event of this tenant, source and id was counted before"
	case s.Verdict == dedup.Late:
		a.Why = fmt.Sprintf("it came %s after its time, and %q takes events up to %s: a correction can count it",
			s.At.Sub(at).Round(time.Second), k.Product.Name, k.Product.Late)
	case s.Verdict != dedup.New:
		a.Why = "it was refused: " + s.Verdict.String()
	case k.Voided:
		a.Why = "a correction has voided it"
	case place.Owner == route.Nobody:
		a.Why = "it waits in the log: no counter owns its shard"
	case k.Watermark.Before(s.At):
		a.Why = fmt.Sprintf("it waits in the log: %s has counted up to %s", place.Owner,
			k.Watermark.UTC().Format(time.RFC3339))
	default:
		a.Counted = true
		a.Windows = windows(at, k)
	}
	return a
}

// windows lists the calendar windows that an instant is in, and the sliding ones that it has not left yet.
func windows(at time.Time, k Known) (list []Window) {
	for _, name := range k.Product.Windows {
		r, err := k.Zone.Of(name, at)
		if err != nil {
			continue
		}
		if !window.Calendar(name) {
			if r, err = k.Zone.Of(name, k.Watermark); err != nil || !r.Contains(at) {
				continue
			}
		}
		list = append(list, Window{name, r.From.UTC(), r.To.UTC(), states[window.StateOf(r, k.Watermark, k.Product.Late)]})
	}
	return list
}
