package usage

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kind is how observations of a product become one number.
type Kind uint8

// The kinds.
const (
	Unique Kind = iota + 1
	Sum
	Max
	Last
	Min
)

var kindNames = [...]string{"", "unique", "sum", "max", "last", "min"}

// String returns the kind's name, as products have it.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ParseKind reads a kind's name.
func ParseKind(s string) (Kind, bool) {
	i := slices.Index(kindNames[1:], s)
	return Kind(i + 1), i >= 0
}

// Bounds and defaults of a definition.
const (
	DefaultLate       = 24 * time.Hour
	MaxLate           = 7 * 24 * time.Hour
	DefaultTopK       = 100
	MaxTopK           = 1000
	DefaultExactBelow = 4096
	MaxExactBelow     = 1 << 20
	DefaultPrecision  = 14
	MinPrecision      = ShardBits // so that a shard is a range of whole registers
	MaxPrecision      = 18
	MaxIdentityFields = 16
	MaxProductTags    = 8
)

// Windows are the windows that a product may have; hour, day and month follow the tenant's calendar.
var windowNames = [...]string{"5m", "1h", "24h", "hour", "day", "month"}

// WindowNames lists the windows that a product may have.
func WindowNames() []string { return windowNames[:] }

// Product is a definition: what is counted, and how. A Product that is in use is never changed.
type Product struct {
	Name     string
	Kind     Kind
	Identity []string // names of the fields of the tuple, for Unique
	Value    string   // the name of the quantity's field, for the others; "value" is always understood
	Tags     []string // by which it can be broken down
	TopK     int      // values of a tag that are kept, the rest is `other`
	// ExactBelow is how many identities a set holds before it becomes a sketch of 2^Precision registers.
	ExactBelow int
	Precision  int
	Windows    []string
	Late       time.Duration
	Unit       string
	// Generation grows when Kind or Identity change: what was counted before is not comparable.
	Generation uint32
	// Meter is how OpenMeter's API has it; nil for a product that is none of its meters.
	Meter *Meter `json:",omitempty"`
}

// Meter is what a product has that was made as a meter of OpenMeter's API. It is never changed.
type Meter struct {
	// EventType is the type of the CloudEvents that feed it.
	EventType, Aggregation string
	// ValueProperty and GroupBy are paths into an event's data, $.NAME.
	ValueProperty        string            `json:",omitempty"`
	GroupBy              map[string]string `json:",omitempty"`
	Description, Display string            `json:",omitempty"`
	Metadata             map[string]string `json:",omitempty"`
}

// Complete fills in defaults and returns all that is wrong, each with its field.
func (p *Product) Complete() error {
	p.TopK = cmp.Or(p.TopK, DefaultTopK)
	p.ExactBelow = cmp.Or(p.ExactBelow, DefaultExactBelow)
	p.Precision = cmp.Or(p.Precision, DefaultPrecision)
	p.Late = cmp.Or(p.Late, DefaultLate)
	if len(p.Windows) == 0 {
		p.Windows = []string{"5m", "1h", "24h", "month"}
	}
	var wrong []error
	bad := func(is bool, field, format string, args ...any) {
		if is {
			wrong = append(wrong, Wrong(field, format, args...))
		}
	}
	bad(!validName(p.Name), "name", "%q is no name: letters, digits, '_', '-', '.', ':' and '/', at most %d", p.Name,
		MaxNameBytes)
	bad(p.Kind < Unique || p.Kind > Min, "kind", "must be one of %s", strings.Join(kindNames[1:], ", "))
	bad(p.Kind == Unique && len(p.Identity) == 0, "identity", "is missing: what makes an instance of %q unique", p.Name)
	bad(len(p.Identity) > MaxIdentityFields, "identity", "has more than %d fields", MaxIdentityFields)
	bad(len(p.Tags) > MaxProductTags, "tags", "are more than %d", MaxProductTags)
	for _, list := range []struct {
		field string
		names []string
	}{{"identity", p.Identity}, {"tags", p.Tags}} {
		for i, name := range list.names {
			bad(name == "" || len(name) > MaxNameBytes, list.field, "%q is no name of a field", name)
			bad(slices.Contains(list.names[:i], name), list.field, "has %q twice", name)
		}
	}
	for i, w := range p.Windows {
		bad(!slices.Contains(windowNames[:], w), "windows", "%q is none of %s", w, strings.Join(windowNames[:], ", "))
		bad(slices.Contains(p.Windows[:i], w), "windows", "has %q twice", w)
	}
	bad(len(p.Value) > MaxNameBytes, "value", "has more than %d bytes", MaxNameBytes)
	bad(len(p.Unit) > MaxNameBytes, "unit", "has more than %d bytes", MaxNameBytes)
	bad(p.TopK < 1 || p.TopK > MaxTopK, "topk", "must be from 1 to %d", MaxTopK)
	bad(p.ExactBelow < 1 || p.ExactBelow > MaxExactBelow, "exact_below", "must be from 1 to %d", MaxExactBelow)
	bad(p.Precision < MinPrecision || p.Precision > MaxPrecision, "precision", "must be from %d to %d", MinPrecision,
		MaxPrecision)
	bad(p.Late < time.Minute || p.Late > MaxLate, "late", "must be from 1m to %s", MaxLate)
	return errors.Join(wrong...)
}

