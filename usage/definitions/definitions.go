// Package definitions is what operators and teams have decided about usage: products, limits, the calendars of tenants
// and corrections, with the deployment's key of all hashes. It is the machine of the plane's Raft group: one command
// after another, the same on all servers. Events are not here: each server has a log of its own.
//
// Readers hold an immutable View; one command makes the next. Commands are JSON: they are few. Everything that grows
// by itself has a bound, and what is over it goes from the old end.
package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/estimate"
	"corbel.dev/corbel/usage/limits"
)

// Bounds of what is kept.
const (
	MaxProducts    = 10_000
	MaxLimits      = 10_000
	MaxTenants     = 100_000
	maxHistory     = 10_000 // crossings
	maxCorrections = 1_000
	maxPeriods     = 10_000
)

// View is all definitions at one time. It is never changed.
type View struct {
	Index uint64
	Key   []byte // of all hashes; nil until the first leader has made it
	// Owners are the servers that count, by id: set once there are as many as are expected, and then by an operator
	// alone, for what a server has seen does not move with its part.
	Owners []string
	// Parts are who has the parts of the log, which are named by Owners, where it is not their home alone.
	Parts map[string]Part `json:",omitempty"`
	// Left are the parts that are owners no more, and when they were left out: what they counted until then is missing.
	Left        map[string]time.Time `json:",omitempty"`
	Products    usage.Products
	Tenants     map[string]Tenant
	Limits      map[string]Limit
	History     []limits.Crossing
	Corrections []Correction // oldest first
	Periods     []estimate.Period
}

// Tenant is what is decided about a tenant.
type Tenant struct {
	// Zone is the name of its calendar.
	Zone string `json:"tz"`
}

// Limit is a definition with what has been told of it.
type Limit struct {
	limits.Limit
	State limits.State
}

// Correction is one with what became of it, by server.
type Correction struct {
	usage.Correction
	At time.Time
	// Servers are those that have to do it, with the outcome of each; empty texts are still to come.
	Servers map[string]Outcome
	// Periods are the closed ones that it touches, as they were before; Revised says that they have been told again.
	Periods []estimate.Period
	Revised bool
}

// Outcome is what a server made of a correction.
type Outcome struct {
	Done  bool   `json:"done"`
	Error string `json:"error,omitempty"`
	// Events is how many were taken out or put in.
	Events int `json:"events"`
}

// Command is one change. Exactly one of its parts is set.
type Command struct {
	At     time.Time
	Begin  *Begin   `json:",omitempty"`
	Owners []string `json:",omitempty"`
	Part   *PartPut `json:",omitempty"`
	// Barrier changes nothing: who proposed it knows, when it is shown, all that was decided before.
	Barrier  bool           `json:",omitempty"`
	Put      *usage.Product `json:",omitempty"`
	Delete   *Delete        `json:",omitempty"`
	Tenant   *TenantPut     `json:",omitempty"`
	Limit    *limits.Limit  `json:",omitempty"`
	Unlimit  string         `json:",omitempty"`
	Crossed  *Crossed       `json:",omitempty"`
	Correct  *Correction    `json:",omitempty"`
	Report   *Report        `json:",omitempty"`
	Revision *Revision      `json:",omitempty"`
}

// Begin makes the key and the built-in products, once.
type Begin struct {
	Key      []byte
	Products []usage.Product
}

// Delete takes a product out of use.
type Delete struct {
	Name     string
	KeepData bool
}

// TenantPut decides about a tenant.
type TenantPut struct {
	Name string
	Tenant
}

// Crossed is what a judgement of a limit came to.
type Crossed struct {
	Limit     string
	State     limits.State
	Crossings []limits.Crossing
}

// Report is what a server made of a correction.
type Report struct {
	ID, Server string
	Outcome
}

// Revision is what a correction made of closed periods, in the order of its Periods.
type Revision struct {
	ID     string
	Values []usage.Quantity
}

// Proposer replicates a command and returns what ApplyBatch made of it.
type Proposer interface {
	Propose(ctx context.Context, cmd []byte) (any, error)
}

// Definitions is the machine. Make one with New; all methods are for any goroutine but those of group.Machine.
type Definitions struct {
	now     atomic.Pointer[View]
	propose Proposer
	mu      sync.Mutex // guards changed
	changed chan struct{}
}

// New makes an empty machine.
func New() *Definitions {
	d := &Definitions{changed: make(chan struct{})}
	d.now.Store(&View{Tenants: map[string]Tenant{}, Limits: map[string]Limit{}})
	return d
}

// Use says who replicates. Call it before anything is written.
func (d *Definitions) Use(p Proposer) { d.propose = p }

// View is the newest one.
func (d *Definitions) View() *View { return d.now.Load() }

