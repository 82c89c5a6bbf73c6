package mfa

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/serial"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/identities"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
)

// The bounds of logins that wait for their second factor.
const (
	waitsFor     = 5 * time.Minute
	maxWaiting   = 16384 // at all: beyond, logins that need a factor are refused until some have gone
	maxOfEntity  = 16    // of an entity: the oldest goes for a new one
	maxCounted   = 16384 // entities and methods with wrong codes
	longestBlock = time.Hour
)

// Factors judges logins by the enforcements of their namespace. All methods may be called from any goroutine.
type Factors struct {
	Records *sealed.Store
	Who     *identities.Identities

	names serial.Names // entities whose codes are judged, until what was taken of them is stored

	mu      sync.Mutex
	rules   map[string]*rules // by the prefix of the namespace's identities
	changes uint64            // counts what was dropped of rules
	waiting map[string]*waiting
	wrong   map[string]*count // by entity and method
}

// waiting is a login whose first factor was good.
type waiting struct {
	auth     *secrets.Auth
	accessor string // of the mount
	space    string
	path     string // in the namespace
	rest     string // behind the mount's path
	entity   string
	warnings []string
	until    time.Time
}

// count is of wrong codes.
type count struct {
	failed  int // in a row, since the last block
	blocks  int // in a row
	blocked time.Time
	forget  time.Time // when nothing of it counts any more
}

// Pass is a login that was judged.
type Pass struct {
	task.Passed              // without a Login where Demand is set
	Demand      *task.Demand // what is lacking; nil: nothing
}

// Judge judges a token in the making: whether a second factor is needed, and whether it was brought. What is not a
// login passes, and costs nothing; so does a login where the namespace has no enforcement, after the first one.
func (f *Factors) Judge(ctx context.Context, t *task.Task, resp *secrets.Response) (Pass, error) {
	if p := t.Left.Passed; p != nil {
		return Pass{Passed: *p}, nil
	}
	pass := Pass{Passed: task.Passed{Login: t, Release: func() {}}}
	if t.Bearer != nil || t.Tables.Identities == nil || resp.Auth.Alias == "" {
		return pass, nil
	}
	r, err := f.of(ctx, t.Tables)
	if err != nil || len(r.enforcements) == 0 {
		return pass, err
	}
	who, err := f.Who.Identify(ctx, t, resp.Auth)
	if err != nil {
		return pass, err
	}
	need := r.covering(loginOf(t, who))
	if len(need) == 0 {
		who.Release()
		return pass, nil
	}
	if len(t.Factors) > 0 {
		who.Release() // whoever makes the token finds the entity again
		given := map[string][]string{}
		for _, text := range t.Factors {
			method, code, _ := strings.Cut(text, ":")
			given[method] = append(given[method], code)
		}
		pass.Ops, pass.Release, err = f.check(ctx, t, r, need, who.Entity, given)
		return pass, err
	}
	id, err := f.wait(t, resp, who.Entity)
	if err != nil {
		who.Release()
		return pass, err
	}
	resp.Warnings = append(resp.Warnings, "This login needs a second factor: send mfa_request_id with a passcode to "+
		"sys/mfa/validate within 5 minutes.")
	return Pass{Demand: demand(r, need, id), Passed: task.Passed{Ops: who.Ops, Release: who.Release}}, nil
}

func loginOf(t *task.Task, who *identities.Whose) *login {
	l := &login{kind: t.Entry.Type, accessor: t.Entry.Accessor, entity: who.Entity}
	if p := who.Persona; p != nil {
		for _, g := range slices.Concat(p.Direct, p.Inherited) {
			l.groups = append(l.groups, g.ID)
		}
	}
	return l
}

// demand is what a login is told that lacks a factor.
func demand(r *rules, need []*Enforcement, id string) *task.Demand {
	d := &task.Demand{ID: id, Constraints: map[string]task.AnyOf{}}
	for _, e := range need {
		list := []task.Factor{}
		for _, m := range e.Methods {
			if m := r.method(m); m != nil {
				list = append(list, task.Factor{Type: m.Type, ID: m.ID, Passcode: true, Name: m.Name})
			}
		}
		d.Constraints[e.Name] = task.AnyOf{Any: list}
	}
	return d
}