func validName(s string) bool {
	if s == "" || len(s) > MaxNameBytes {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("_-.:/", c) {
			return false
		}
	}
	return true
}

// sameCount reports whether both count the same thing, so that their numbers add up.
func (p *Product) sameCount(q *Product) bool {
	return p.Kind == q.Kind && slices.Equal(p.Identity, q.Identity)
}

// Products is the set of definitions, each with former generations whose window has not passed yet. It is a value:
// Put and Delete return another one, so that readers keep theirs.
type Products struct{ byName map[string]Entry }

// Entry is all that is known of a name.
type Entry struct {
	Current *Product // nil when deleted with its data kept
	Last    uint32   // the newest generation ever: a name that comes back does not count on
	Former  []Former
}

// Entries are the set's content, for those who store it.
func (s Products) Entries() map[string]Entry { return maps.Clone(s.byName) }

// ProductsOf is the inverse of Entries.
func ProductsOf(entries map[string]Entry) Products { return Products{maps.Clone(entries)} }

// Generation finds a definition of a name by its number.
func (s Products) Generation(name string, number uint32) (*Product, bool) {
	e := s.byName[name]
	if e.Current != nil && e.Current.Generation == number {
		return e.Current, true
	}
	for _, f := range e.Former {
		if f.Product.Generation == number {
			return f.Product, true
		}
	}
	return nil, false
}

// Former is a definition that was replaced or deleted.
type Former struct {
	Product *Product
	// Until is when its last window has passed.
	Until time.Time
}

// Get returns the definition of a product that is in use.
func (s Products) Get(name string) (*Product, bool) {
	p := s.byName[name].Current
	return p, p != nil
}

// Former returns the former generations that are still to be told, newest last.
func (s Products) Former(name string, now time.Time) []*Product {
	var list []*Product
	for _, f := range s.byName[name].Former {
		if now.Before(f.Until) {
			list = append(list, f.Product)
		}
	}
	return list
}

// All returns the definitions in use, by name.
func (s Products) All() []*Product {
	var list []*Product
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		if p := s.byName[name].Current; p != nil {
			list = append(list, p)
		}
	}
	return list
}

// Put defines a product: it must be complete. until is when the longest window that is open now has passed; the
// former definition is told until then if the new one counts something else. While it counts the same, it keeps the
// tags that it had, and new ones come behind them.
func (s Products) Put(p Product, until time.Time) (Products, *Product) {
	e := s.byName[p.Name]
	switch {
	case e.Current == nil:
		e.Last++
	case !e.Current.sameCount(&p):
		e.Former = append(slices.Clone(e.Former), Former{e.Current, until})
		e.Last++
	}
	if p.Generation = e.Last; e.Current != nil && e.Current.sameCount(&p) {
		p.Tags = keepTags(e.Current.Tags, p.Tags)
	}
	e.Current = &p
	return s.with(p.Name, e), &p
}

// keepTags appends to the tags that a generation has: their numbers are what chunks know them by.
func keepTags(now, more []string) []string {
	out := slices.Clone(now)
	for _, name := range more {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Delete takes a product out of use. Its data are told until then; an until that has passed drops them.
func (s Products) Delete(name string, until time.Time) (Products, bool) {
	e, ok := s.byName[name]
	if !ok || e.Current == nil {
		return s, false
	}
	e.Former = append(slices.Clone(e.Former), Former{e.Current, until})
	e.Current = nil
	return s.with(name, e), true
}

// Expire forgets former generations whose time has passed; the number of the newest one is kept.
func (s Products) Expire(now time.Time) Products {
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		e := s.byName[name]
		if slices.ContainsFunc(e.Former, func(f Former) bool { return !now.Before(f.Until) }) {
			e.Former = slices.DeleteFunc(slices.Clone(e.Former), func(f Former) bool { return !now.Before(f.Until) })
			s = s.with(name, e)
		}
	}
	return s
}

func (s Products) with(name string, e Entry) Products {
	next := maps.Clone(s.byName)
	if next == nil {
		next = map[string]Entry{}
	}
	next[name] = e
	return Products{next}
}
