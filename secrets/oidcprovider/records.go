package oidcprovider

import (
	"context"
	"crypto/rand"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/task"
)

// Where records are, below the mount. Clients are where identity looks for those that use a key.
const (
	providerKey   = "oidc/provider/"
	scopeKey      = "oidc/scope/"
	assignmentKey = "oidc/assignment/"
	clientKey     = identity.OIDCClients
	clientIDKey   = "oidc/client-id/" // ID: the client's name
)

// What is there before anybody wrote it.
const (
	defaultName = "default"   // of the provider and of the key
	allowAll    = "allow_all" // the assignment that everybody with an entity has
)

// openID is the scope that every request has.
const openID = "openid"

// The bounds of what operators write.
const (
	maxName   = 256
	maxListed = 1024
)

type provider struct {
	Issuer  string   `json:"issuer"`
	Clients []string `json:"allowed_client_ids"`
	Scopes  []string `json:"scopes_supported"`
}

type scope struct {
	Template    string `json:"template"`
	Description string `json:"description"`
}

type assignment struct {
	Entities []string `json:"entity_ids"`
	Groups   []string `json:"group_ids"`
}

// The types of clients.
const (
	confidential = "confidential" // has a secret
	public       = "public"       // can't keep one, and so needs PKCE
)

type client struct {
	ID          string        `json:"client_id"`
	Secret      string        `json:"client_secret,omitempty"`
	Type        string        `json:"client_type"`
	Key         string        `json:"key"`
	Redirects   []string      `json:"redirect_uris"`
	Assignments []string      `json:"assignments"`
	IDTTL       time.Duration `json:"id_token_ttl"`
	AccessTTL   time.Duration `json:"access_token_ttl"`
}

// redirects reports whether a client may be answered at an address: one of its own, or one of its own on the loopback
// with another port (RFC 8252, section 7.3).
func (c *client) redirects(to string) bool {
	u, err := url.Parse(to)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(c.Redirects, func(own string) bool {
		if own == to {
			return true
		}
		o, err := url.Parse(own)
		if err != nil || o.Scheme != "http" || !loopback(o.Hostname()) {
			return false
		}
		return u.Scheme == o.Scheme && u.Hostname() == o.Hostname() && u.Path == o.Path && u.RawQuery == o.RawQuery &&
			u.User == nil && u.Fragment == ""
	})
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// call is a request with what it found.
type call struct {
	context.Context
	*task.Task
	p    *Providers
	book identity.Book
	f    *secrets.Fields
	ops  []secrets.Op
}

func (c *call) writes() bool { return c.Op == secrets.Create || c.Op == secrets.Update }

// kind is what records of a kind have in common.
type kind[T any] struct {
	prefix string
	fixed  string                                 // the name of the one that is always there; ""
	always func() *T                              // that one, before anybody wrote it
	begin  func() *T                              // any other before that
	read   func(c *call, name string, v *T) error // the fields that are given
	show   func(v *T) map[string]any
	drop   func(c *call, name string, v *T) error // whether it may go, and what goes with it
}

// find reads a record, or gives the one that is always there; nil for none.
func (k *kind[T]) find(ctx context.Context, v engine.View, name string) (*T, error) {
	found, err := auth.Find[T](ctx, v, k.prefix, name)
	if err == nil && found == nil && name == k.fixed && name != "" {
		found = k.always()
	}
	return found, err
}

// each calls f with all records of the kind, in the order of their names, until it fails.
func (k *kind[T]) each(c *call, f func(name string, v *T) error) error {
	names, err := c.View.List(c, k.prefix, "", 0)
	if k.fixed != "" && !slices.Contains(names, k.fixed) {
		names = append(names, k.fixed)
		slices.Sort(names)
	}
	for _, name := range names {
		var v *T
		if err == nil {
			v, err = k.find(c, &c.View, name)
		}
		if err == nil && v != nil {
			err = f(name, v)
		}
	}
	return err
}

// answer answers create, read, update, delete and list.
func (k *kind[T]) answer(c *call, name string) (*secrets.Response, error) {
	if name == "" {
		if c.Op != secrets.List {
			return nil, auth.ErrUnsupported
		}
		return k.list(c)
	}
	if len(name) > maxName {
		return nil, errkind.Errorf(errkind.Invalid, "the name %.64q has more than %d bytes", name, maxName)
	}
	found, err := k.find(c, &c.View, name)
	switch {
	case err != nil:
		return nil, err
	case c.Op == secrets.Read && found == nil:
		return nil, auth.ErrNotFound
	case c.Op == secrets.Read:
		return auth.Data(k.show(found))
	case c.Op == secrets.Delete && name == k.fixed:
		return nil, errkind.Errorf(errkind.Invalid, "%q is always there: it can't be deleted", name)
	case c.Op == secrets.Delete && found == nil:
		return nil, nil
	case c.Op == secrets.Delete:
		if k.drop != nil {
			if err := k.drop(c, name, found); err != nil {
				return nil, err
			}
		}
		c.ops = append(c.ops, storage.Delete(k.prefix+name))
		return nil, nil
	case !c.writes():
		return nil, auth.ErrUnsupported
	}
	if found == nil {
		found = k.begin()
	}
	if err := k.read(c, name, found); err != nil {
		return nil, err
	}
	op, err := storage.PutJSON(k.prefix+name, found)
	c.ops = append(c.ops, op)
	return nil, err
}

func (k *kind[T]) list(c *call) (*secrets.Response, error) {
	wanted := c.f.String("allowed_client_id")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	keys, info := []string{}, map[string]any{}
	err := k.each(c, func(name string, v *T) error {
		if p, is := any(v).(*provider); is && wanted != "" && !allows(p.Clients, wanted) {
			return nil
		}
		keys = append(keys, name)
		shown := k.show(v)
		delete(shown, "client_secret") // which is read one by one
		info[name] = shown
		return nil
	})
	if err != nil {
		return nil, err
	}
	return auth.KeyInfo(keys, info)
}

func allows(list []string, id string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, id)
}

