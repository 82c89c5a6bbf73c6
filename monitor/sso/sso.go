// Package sso logs people in to the monitor at the OpenID providers that authproviders name (authentication/v2 oidc).
//
// A login is begun (Begin) for a browser, which goes to the provider and comes back to this server at
// monitor.CallbackPath; from there it is sent on (Onward) to where the login was begun: the page of the web UI at the
// same address, or a port of the person's own machine. Whoever began it ends it (End) with the nonce that they alone
// know, and gets a session: what the claims say is its name and its groups, and nothing is stored of the person.
//
// Logins that wait are in memory, bounded (kit/oidc): one ends at the server where it was begun. Safe for concurrent
// use; nothing is started.
package sso

import (
	"context"
	"crypto/subtle"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/oidc"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/logins"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
)

// Page is the callback of logins of the web UI: the page that ends them, at the address of the redirect_uri.
const Page = "/ui/oidc/callback"

// own are the callbacks of programs on the person's machine, at any port.
var own = []string{"http://localhost/oidc/callback", "http://127.0.0.1/oidc/callback", "http://[::1]/oidc/callback"}

// bounds of what callers have kept with a login that waits, and of what claims may say
const (
	maxCallback  = 2048
	maxNonce     = 256
	maxName      = 256
	maxGroups    = 1000
	maxGroupText = 16 << 10 // of all groups: they travel in each request
)

// algorithms are those that ID tokens may be signed with: the two that all providers have.
var algorithms = []jwks.Algorithm{"RS256", "ES256"}

// Config of an SSO.
type Config struct {
	Resources *resources.Resources
	Logins    *logins.Logins
	Now       func() time.Time
}

// SSO is made with New.
type SSO struct {
	cfg   Config
	keys  *jwks.Keys
	begun oidc.Pendings
}

// New returns an SSO.
func New(cfg Config) *SSO { return &SSO{cfg: cfg, keys: jwks.New(cfg.Now)} }

// Names are those of the providers, in order.
func (s *SSO) Names() (out []string) {
	s.cfg.Resources.View().List("authproviders", "", "", "", func(i *objects.Item) bool {
		if i.Object().(*monitor.AuthProvider).Directory == "" {
			out = append(out, i.Name)
		}
		return true
	})
	return out
}

// provider is the one of a name, or the only one there is.
func (s *SSO) provider(name string) (*monitor.AuthProvider, error) {
	if name == "" {
		switch names := s.Names(); len(names) {
		case 0:
			return nil, errkind.New(errkind.NotFound, "there is no authentication provider of type oidc")
		case 1:
			name = names[0]
		default:
			return nil, errkind.Errorf(errkind.Invalid, "provider: name one of %s", strings.Join(names, ", "))
		}
	}
	if item := s.cfg.Resources.View().Get("authproviders", "", name); item != nil {
		if p := item.Object().(*monitor.AuthProvider); p.Directory == "" {
			return p, nil
		}
	}
	return nil, errkind.Errorf(errkind.NotFound, "provider: there is no authentication provider %q of type oidc", name)
}

func clientOf(p *monitor.AuthProvider) *oidc.Client {
	return &oidc.Client{ID: p.ClientID, Secret: p.ClientSecret, CA: p.CACert}
}

func sourceOf(p *monitor.AuthProvider) jwks.Source {
	return jwks.Source{Discovery: p.Server, DiscoveryCA: p.CACert}
}

// Visit is a login that is begun.
type Visit struct {
	Provider string // "" is the only one
	Callback string // Page, or /oidc/callback at a port of the person's own machine
	Nonce    string // known to whoever began it alone
	Origin   string // of the web UI's page, such as https://corbel.example:8080; "" is no page
	From     netip.Addr
}

// Begin gives the address that the browser goes to, and the state that it comes back with. Kinds of errors: Invalid,
// NotFound; Unavailable, the provider does not answer.
func (s *SSO) Begin(ctx context.Context, v *Visit) (address, state string, err error) {
	p, err := s.provider(v.Provider)
	if err != nil {
		return "", "", err
	}
	switch {
	case len(v.Callback) > maxCallback:
		return "", "", errkind.Errorf(errkind.Invalid, "callback has more than %d bytes", maxCallback)
	case v.Nonce == "" || len(v.Nonce) > maxNonce:
		return "", "", errkind.Errorf(errkind.Invalid, "client_nonce must have from 1 to %d bytes", maxNonce)
	case v.Callback != Page && !oidc.Allows(own, v.Callback):
		return "", "", errkind.Errorf(errkind.Invalid, "callback %q is not %s, at any port", v.Callback, own[0])
	case v.Callback == Page && !sameHost(v.Origin, p.RedirectURI):
		// The browser's cookie of the login is the host's that the page was opened at.
		return "", "", errkind.Errorf(errkind.Invalid, "the provider %q sends browsers back to %s (redirect_uri): open "+
			"the page at that host, not at %s", p.Name, p.RedirectURI, v.Origin)
	}
	ends, _, err := s.keys.Endpoints(ctx, sourceOf(p))
	if err != nil {
		return "", "", err
	}
	address, err = s.begun.Begin(clientOf(p), ends, &oidc.Pending{For: p.Name, Redirect: p.RedirectURI, Client: v.Nonce,
		Meta: map[string]string{"callback": v.Callback}, At: s.cfg.Now(), From: v.From}, oidc.Wish{Scopes: p.Scopes})
	if err != nil {
		return "", "", err
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", "", errkind.E(errkind.Unavailable, "authorization_endpoint", err)
	}
	return address, u.Query().Get("state"), nil
}

