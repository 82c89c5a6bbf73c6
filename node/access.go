package node

import (
	"cmp"
	"context"
	"hash/fnv"
	"net/http"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
)

// access is what decides who may do what. It is filled in before anything runs.
type access struct {
	tokens   rows.Authorizer
	standard func() string // the token of requests that bring none
}

// Grant resolves a token.
func (a *access) Grant(ctx context.Context, token string) (*acl.Grant, error) {
	return a.tokens.Grant(ctx, token)
}

// GrantWithin is Grant with what is known since age at most.
func (a *access) GrantWithin(ctx context.Context, token string, age time.Duration) (*acl.Grant, error) {
	return a.tokens.GrantWithin(ctx, token, age)
}

// Secret is the token that a request is judged by: its own, or else this process's default.
func (a *access) Secret(r *http.Request) string { return rows.SecretOr(r, a.standard) }

// Allows tells whether a request's token has a right. What a server asks on its own behalf has been judged there.
func (a *access) Allows(r *http.Request, right plane.Right) bool {
	if _, open := a.tokens.(rows.AllowAll); open || rows.IsJudged(r.Context()) {
		return true
	}
	grant, err := a.tokens.Grant(r.Context(), a.Secret(r))
	return err == nil && grant.Allow(right.Resource, right.Name, right.Level)
}

// dnsAccess is what a token may read over DNS. nil allows everything.
func (p *localAgent) dnsAccess() func(token string) dnsapi.Access {
	if _, open := p.access.tokens.(rows.AllowAll); open {
		return nil
	}
	var last atomic.Pointer[dnsRights]
	return func(token string) dnsapi.Access {
		g, err := p.access.tokens.Grant(context.Background(), token) // an agent's Grant bounds its own waiting
		if err != nil {
			g = nobody
		}
		r := last.Load()
		if r == nil || r.grant != g {
			r = newDNSRights(g)
			last.Store(r)
		}
		return r.access
	}
}

// dnsToken is the token of this process's DNS clients: that for DNS, or else the default one.
func (p *localAgent) dnsToken() string {
	return cmp.Or(p.Tokens.Get(base.TokenDNS), p.Tokens.Get(base.TokenDefault))
}

// nobody may see nothing.
var nobody = &acl.Grant{Authorizer: acl.Compile(acl.Deny)}

// dnsRights is a grant as DNS looks at it.
type dnsRights struct {
	grant  *acl.Grant
	access dnsapi.Access
}

func newDNSRights(g *acl.Grant) *dnsRights {
	may := func(r acl.Resource) func(string) bool {
		return func(name string) bool { return g.Allow(r, name, acl.Read) }
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(g.Class())) // answers differ only between classes
	return &dnsRights{g, dnsapi.Access{Version: h.Sum64(), Node: may(acl.Node), Service: may(acl.Service)}}
}
