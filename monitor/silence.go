package monitor

import (
	"slices"
	"strings"

	"corbel.dev/corbel/kit/tagproto"
)

// Silenced mutes events of a subscription, a check, or a check of a subscription.
type Silenced struct {
	Meta            `json:"metadata,omitempty" pb:"1"`
	Expire          int64          `json:"expire" pb:"2"` // seconds from Begin, -1 or 0 for ever
	ExpireOnResolve bool           `json:"expire_on_resolve" pb:"3"`
	Creator         string         `json:"creator,omitempty" pb:"4"`
	Check           string         `json:"check,omitempty" pb:"5"`
	Reason          string         `json:"reason,omitempty" pb:"6"`
	Subscription    string         `json:"subscription,omitempty" pb:"7"`
	Begin           int64          `json:"begin" pb:"10"`     // Unix seconds
	ExpireAt        int64          `json:"expire_at" pb:"11"` // Unix seconds, 0 for never
	Extra           tagproto.Extra `json:"-"`
}

// SilenceName returns the name of the silence of a subscription and a check, either of which may be empty.
func SilenceName(subscription, check string) string {
	if subscription == "" {
		subscription = "*"
	}
	if check == "" {
		check = "*"
	}
	return subscription + ":" + check
}

// Active reports whether s holds at now, in Unix seconds.
func (s *Silenced) Active(now int64) bool {
	return s.Begin <= now && (s.ExpireAt == 0 || s.ExpireAt > now)
}

// Complete fills in what a new silence, or one that replaces old (nil is none), leaves open: its name, who made it,
// when it begins and when it ends. now is in Unix seconds.
//
// Whoever writes back what was read brings the seconds that were left then and the former end: the end stays, unless
// the seconds were changed. What comes from a dump keeps its end too.
func (s *Silenced) Complete(old *Silenced, creator string, now int64) {
	s.Name = SilenceName(s.Subscription, s.Check)
	if s.Creator == "" {
		s.Creator = creator
	}
	if s.Begin == 0 {
		s.Begin = now
	}
	const slack = 60 // seconds between reading and writing back
	edited := old != nil && s.ExpireAt == old.ExpireAt && s.Expire > 0 &&
		max(s.ExpireAt-now-s.Expire, s.Expire-(s.ExpireAt-now)) > slack
	if s.Expire > 0 && (s.ExpireAt == 0 || edited) {
		s.ExpireAt = s.Begin + s.Expire
	}
}

// Over reports whether s has ended at now, in Unix seconds.
func (s *Silenced) Over(now int64) bool { return s.ExpireAt != 0 && s.ExpireAt <= now }

// Shown returns s as it is read at now: with the seconds that are left, -1 for no end.
func (s *Silenced) Shown(now int64) *Silenced {
	c := *s
	c.Expire = -1
	if s.ExpireAt != 0 {
		c.Expire = max(s.ExpireAt-max(now, s.Begin), 0)
	}
	return &c
}

// Silences finds the silences of one namespace that hold for an event. It is made once
// for each set of silences and never changed.
type Silences struct {
	byCheck        map[string][]*Silenced // of a check, whatever the subscription
	bySubscription map[string][]*Silenced
}

// NewSilences indexes all silences of a namespace. It keeps the pointers.
func NewSilences(all []*Silenced) *Silences {
	x := &Silences{map[string][]*Silenced{}, map[string][]*Silenced{}}
	for _, s := range all {
		if wild(s.Subscription) {
			x.byCheck[s.Check] = append(x.byCheck[s.Check], s)
		} else {
			x.bySubscription[s.Subscription] = append(x.bySubscription[s.Subscription], s)
		}
	}
	return x
}

func wild(word string) bool { return word == "" || word == "*" }

// Subject is what silences are compared with.
type Subject struct {
	Check               string
	CheckSubscriptions  []string
	Entity              string
	EntitySubscriptions []string
	Proxy               bool // any subscription of the entity counts, not those alone that the check has too
}

const entityPrefix = "entity:"

// EntitySubscription returns the subscription that every entity has to itself.
func EntitySubscription(entity string) string { return entityPrefix + entity }

// Of returns the silences that hold for p at now (Unix seconds), by name. Nothing is
// allocated when there are none.
func (x *Silences) Of(p Subject, now int64) []*Silenced {
	if x.Empty() {
		return nil
	}
	var out []*Silenced
	for _, s := range x.byCheck[p.Check] {
		out = addActive(out, s, now)
	}
	if len(x.bySubscription) == 0 {
		return sortByName(out)
	}
	out = x.ofSubscription(out, EntitySubscription(p.Entity), p.Check, now)
	for _, sub := range p.EntitySubscriptions {
		if p.Proxy || slices.Contains(p.CheckSubscriptions, sub) {
			out = x.ofSubscription(out, sub, p.Check, now)
		}
	}
	return sortByName(out)
}

func (x *Silences) ofSubscription(out []*Silenced, subscription, check string, now int64) []*Silenced {
	for _, s := range x.bySubscription[subscription] {
		if wild(s.Check) || s.Check == check {
			out = addActive(out, s, now)
		}
	}
	return out
}

func addActive(out []*Silenced, s *Silenced, now int64) []*Silenced {
	if !s.Active(now) || slices.Contains(out, s) {
		return out
	}
	return append(out, s)
}

func sortByName(out []*Silenced) []*Silenced {
	slices.SortFunc(out, func(a, b *Silenced) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Empty reports whether there are no silences at all.
func (x *Silences) Empty() bool { return x == nil || len(x.byCheck)+len(x.bySubscription) == 0 }

// Under is the event with the silences that hold for it at now: one that came or went behind its arrival shows at
// once. The event itself stays as it is; nil is nothing. of gives the silences of a namespace.
func (e *Event) Under(of func(namespace string) *Silences, now int64) *Event {
	if e == nil || e.Check == nil || e.Entity == nil {
		return e
	}
	all := of(e.Entity.Namespace)
	if all.Empty() && len(e.Check.Silenced) == 0 {
		return e
	}
	var names []string
	for _, s := range all.Of(Subject{Check: e.Check.Name, CheckSubscriptions: e.Check.Subscriptions,
		Entity: e.Entity.Name, EntitySubscriptions: e.Entity.Subscriptions, Proxy: e.Check.ProxyEntityName != ""}, now) {
		names = append(names, s.Name)
	}
	shown, check := *e, *e.Check
	check.Silenced, check.IsSilenced = names, len(names) > 0
	shown.Check = &check
	return &shown
}
