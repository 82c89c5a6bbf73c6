// Package cloud logs in the workloads of Azure and Google Cloud by the tokens that their cloud signed for them
// (contract 3.7; methods of the types azure and gcp).
//
// A token is judged by what it says and by its issuer's keys alone: no API of a cloud is asked, so a mount needs no
// credentials there. What only an API could tell cannot be bound by a role, and a role that asks for it is refused: it
// would be no bound. Metadata and aliases hold nothing that was not signed.
package cloud

import (
	"context"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
)

// Engine is one mount of a method. Made with Azure or GCP.
type Engine struct {
	keys *jwks.Keys
	of   provider
}

// Azure makes the engine of a mount of the type azure.
func Azure(keys *jwks.Keys) *Engine { return &Engine{keys, azure{}} }

// GCP makes the engine of a mount of the type gcp.
func GCP(keys *jwks.Keys) *Engine { return &Engine{keys, gcp{}} }

// provider is a cloud.
type provider interface {
	// config answers the requests of the mount's configuration.
	config(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error)
	// roles answers the requests of roles.
	roles(ctx context.Context, view engine.View, r *secrets.Request, name string) (*secrets.Response, error)
	// login judges a token by a role.
	login(ctx context.Context, view engine.View, keys *jwks.Keys, l *attempt) (*secrets.Auth, error)
	// terms are those of a role of now.
	terms(ctx context.Context, view engine.View, role string) (engine.Terms, error)
}

// attempt is a login.
type attempt struct {
	*secrets.Request
	f     *secrets.Fields
	role  string
	token *jwks.Token
}

var (
	_ engine.Renewer = (*Engine)(nil)
	_ engine.Router  = (*Engine)(nil)
)

const (
	rolePrefix = "role/"
	configKey  = "config"
)

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{Open: []string{"login"}} }

// Serial implements engine.Engine.
func (*Engine) Serial(r *secrets.Request) string { return auth.Serial(r) }

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	return auth.Exists[map[string]any](ctx, view, rolePrefix, r.Rest)
}

// Routes implements engine.Router.
func (*Engine) Routes() []engine.Route {
	crud := []secrets.Operation{secrets.Read, secrets.Update, secrets.Delete}
	return []engine.Route{{Path: "config", Ops: crud}, {Path: "role", Ops: []secrets.Operation{secrets.List}},
		{Path: "role/{name}", Ops: crud}, {Path: "login", Ops: []secrets.Operation{secrets.Update}, Open: true}}
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	path := strings.TrimSuffix(r.Rest, "/")
	switch {
	case path == "roles" && r.Op == secrets.List: // Google's second name for it
		return e.of.roles(ctx, view, r, "")
	case path == "role" || strings.HasPrefix(path, rolePrefix):
		return e.of.roles(ctx, view, r, strings.TrimPrefix(strings.TrimPrefix(path, "role"), "/"))
	case path == configKey:
		return e.of.config(ctx, view, r)
	case path != "login":
		return nil, auth.ErrPath
	case r.Op != secrets.Create && r.Op != secrets.Update:
		return nil, auth.ErrUnsupported
	}
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	l := &attempt{Request: r, f: f, role: f.String("role")}
	text := f.String("jwt")
	if err := f.Err(); err != nil {
		return nil, err
	}
	for field, value := range map[string]string{"role": l.role, "jwt": text} {
		if value == "" {
			return nil, invalid("field %q: is required", field)
		}
	}
	if l.token, err = jwks.Parse(text, []jwks.Algorithm{"RS256"}); err == nil {
		var a *secrets.Auth
		if a, err = e.of.login(ctx, view, e.keys, l); err == nil {
			a.Login = []byte(l.role)
			return &secrets.Response{Auth: a}, nil
		}
	}
	if errkind.Is(err, errkind.Denied) && err != auth.ErrDenied { // what is wrong with a token is the caller's to mend
		return nil, invalid("%s", errkind.Text(err))
	}
	return nil, err
}

// Renewable implements engine.Renewer: a role that is gone renews nothing.
func (e *Engine) Renewable(ctx context.Context, view engine.View, _ *secrets.Request, l engine.Login) (engine.Terms,
	error) {
	return e.of.terms(ctx, view, string(l.Data))
}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

// found gives the role of a login; that there is none is an error.
func found[T any](ctx context.Context, view engine.View, name string) (*T, error) {
	r, err := auth.Find[T](ctx, view, rolePrefix, name)
	if err == nil && r == nil {
		err = invalid("invalid role name %q", name)
	}
	return r, err
}

// text is a claim that is a text; "" is anything else.
func text(all map[string]any, claim string) string {
	v, _ := jwks.LookUp(all, claim)
	s, _ := v.(string)
	return s
}

// within reports whether one of the values is one of a bound's, whatever the case; no bound is none.
func within(bound []string, values ...string) bool {
	return len(bound) == 0 || slices.ContainsFunc(values, func(v string) bool {
		return v != "" && slices.ContainsFunc(bound, func(b string) bool { return strings.EqualFold(b, v) })
	})
}

// lists reads lists that were given.
func lists(f *secrets.Fields, into map[string]*[]string) {
	for field, at := range into {
		if f.Has(field) {
			*at = f.Strings(field)
		}
	}
}

// none refuses bounds that no token can tell.
func none(f *secrets.Fields, why string, fields ...string) error {
	for _, field := range fields {
		if f.Has(field) && len(f.Strings(field)) > 0 {
			return invalid("field %q: cannot be bound: %s", field, why)
		}
	}
	return nil
}