func sameHost(a, b string) bool {
	x, err := url.Parse(a)
	y, err2 := url.Parse(b)
	return err == nil && err2 == nil && x.Hostname() != "" && x.Hostname() == y.Hostname()
}

// Onward is where a browser goes on to that the provider has sent back with a query: to who began its login. ok is
// false where nobody did, or at another server.
func (s *SSO) Onward(q url.Values) (to string, ok bool) {
	p := s.begun.Look(q.Get("state"), s.cfg.Now())
	if p == nil {
		return "", false
	}
	on := url.Values{"state": {q.Get("state")}}
	for _, name := range []string{"code", "error"} {
		if q.Has(name) {
			on.Set(name, q.Get(name))
		}
	}
	return p.Meta["callback"] + "?" + on.Encode(), true
}

// End trades what the browser came back with for a session. issuer is as for Logins.Issue. Kinds of errors: Denied;
// Unavailable, the provider does not answer.
func (s *SSO) End(ctx context.Context, state, code, nonce, issuer string) (t logins.Tokens, who monitor.Caller,
	err error) {
	w := s.begun.Take(state, s.cfg.Now())
	switch {
	case w == nil:
		return t, who, denied("the login's state is not known at this server, or has expired: begin it again")
	case subtle.ConstantTimeCompare([]byte(w.Client), []byte(nonce)) != 1:
		return t, who, denied("client_nonce is not the one that this login was begun with")
	case code == "":
		return t, who, denied("the provider gave no code")
	}
	p, err := s.provider(w.For)
	if err != nil {
		return t, who, errkind.E(errkind.Denied, "", err)
	}
	said, err := s.said(ctx, p, w, code)
	if err != nil {
		return t, who, err
	}
	if who, err = Person(p, said.All); err != nil {
		return t, who, err
	}
	t, err = s.cfg.Logins.IssueNamed(ctx, who, p, issuer)
	return t, who, err
}

// said is what the provider says of the person.
func (s *SSO) said(ctx context.Context, p *monitor.AuthProvider, w *oidc.Pending, code string) (*jwks.Claims, error) {
	client, from := clientOf(p), sourceOf(p)
	ends, issuer, err := s.keys.Endpoints(ctx, from)
	if err != nil {
		return nil, err
	}
	got, err := client.Exchange(ctx, ends, w, code)
	if err != nil {
		return nil, denied("the provider exchanged no code: %s", errkind.Text(err))
	}
	token, err := jwks.Parse(got.ID, algorithms)
	if err != nil {
		return nil, err
	}
	said, _, err := s.keys.Verify(ctx, from, token)
	if err != nil {
		return nil, err
	}
	if err := w.Vouched(said, oidc.Bounds{Client: p.ClientID, Issuer: issuer}, s.cfg.Now()); err != nil {
		return nil, err
	}
	_, err = client.More(ctx, ends, got.Access, said)
	return said, err
}

// Person is whom a provider's claims name. Errors are of kind Denied and name the field of the provider.
func Person(p *monitor.AuthProvider, claims map[string]any) (who monitor.Caller, err error) {
	v, _ := jwks.LookUp(claims, p.UsernameClaim)
	name, ok := jwks.Plain(v)
	verified, _ := jwks.Plain(claims["email_verified"]) // some say it as a text
	switch {
	case !ok || name == "":
		return who, denied("username_claim: the provider says no %q of this person", p.UsernameClaim)
	case p.UsernameClaim == "email" && verified == "false":
		return who, denied("username_claim: the provider has not verified this person's email")
	}
	if who.User = p.UsernamePrefix + name; !fits(who.User) {
		return who, denied("username_claim: the name has more than %d bytes, or characters that no name has", maxName)
	}
	if p.GroupsClaim == "" {
		return who, nil
	}
	v, _ = jwks.LookUp(claims, p.GroupsClaim)
	list, ok := v.([]any)
	if !ok && v != nil {
		list = []any{v}
	}
	total := 0
	for _, one := range list {
		group, ok := jwks.Plain(one)
		if group = p.GroupsPrefix + group; !ok || !fits(group) {
			return who, denied("groups_claim: %q holds something that is no name of a group", p.GroupsClaim)
		}
		total += len(group)
		who.Groups = append(who.Groups, group)
	}
	if len(who.Groups) > maxGroups || total > maxGroupText {
		return who, denied("groups_claim: the provider says %d groups of %d bytes, the most is %d of %d", len(who.Groups),
			total, maxGroups, maxGroupText)
	}
	slices.Sort(who.Groups)
	who.Groups = slices.Compact(who.Groups)
	return who, nil
}

// fits tells whether a name is one that logs and bindings can have.
func fits(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == '�'
	})
}

func denied(format string, args ...any) error { return errkind.Errorf(errkind.Denied, format, args...) }