// Changed is closed with the next change.
func (d *Definitions) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// Await waits for a view that is so. It returns ctx's error when that ends first.
func (d *Definitions) Await(ctx context.Context, so func(*View) bool) error {
	for {
		changed := d.Changed()
		if so(d.View()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Do replicates a command, and returns when this server shows it.
func (d *Definitions) Do(ctx context.Context, c Command) (any, error) {
	text, err := json.Marshal(&c)
	if err != nil {
		return nil, errkind.E(errkind.Internal, "usage: a command", err)
	}
	out, err := d.propose.Propose(ctx, text)
	if refused, is := out.(error); is && err == nil {
		err = refused
	}
	return out, err
}

func (d *Definitions) publish(v *View) {
	d.now.Store(v)
	d.mu.Lock()
	close(d.changed)
	d.changed = make(chan struct{})
	d.mu.Unlock()
}

// ApplyBatch implements group.Machine.
func (d *Definitions) ApplyBatch(cmds [][]byte) []any {
	out := make([]any, len(cmds))
	v := *d.now.Load()
	for i, cmd := range cmds {
		var c Command
		if err := json.Unmarshal(cmd, &c); err != nil {
			out[i] = errkind.E(errkind.Invalid, "usage: a command", err)
			continue
		}
		next, err := v.apply(&c)
		if err != nil {
			out[i] = err
			continue
		}
		next.Index++
		v = next
		out[i] = v.Index
	}
	d.publish(&v)
	return out
}

// apply returns the next view.
func (v View) apply(c *Command) (View, error) {
	switch {
	case c.Begin != nil:
		if v.Key != nil {
			return v, errkind.New(errkind.Conflict, "usage: there is a key")
		}
		v.Key = c.Begin.Key
		for _, p := range c.Begin.Products {
			v.Products, _ = v.Products.Put(p, c.At)
		}
	case len(c.Owners) > 0:
		return v.putOwners(c.Owners, c.At), nil
	case c.Barrier:
	case c.Part != nil:
		return v.putPart(c.Part)
	case c.Put != nil:
		return v.putProduct(*c.Put, c.At)
	case c.Delete != nil:
		until := c.At
		if c.Delete.KeepData {
			until = c.At.Add(longest)
		}
		var ok bool
		if v.Products, ok = v.Products.Delete(c.Delete.Name, until); !ok {
			return v, errkind.Errorf(errkind.NotFound, "product: %q is not defined", c.Delete.Name)
		}
		v.Products = v.Products.Expire(c.At)
	case c.Tenant != nil:
		if _, ok := v.Tenants[c.Tenant.Name]; !ok && len(v.Tenants) >= MaxTenants {
			return v, errkind.Errorf(errkind.TooLarge, "tenants: more than %d", MaxTenants)
		}
		v.Tenants = with(v.Tenants, c.Tenant.Name, c.Tenant.Tenant)
	case c.Limit != nil:
		return v.putLimit(*c.Limit)
	case c.Unlimit != "":
		if _, ok := v.Limits[c.Unlimit]; !ok {
			return v, errkind.Errorf(errkind.NotFound, "limit: %q is not defined", c.Unlimit)
		}
		v.Limits = maps.Clone(v.Limits)
		delete(v.Limits, c.Unlimit)
	case c.Crossed != nil:
		return v.crossed(c.Crossed)
	case c.Correct != nil:
		next := *c.Correct
		next.ID, next.At = CorrectionID(v.Index+1), c.At
		v.Corrections = bounded(append(slices.Clone(v.Corrections), next), maxCorrections)
	case c.Report != nil:
		return v.report(c.Report)
	case c.Revision != nil:
		return v.revise(c.Revision, c.At)
	default:
		return v, errkind.New(errkind.Invalid, "usage: a command that is not known here")
	}
	return v, nil
}

// CorrectionID is the id of the correction that a command of an index made.
func CorrectionID(index uint64) string { return fmt.Sprintf("c%d", index) }

// longest is the longest window.
const longest = 31 * 24 * time.Hour

func (v View) putProduct(p usage.Product, at time.Time) (View, error) {
	if err := p.Complete(); err != nil {
		return v, errkind.E(errkind.Invalid, "", err)
	}
	if old, ok := v.Products.Get(p.Name); !ok && len(v.Products.All()) >= MaxProducts {
		return v, errkind.Errorf(errkind.TooLarge, "products: more than %d", MaxProducts)
	} else if ok && old.Kind == p.Kind && slices.Equal(old.Identity, p.Identity) {
		all := slices.Clone(old.Tags)
		for _, t := range p.Tags {
			if !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
		if len(all) > usage.MaxProductTags {
			return v, errkind.Errorf(errkind.Invalid, "tags: are %d with those that the product had: at most %d are taken "+
				"until it is deleted", len(all), usage.MaxProductTags)
		}
	}
	v.Products, _ = v.Products.Expire(at).Put(p, at.Add(longest))
	return v, nil
}

func (v View) putLimit(l limits.Limit) (View, error) {
	if err := l.Complete(); err != nil {
		return v, errkind.E(errkind.Invalid, "", err)
	}
	old, ok := v.Limits[l.Name]
	if !ok && len(v.Limits) >= MaxLimits {
		return v, errkind.Errorf(errkind.TooLarge, "limits: more than %d", MaxLimits)
	}
	next := Limit{Limit: l}
	if ok && old.Tenant == l.Tenant && old.Product == l.Product && old.Window == l.Window &&
		old.Value == l.Value && slices.Equal(old.At, l.At) {
		next.State = old.State
	}
	v.Limits = with(v.Limits, l.Name, next)
	return v, nil
}

func (v View) crossed(c *Crossed) (View, error) {
	l, ok := v.Limits[c.Limit]
	if !ok {
		return v, errkind.Errorf(errkind.NotFound, "limit: %q is not defined", c.Limit)
	}
	l.State = c.State
	v.Limits = with(v.Limits, c.Limit, l)
	v.History = bounded(append(slices.Clone(v.History), c.Crossings...), maxHistory)
	return v, nil
}

func (v View) report(r *Report) (View, error) {
	i := slices.IndexFunc(v.Corrections, func(c Correction) bool { return c.ID == r.ID })
	if i < 0 {
		return v, errkind.Errorf(errkind.NotFound, "correction: %q is not known", r.ID)
	}
	v.Corrections = slices.Clone(v.Corrections)
	v.Corrections[i].Servers = with(v.Corrections[i].Servers, r.Server, r.Outcome)
	return v, nil
}

func (v View) revise(r *Revision, at time.Time) (View, error) {
	i := slices.IndexFunc(v.Corrections, func(c Correction) bool { return c.ID == r.ID })
	if i < 0 || len(v.Corrections[i].Periods) != len(r.Values) {
		return v, errkind.Errorf(errkind.NotFound, "correction: %q is not known", r.ID)
	}
	v.Corrections = slices.Clone(v.Corrections)
	c := &v.Corrections[i]
	c.Revised = true
	v.Periods = slices.Clone(v.Periods)
	for k, period := range c.Periods {
		if r.Values[k] == period.Value() {
			continue
		}
		revision := estimate.Revision{At: at, Value: r.Values[k], Correction: c.ID, Reason: c.Reason}
		known := slices.IndexFunc(v.Periods, func(p estimate.Period) bool {
			return p.Series == period.Series && p.From.Equal(period.From) && p.To.Equal(period.To)
		})
		if known >= 0 {
			v.Periods[known] = v.Periods[known].Revised(revision)
		} else {
			v.Periods = append(v.Periods, period.Revised(revision))
		}
	}
	v.Periods = bounded(v.Periods, maxPeriods)
	return v, nil
}

func with[V any](m map[string]V, name string, value V) map[string]V {
	next := maps.Clone(m)
	if next == nil {
		next = map[string]V{}
	}
	next[name] = value
	return next
}

func bounded[V any](list []V, most int) []V {
	if len(list) > most {
		return slices.Delete(list, 0, len(list)-most)
	}
	return list
}

// stored is a View as snapshots have it.
type stored struct {
	View
	Products map[string]usage.Entry
}

// WriteTo implements group.Snapshot.
func (v *View) WriteTo(w io.Writer) (int64, error) {
	text, err := json.Marshal(stored{*v, v.Products.Entries()})
	if err != nil {
		return 0, err
	}
	n, err := w.Write(text)
	return int64(n), err
}

// Snapshot implements group.Machine.
func (d *Definitions) Snapshot() group.Snapshot { return d.now.Load() }

// Restore implements group.Machine.
func (d *Definitions) Restore(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return errkind.E(errkind.Corrupt, "usage: a snapshot of the definitions", err)
	}
	s.View.Products = usage.ProductsOf(s.Products)
	d.publish(&s.View)
	return nil
}

// ErrNotBegun is the answer while no key has been made.
var ErrNotBegun = errkind.New(errkind.Unavailable, "usage: the plane has no key yet: a leader makes it")

// HashKey is the key of all hashes.
func (v *View) HashKey() (usage.Key, error) {
	if len(v.Key) != 16 {
		return usage.Key{}, ErrNotBegun
	}
	return usage.NewKey([16]byte(v.Key)), nil
}

// Correction finds one.
func (v *View) Correction(id string) (Correction, error) {
	for _, c := range v.Corrections {
		if c.ID == id {
			return c, nil
		}
	}
	return Correction{}, errkind.Errorf(errkind.NotFound, "correction: %q is not known", id)
}

// Finished says whether all servers have done a correction, and what went wrong.
func (c *Correction) Finished() (done bool, err error) {
	var wrong []error
	done = true
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		o := c.Servers[name]
		done = done && o.Done
		if o.Error != "" {
			wrong = append(wrong, errors.New(name+": "+o.Error))
		}
	}
	return done, errors.Join(wrong...)
}
