package usage

import (
	"errors"
	"time"
)

// The kinds of corrections.
const (
	Void    = "void"    // events are taken out
	Replace = "replace" // events are taken out, and others put in
	Recount = "recount" // a range is counted again from the log
)

// Correction changes what was counted before. It is a record of the log: what came before it is changed, what comes
// behind it is not, even with the same id.
type Correction struct {
	ID, Kind, Tenant, Product string
	// IDs names events of Source; or all events from From to To, of Source where that is not empty.
	IDs      []string
	Source   string
	From, To time.Time
	Reason   string
	// Events are what Replace puts in.
	Events []Event
}

// MaxCorrectionIDs bounds the ids of one correction.
const MaxCorrectionIDs = MaxEvents

// Check returns all that is wrong, each with its field.
func (c *Correction) Check() error {
	var wrong []error
	bad := func(is bool, field, format string, args ...any) {
		if is {
			wrong = append(wrong, Wrong(field, format, args...))
		}
	}
	ranged := !c.From.IsZero() || !c.To.IsZero()
	bad(c.Kind != Void && c.Kind != Replace && c.Kind != Recount, "kind", "%q is none of void, replace, recount", c.Kind)
	bad(c.Product == "", "product", "is missing")
	bad(c.Reason == "", "reason", "is missing: closed periods keep it")
	bad(ranged && !c.From.Before(c.To), "to", "must be after from")
	bad(len(c.IDs) > 0 && ranged, "ids", "stand beside a range: give one of them")
	bad(len(c.IDs) == 0 && !ranged, "ids", "are missing, and so is a range")
	bad(len(c.IDs) > MaxCorrectionIDs, "ids", "are more than %d", MaxCorrectionIDs)
	bad(c.Kind == Recount && len(c.IDs) > 0, "ids", "are not for a recount: give a range")
	bad(c.Kind == Replace && len(c.Events) == 0, "events", "are missing: what takes the place")
	bad(c.Kind != Replace && len(c.Events) > 0, "events", "are for a replace alone")
	bad(len(c.Events) > MaxEvents, "events", "are more than %d", MaxEvents)
	return errors.Join(wrong...)
}

// Voids is all that corrections have taken out. A replay asks it for each event. The zero value has none.
type Voids struct {
	ids    map[Hash]uint64 // up to which place in the log
	ranges []voidRange
}

type voidRange struct {
	tenant, product, source string
	from, to                int64
	order                   uint64
}

// Add adds a correction that is at a place in the log. A recount takes nothing out.
func (v *Voids) Add(key Key, c *Correction, order uint64) {
	if c.Kind == Recount {
		return
	}
	if len(c.IDs) == 0 {
		v.ranges = append(v.ranges, voidRange{c.Tenant, c.Product, c.Source, c.From.UnixNano(), c.To.UnixNano(), order})
		return
	}
	if v.ids == nil {
		v.ids = map[Hash]uint64{}
	}
	var buf []byte
	for _, id := range c.IDs {
		var h Hash
		h, buf = key.EventID(buf, c.Tenant, c.Source, id)
		v.ids[h] = max(v.ids[h], order)
	}
}

// Voided reports whether an observation at a place in the log was taken out later.
func (v *Voids) Voided(o *Observation, source string, order uint64) bool {
	if at, ok := v.ids[o.ID]; ok && o.ID != (Hash{}) && order < at {
		return true
	}
	for _, r := range v.ranges {
		if order < r.order && r.tenant == o.Tenant && r.product == o.Product.Name && r.from <= o.Time && o.Time < r.to &&
			(r.source == "" || r.source == source) {
			return true
		}
	}
	return false
}