// wait keeps a login until its second factor comes.
func (f *Factors) wait(t *task.Task, resp *secrets.Response, entity string) (id string, err error) {
	id = uuid.NewString()
	f.mu.Lock()
	defer f.mu.Unlock()
	oldest, has := "", 0
	for other, w := range f.waiting {
		switch {
		case t.Now.After(w.until):
			delete(f.waiting, other)
		case w.entity == entity:
			if has++; oldest == "" || w.until.Before(f.waiting[oldest].until) {
				oldest = other
			}
		}
	}
	if has >= maxOfEntity {
		delete(f.waiting, oldest)
	}
	if len(f.waiting) >= maxWaiting {
		return "", errkind.New(errkind.Overloaded, "too many logins wait for their second factor: try again in a minute")
	}
	if f.waiting == nil {
		f.waiting = map[string]*waiting{}
	}
	f.waiting[id] = &waiting{auth: resp.Auth, accessor: t.Entry.Accessor, space: t.Tables.Path(), path: t.Path,
		rest: t.Rest, entity: entity, warnings: slices.Clone(resp.Warnings), until: t.Now.Add(waitsFor)}
	return id, nil
}

// Rows are the paths of sys/ that it answers.
func (f *Factors) Rows() []system.Row {
	return []system.Row{{Path: "mfa/validate", InNamespaces: true, Write: f.validate}}
}

var errGone = errkind.New(errkind.Denied,
	"field \"mfa_request_id\": no login waits under it: it has ended, or the active server has changed; log in again")

// validate lets a login that waits have its token.
func (f *Factors) validate(c *system.Call) (any, error) {
	id := c.F.String("mfa_request_id")
	given, err := payload(c.F)
	if err != nil {
		return nil, err
	}
	switch {
	case id == "":
		return nil, errkind.New(errkind.Invalid, "field \"mfa_request_id\": is missing")
	case len(given) == 0:
		return nil, errkind.New(errkind.Invalid, "field \"mfa_payload\": is missing")
	}
	f.mu.Lock()
	w := f.waiting[id]
	f.mu.Unlock()
	if w == nil || c.Now.After(w.until) || w.space != c.Tables.Path() {
		return nil, errGone
	}
	login := f.again(c.Task, w)
	if login == nil {
		return nil, errGone
	}
	r, err := f.of(c, c.Tables)
	if err != nil {
		return nil, err
	}
	who, err := f.Who.Identify(c, login, w.auth)
	if err != nil {
		return nil, err
	}
	who.Release()
	if who.Entity != w.entity { // it went meanwhile, or became another's
		return nil, errGone
	}
	need := r.covering(loginOf(login, who))
	ops, release, err := f.check(c, c.Task, r, need, w.entity, given)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	gone := f.waiting[id] == nil
	delete(f.waiting, id)
	f.mu.Unlock()
	if gone { // another request had it at the same time
		release()
		return nil, errGone
	}
	c.Left.Passed = &task.Passed{Login: login, Ops: ops, Release: release}
	return &secrets.Response{Auth: w.auth, Warnings: w.warnings}, nil
}

// again is the login that waits, as a task of its own; nil where its mount has gone.
func (f *Factors) again(t *task.Task, w *waiting) *task.Task {
	e := t.Tables.Mounts.ByAccessor(w.accessor)
	if e == nil {
		return nil
	}
	r := &secrets.Request{ID: t.ID, Op: secrets.Update, Path: w.path, Mount: e.Path, Rest: w.rest, Origin: t.Origin,
		Wrap: t.Wrap, Now: t.Now, Namespace: t.Request.Namespace}
	return &task.Task{Request: r, Tables: t.Tables, Entry: e, Engine: t.Tables.Engines[e.Accessor],
		View: f.Records.At(e.Prefix())}
}

// of gives the rules of the tables' namespace.
func (f *Factors) of(ctx context.Context, st *tables.Tables) (*rules, error) {
	f.mu.Lock()
	r, changes := f.rules[st.IdentitiesPrefix], f.changes
	f.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r, err := read(ctx, f.Records.At(st.IdentitiesPrefix))
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changes == changes {
		if f.rules == nil {
			f.rules = map[string]*rules{}
		}
		f.rules[st.IdentitiesPrefix] = r
	}
	return r, nil
}

// Changed drops the rules of a namespace, once a change of them is stored.
func (f *Factors) Changed(st *tables.Tables) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.rules, st.IdentitiesPrefix)
	f.changes++
}

// Forget drops everything, logins that wait among it.
func (f *Factors) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules, f.waiting, f.wrong = nil, nil, nil
	f.changes++
}