// names reads a list that is given; what is not given stays.
func names(f *secrets.Fields, field string, into *[]string) error {
	if !f.Has(field) {
		return f.Err()
	}
	list := f.Strings(field)
	slices.Sort(list)
	if *into = slices.Compact(list); len(*into) > maxListed {
		return errkind.Errorf(errkind.Invalid, "field %q: has %d values, more than %d", field, len(*into), maxListed)
	}
	return f.Err()
}

func providerKind() *kind[provider] {
	return &kind[provider]{prefix: providerKey, fixed: defaultName,
		always: func() *provider { return &provider{Clients: []string{"*"}} },
		begin:  func() *provider { return &provider{} },
		read: func(c *call, _ string, p *provider) error {
			if c.f.Has("issuer") {
				p.Issuer = strings.TrimSuffix(c.f.String("issuer"), "/")
			}
			if err := names(c.f, "allowed_client_ids", &p.Clients); err != nil {
				return err
			}
			if err := names(c.f, "scopes_supported", &p.Scopes); err != nil {
				return err
			}
			if p.Issuer != "" && !identity.PlainIssuer(p.Issuer) {
				return errkind.New(errkind.Invalid, "field \"issuer\": must have only a scheme, a host and a port, as "+
					"https://vault.example.com:8200")
			}
			if slices.Contains(p.Scopes, openID) {
				return errkind.New(errkind.Invalid, "field \"scopes_supported\": openid is always supported, and can't be listed")
			}
			for _, s := range p.Scopes {
				if found, err := scopeKind().find(c, &c.View, s); err != nil || found == nil {
					return orMissing(err, "scopes_supported", "scope", s)
				}
			}
			return c.clash(p.Scopes)
		},
		show: func(p *provider) map[string]any {
			return map[string]any{"issuer": p.Issuer, "allowed_client_ids": auth.List(p.Clients),
				"scopes_supported": auth.List(p.Scopes)}
		}}
}

