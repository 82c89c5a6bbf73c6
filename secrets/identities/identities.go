package identities

import (
	"context"
	"strings"
	"sync"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/serial"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/oidcprovider"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/telemetry"
)

// Identities is the order of logins and of changes of entities and groups.
type Identities struct {
	Records *sealed.Store
	Rights  *rights.Rights
	Metrics *telemetry.Registry
	Cluster func() string // its name
	// Second answers identity/mfa/; set before the first request.
	Second Second
	// Providers answers what oidcprovider.Is says; set before the first request.
	Providers *oidcprovider.Providers

	mu    sync.RWMutex // held for writing while operators change identities, for reading while a login does
	names serial.Names // of what logins change; taken before mu
}

// Second is who asks logins for a second factor.
type Second interface {
	// Answer answers a request below identity/mfa/. Writes exclude each other, and changes of entities and groups.
	Answer(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error)
	// Changed is called once what a write wanted stored is.
	Changed(st *tables.Tables)
}

// Engine answers identity/ of a namespace, "" the root one. address is where clients reach this server.
func (o *Identities) Engine(address string, salt []byte, gate *tables.Gate, space string) engine.Engine {
	book := token.Book{Salt: salt}
	return handler{&identity.Engine{Hash: book.Hash, Address: address, Space: space,
		Mounts: func(accessor string) *mount.Entry {
			st := gate.Load()
			if st != nil {
				st = st.In(space)
			}
			if st == nil {
				return nil
			}
			return st.Mounts.ByAccessor(accessor)
		}}, o}
}

// errOIDC refuses what namespaces do not have of their own.
var errOIDC = errkind.New(errkind.Invalid,
	"identity tokens and OIDC providers are of the root namespace: a namespace has none of its own")

// handler answers identity/. Its writes are alone until they are committed: they and logins read what they change.
type handler struct {
	engine.Tender
	o *Identities
}

// Answer implements Handler.
func (p handler) Answer(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error) {
	if t.Tables.Space != nil && strings.HasPrefix(r.Rest, "oidc") {
		return nil, errOIDC
	}
	answer, second := p.one, strings.HasPrefix(r.Rest, "mfa/")
	switch {
	case second:
		answer = p.o.Second.Answer
	case oidcprovider.Is(r.Rest):
		answer = p.o.Providers.Answer
	}
	if !r.Op.Writes() || identity.OfTokens(r) {
		return answer(ctx, t, r)
	}
	p.o.mu.Lock()
	defer p.o.mu.Unlock()
	resp, err := answer(ctx, t, r)
	if err != nil {
		return nil, err
	}
	ops, err := t.View.Ops(resp.Ops)
	if err != nil {
		return nil, err
	}
	resp.Ops = nil
	made := p.o.entitiesIn(ctx, t.Tables, ops)
	if err = p.o.Records.Commit(ctx, ops); err == nil {
		for range made {
			p.o.Made(t.Entry)
		}
		if second {
			p.o.Second.Changed(t.Tables)
		}
	}
	return resp, err
}

// one has the engine answer.
func (p handler) one(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error) {
	return p.Tender.Handle(ctx, t.View, r)
}

// Whose is who a token in the making is of.
type Whose struct {
	Entity   string
	Persona  *identity.Persona // the entity with its groups; nil: there is none
	Policies []string          // by identity
	Ops      []storage.Op
	Release  func()
}

// Identify finds the entity of a login, and what the login changes of it. Until release is called
// nobody else changes that.
func (o *Identities) Identify(ctx context.Context, t *task.Task, a *secrets.Auth) (*Whose, error) {
	w := &Whose{Entity: a.Entity, Release: func() {}}
	if t.Tables.Identities == nil || (a.Alias == "" && a.Entity == "") {
		return w, nil
	}
	l := identity.Login{Mount: t.Entry.Accessor, Name: a.Alias, Meta: a.AliasMeta, Groups: a.Groups}
	for held := ""; a.Alias != ""; {
		found, err := t.Tables.Identities.Login(ctx, l, t.Now)
		if err == nil && found.Entity.Disabled {
			err = rights.ErrDenied
		}
		if err != nil {
			w.Release()
			return nil, err
		}
		if w.Entity = found.Entity.ID; len(found.Ops) == 0 {
			w.Release()
			w.Release = func() {}
			break
		}
		if found.Lock == held {
			w.Persona, w.Policies = found.Persona, found.Persona.Policies
			w.Ops, err = o.Records.At(t.Tables.IdentitiesPrefix).Ops(found.Ops)
			t.Newcomer = found.Made
			return w, err
		}
		w.Release() // it was found without the lock that it needs: once more with it
		give := o.names.Take("who\x00" + found.Lock)
		o.mu.RLock()
		held, w.Release = found.Lock, func() { o.mu.RUnlock(); give() }
	}
	p, err := o.Rights.Identity(ctx, t.Tables, w.Entity)
	if err == nil && !p.May() {
		err = rights.ErrDenied
	}
	if err != nil {
		return nil, err
	}
	if p.Persona != nil {
		w.Persona, w.Policies = p.Persona, p.Policies
	}
	return w, nil
}

// Made counts an entity that is stored now, by the mount that it came by.
func (o *Identities) Made(e *mount.Entry) {
	o.Metrics.Counter("identity.entity.creation", "cluster", o.Cluster(), "namespace", label(e), "auth_method", e.Type,
		"mount_point", e.Path).Add(1)
}

// label is the one of census.SpaceLabel, which counts these too.
func label(e *mount.Entry) string {
	if e.Space == "" {
		return "root"
	}
	return "other"
}

// entitiesIn says how many entities operations bring that are not there yet.
func (o *Identities) entitiesIn(ctx context.Context, st *tables.Tables, ops []storage.Op) (n int) {
	for _, op := range ops {
		if op.Value == nil || !strings.HasPrefix(op.Key, st.IdentitiesPrefix+identity.Entities) {
			continue
		}
		if _, there, err := o.Records.Get(ctx, op.Key); err == nil && !there {
			n++
		}
	}
	return n
}
