package usage

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Limits of one event and one batch. What passes them is refused with the name of the field.
const (
	MaxEvents        = 10_000  // in one batch
	MaxTags          = 64      // of one event
	MaxIdentityBytes = 1 << 10 // names and values together
	MaxNameBytes     = 256     // tenant, product, source, a tag's name
	MaxIDBytes       = 512
	MaxTagBytes      = 1 << 10
	MaxAhead         = 10 * time.Minute // later times are refused
)

// DefaultTenant is whose usage it is where nobody says.
const DefaultTenant = "default"

// Field is a name with its value: of an identity or a tag.
type Field struct{ Name, Value string }

// Event is one observation as a door decodes it. Strings may share memory with the decoder's input; fields of
// Identity and Tags keep the order of the sender.
type Event struct {
	ID, Source, Tenant, Product string
	// Time is in Unix nanoseconds; zero means the time of arrival.
	Time     int64
	Identity []Field
	// Value counts only where HasValue: a set member may have none.
	Value    Quantity
	HasValue bool
	Tags     []Field
}

// Find returns the value of a field.
func Find(fields []Field, name string) (string, bool) {
	for _, f := range fields {
		if f.Name == name {
			return f.Value, true
		}
	}
	return "", false
}

// FieldError says which field of an event or a definition is wrong.
type FieldError struct{ Field, Reason string }

// Error reads `field: reason`.
func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// Wrong makes a FieldError.
func Wrong(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Observation is an event that its product understood: all that a counter needs.
type Observation struct {
	Tenant string
	// Product is the definition that it was checked against.
	Product *Product
	// Time is in Unix nanoseconds.
	Time int64
	// Identity is what is counted, for a product of kind unique; else it is the tenant's one shard of the product.
	Identity Hash
	// ID is the hash of (tenant, source, id); zero for an event without an id.
	ID    Hash
	Value Quantity
	// Tags are the values of the product's tags, in its order; empty where the event has none.
	Tags []string
}

// Observe checks an event against its product at the time of its arrival, and hashes it. buf is scratch space. The
// only allocation is the slice of tags, where the product names some.
func (p *Product) Observe(key Key, e *Event, now time.Time, buf []byte) (o Observation, scratch []byte, err error) {
	scratch = buf
	if err = e.check(now); err != nil {
		return o, scratch, err
	}
	o = Observation{Tenant: cmp.Or(e.Tenant, DefaultTenant), Product: p, Time: cmp.Or(e.Time, now.UnixNano())}
	buf = appendText(appendText(buf[:0], o.Tenant), p.Name)
	if p.Kind == Unique {
		for _, name := range p.Identity {
			v, ok := Find(e.Identity, name)
			if !ok {
				return o, buf, Wrong("identity."+name, "is missing: product %q is told apart by it", p.Name)
			}
			buf = appendText(buf, v)
		}
	} else if o.Value = e.Value; !e.HasValue {
		return o, buf, Wrong(cmp.Or(p.Value, "value"), "is missing: product %q is a %s", p.Name, p.Kind)
	}
	o.Identity = key.Sum(buf)
	if e.ID != "" {
		o.ID, buf = key.EventID(buf, o.Tenant, e.Source, e.ID)
	}
	if len(p.Tags) > 0 {
		o.Tags = make([]string, len(p.Tags))
		for i, name := range p.Tags {
			var there bool
			if o.Tags[i], there = Find(e.Tags, name); !there {
				o.Tags[i] = p.joint(name, e.Tags)
			}
		}
	}
	return o, buf, nil
}

// EventID hashes what makes an event one event: an id is unique for its tenant and source, whatever the product.
func (k Key) EventID(buf []byte, tenant, source, id string) (Hash, []byte) {
	buf = append(buf[:0], "\x00id"...) // no tenant's length begins so and is followed by this
	buf = appendText(appendText(appendText(buf, tenant), source), id)
	return k.Sum(buf), buf
}

func (e *Event) check(now time.Time) error {
	for _, f := range [...]struct {
		name, value string
		most        int
	}{{"tenant", e.Tenant, MaxNameBytes}, {"product", e.Product, MaxNameBytes}, {"source", e.Source, MaxNameBytes},
		{"id", e.ID, MaxIDBytes}} {
		if err := checkText(f.name, f.value, f.most); err != nil {
			return err
		}
	}
	if limit := now.Add(MaxAhead); e.Time > limit.UnixNano() {
		return Wrong("time", "is %s ahead of this server: at most %s are taken",
			time.Unix(0, e.Time).Sub(now).Round(time.Second), MaxAhead)
	}
	if e.Time < 0 {
		return Wrong("time", "is before 1970")
	}
	size := 0
	for _, f := range e.Identity {
		if size += len(f.Name) + len(f.Value); size > MaxIdentityBytes {
			return Wrong("identity", "has more than %d bytes", MaxIdentityBytes)
		}
	}
	if len(e.Tags) > MaxTags {
		return Wrong("tags", "are %d: at most %d are taken", len(e.Tags), MaxTags)
	}
	for _, f := range e.Tags {
		if len(f.Name) > MaxNameBytes {
			return Wrong("tags", "have a name of more than %d bytes", MaxNameBytes)
		}
		if len(f.Value) > MaxTagBytes || !utf8.ValidString(f.Value) { // the field's name is made where it is wrong
			return checkText("tags."+f.Name, f.Value, MaxTagBytes)
		}
	}
	return nil
}

func checkText(field, s string, most int) error {
	if len(s) > most {
		return Wrong(field, "has more than %d bytes", most)
	}
	if !utf8.ValidString(s) {
		return Wrong(field, "is not valid UTF-8")
	}
	return nil
}

// SortFields puts fields in the order of their names: for texts that must be the same each time.
func SortFields(fields []Field) {
	slices.SortStableFunc(fields, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
}