func orMissing(err error, field, what, name string) error {
	if err != nil {
		return err
	}
	return errkind.Errorf(errkind.Invalid, "field %q: there is no %s %.64q", field, what, name)
}

// clash refuses scopes that set the same claim: which one counts would be chance.
func (c *call) clash(scopes []string) error {
	of := map[string]string{}
	for _, name := range scopes {
		claims, err := c.claims([]string{name}, &identity.Persona{Entity: &identity.Entity{}})
		if err != nil {
			return err
		}
		for claim := range claims {
			if other := of[claim]; other != "" {
				return errkind.Errorf(errkind.Invalid, "field \"scopes_supported\": the scopes %q and %q both set %q", other, name,
					claim)
			}
			of[claim] = name
		}
	}
	return nil
}

// claims are what scopes tell of somebody.
func (c *call) claims(scopes []string, p *identity.Persona) (map[string]any, error) {
	out := map[string]any{}
	for _, name := range scopes {
		s, err := scopeKind().find(c, &c.View, name)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		more, err := p.Claims(s.Template, c.Now)
		if err != nil {
			return nil, errkind.Errorf(errkind.Invalid, "the template of scope %q gives no JSON object for this entity", name)
		}
		maps.Copy(out, more)
	}
	return out, nil
}

func scopeKind() *kind[scope] {
	return &kind[scope]{prefix: scopeKey, begin: func() *scope { return &scope{} },
		read: func(c *call, name string, s *scope) error {
			if name == openID {
				return errkind.New(errkind.Invalid, "the scope openid is always there: it has no template")
			}
			if c.f.Has("description") {
				s.Description = c.f.String("description")
			}
			if c.f.Has("template") {
				text, err := identity.ReadTemplate(c.f.String("template"), c.Now)
				if err != nil {
					return err
				}
				s.Template = text
			}
			if len(s.Description) > maxName || len(s.Template) > 64<<10 {
				return errkind.Errorf(errkind.Invalid, "description, template: %d bytes and 64 kB at most", maxName)
			}
			return c.f.Err()
		},
		show: func(s *scope) map[string]any {
			return map[string]any{"template": s.Template, "description": s.Description}
		},
		drop: func(c *call, name string, _ *scope) error {
			return inUse(c, providerKind(), "provider", name, func(p *provider) []string { return p.Scopes })
		}}
}

// inUse refuses to drop what others name.
func inUse[T any](c *call, by *kind[T], what, name string, of func(*T) []string) error {
	return by.each(c, func(other string, v *T) error {
		if slices.Contains(of(v), name) {
			return errkind.Errorf(errkind.Invalid, "unable to delete %q: the %s %q refers to it", name, what, other)
		}
		return nil
	})
}

func assignmentKind() *kind[assignment] {
	return &kind[assignment]{prefix: assignmentKey, fixed: allowAll,
		always: func() *assignment { return &assignment{Entities: []string{"*"}, Groups: []string{"*"}} },
		begin:  func() *assignment { return &assignment{} },
		read: func(c *call, name string, a *assignment) error {
			if name == allowAll {
				return errkind.Errorf(errkind.Invalid, "the assignment %q can't be changed", allowAll)
			}
			if err := names(c.f, "entity_ids", &a.Entities); err != nil {
				return err
			}
			return names(c.f, "group_ids", &a.Groups)
		},
		show: func(a *assignment) map[string]any {
			return map[string]any{"entity_ids": auth.List(a.Entities), "group_ids": auth.List(a.Groups)}
		},
		drop: func(c *call, name string, _ *assignment) error {
			return inUse(c, clientKind(), "client", name, func(v *client) []string { return v.Assignments })
		}}
}

// has reports whether an assignment is somebody's.
func (a *assignment) has(p *identity.Persona) bool {
	if allows(a.Entities, p.Entity.ID) {
		return true
	}
	return slices.ContainsFunc(slices.Concat(p.Direct, p.Inherited),
		func(g *identity.Group) bool { return allows(a.Groups, g.ID) })
}

func clientKind() *kind[client] {
	return &kind[client]{prefix: clientKey,
		begin: func() *client {
			return &client{Type: confidential, Key: defaultName, IDTTL: 24 * time.Hour, AccessTTL: 24 * time.Hour}
		},
		read: func(c *call, name string, v *client) error {
			fresh := v.ID == ""
			if err := v.fill(c, fresh); err != nil {
				return err
			}
			key, made, err := c.book.EnsureSigner(c, v.Key, c.Now)
			if err != nil {
				return err
			}
			c.ops = append(c.ops, made...)
			if v.IDTTL > key.Verification() {
				return errkind.Errorf(errkind.Invalid, "field \"id_token_ttl\": must not be longer than the verification_ttl of "+
					"the key %q, %v", v.Key, key.Verification())
			}
			for _, a := range v.Assignments {
				if found, err := assignmentKind().find(c, &c.View, a); err != nil || found == nil {
					return orMissing(err, "assignments", "assignment", a)
				}
			}
			if fresh {
				v.ID = rand.Text()
				if v.Type == confidential {
					v.Secret = "hvo_secret_" + rand.Text() + rand.Text()
				}
				c.ops = append(c.ops, storage.Put(clientIDKey+v.ID, []byte(name)))
			}
			return nil
		},
		show: func(v *client) map[string]any {
			shown := map[string]any{"client_id": v.ID, "client_type": v.Type, "key": v.Key,
				"redirect_uris": auth.List(v.Redirects), "assignments": auth.List(v.Assignments),
				"id_token_ttl": auth.Seconds(v.IDTTL), "access_token_ttl": auth.Seconds(v.AccessTTL)}
			if v.Secret != "" {
				shown["client_secret"] = v.Secret
			}
			return shown
		},
		drop: func(c *call, _ string, v *client) error {
			c.ops = append(c.ops, storage.Delete(clientIDKey+v.ID))
			return nil
		}}
}

// runs reports whether a browser would run what follows the scheme, rather than go there.
func runs(scheme string) bool {
	return slices.Contains([]string{"javascript", "data", "vbscript", "blob"}, scheme)
}

// fill reads the fields that are given.
func (v *client) fill(c *call, fresh bool) error {
	for field, at := range map[string]*string{"client_type": &v.Type, "key": &v.Key} {
		if !c.f.Has(field) {
			continue
		}
		if given := c.f.String(field); !fresh && given != *at {
			return errkind.Errorf(errkind.Invalid, "field %q: a client keeps the one that it was made with", field)
		}
		*at = c.f.String(field)
	}
	if err := names(c.f, "redirect_uris", &v.Redirects); err != nil {
		return err
	}
	if err := names(c.f, "assignments", &v.Assignments); err != nil {
		return err
	}
	v.IDTTL, v.AccessTTL = c.f.Duration("id_token_ttl", v.IDTTL), c.f.Duration("access_token_ttl", v.AccessTTL)
	if err := c.f.Err(); err != nil {
		return err
	}
	switch {
	case v.Type != confidential && v.Type != public:
		return errkind.Errorf(errkind.Invalid, "field \"client_type\": %.32q must be confidential or public", v.Type)
	case v.Key == "":
		return errkind.New(errkind.Invalid, "field \"key\": is missing")
	case v.IDTTL < time.Second || v.AccessTTL < time.Second:
		return errkind.New(errkind.Invalid, "id_token_ttl, access_token_ttl: must be a second at least")
	}
	for _, to := range v.Redirects {
		if u, err := url.Parse(to); err != nil || u.Scheme == "" || u.Fragment != "" || runs(u.Scheme) {
			return errkind.Errorf(errkind.Invalid, "field \"redirect_uris\": %.128q must be a URL with a scheme and without a "+
				"fragment", to)
		}
	}
	return nil
}
