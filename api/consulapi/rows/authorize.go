package rows

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/standing"
)

// Authorizer turns a token into rights (catalog/grants).
type Authorizer interface {
	// Grant fails with kind Denied for an unknown token ("ACL not found"); "" is the anonymous one.
	// As long as nothing about the token changed, it returns the same pointer.
	Grant(ctx context.Context, token string) (*acl.Grant, error)
	// GrantWithin is Grant with what is known since age at most.
	GrantWithin(ctx context.Context, token string, age time.Duration) (*acl.Grant, error)
}

// AllowAll is the Authorizer while ACLs are off.
type AllowAll struct{}

// Grant implements Authorizer.
func (AllowAll) Grant(context.Context, string) (*acl.Grant, error) { return acl.Unlimited, nil }

// GrantWithin implements Authorizer.
func (AllowAll) GrantWithin(context.Context, string, time.Duration) (*acl.Grant, error) {
	return acl.Unlimited, nil
}

// OwnToken finds the token that the request brings; the first place that has one wins.
func OwnToken(r *http.Request, q httpx.Query) string {
	if q != "" {
		if v, _ := q.Get("token"); v != "" {
			return v
		}
	}
	if v := r.Header["X-Consul-Token"]; len(v) > 0 && v[0] != "" {
		return v[0]
	}
	if v := r.Header["Authorization"]; len(v) > 0 {
		if scheme, rest, ok := strings.Cut(v[0], " "); ok && strings.EqualFold(scheme, "bearer") {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// Secret is the token that a request brings; "" for none.
func Secret(r *http.Request) string { return OwnToken(r, httpx.Query(r.URL.RawQuery)) }

// SecretOr is the token that a request is judged by: its own, or else the default of this process. A request that came
// from another process has that one's default, or none: see Forwarded.
func SecretOr(r *http.Request, standard func() string) string {
	if t := Secret(r); t != "" || r.Context().Value(forwardedKey{}) != nil {
		return t
	}
	return standard()
}

// Forwarded marks requests that came from another process: it has put its own default token into them, and
// where it had none they have none here either, whatever this process's default is.
func Forwarded(ctx context.Context, j Journey) context.Context {
	return context.WithValue(ctx, forwardedKey{}, j)
}

type forwardedKey struct{}

// Journey is how far a request has come: it keeps requests from going in circles.
type Journey struct {
	Hops    int
	Crossed bool // it came from another datacenter
}

// JourneyOf is the journey of a request that came from another process.
func JourneyOf(ctx context.Context) Journey {
	j, _ := ctx.Value(forwardedKey{}).(Journey)
	return j
}

// Judged marks requests that another server judged: it knows the caller, whose token stays with it, and this process
// answers whatever the request asks. It is for what came over a connection that only servers have.
func Judged(ctx context.Context) context.Context {
	return context.WithValue(Forwarded(ctx, Journey{}), judgedKey{}, true)
}

type judgedKey struct{}

// IsJudged tells whether a server has judged the request already.
func IsJudged(ctx context.Context) bool { return ctx.Value(judgedKey{}) != nil }

// Token is the secret that the request is judged by: its own, or else this agent's default.
func (q *Request) Token() string {
	if t := OwnToken(q.R, q.Query); t != "" {
		return t
	}
	if q.DefaultToken != nil && q.R.Context().Value(forwardedKey{}) == nil {
		return q.DefaultToken()
	}
	return ""
}

// carryToken puts this agent's default token into a request without one, before another process answers
// it: that one has a default of its own.
func carryToken(q *Request) {
	if OwnToken(q.R, q.Query) != "" {
		return
	}
	if t := q.Token(); t != "" {
		q.R.Header.Set("X-Consul-Token", t)
	}
}

// Authenticate resolves the request's token.
func (q *Request) Authenticate() error {
	if q.Open || q.Row.anyone {
		return nil
	}
	g, err := resolve(q)
	if err != nil {
		return err
	}
	q.Grant = g
	return nil
}

// Author is who asks, with the rights of g, for a change at a time; g is nil while access control is off.
func Author(g *acl.Grant, at time.Time) catalog.Author {
	by := catalog.Author{At: at.Unix()}
	if g != nil && g.Accessor != acl.AnonymousAccessor {
		by.Accessor, _ = uuid.Parse(g.Accessor) // of another form there is none
	}
	return by
}

// resolve is what the request's token allows now.
func resolve(q *Request) (*acl.Grant, error) {
	t := q.Token()
	if t == "" && IsJudged(q.R.Context()) {
		return acl.Unlimited, nil
	}
	return q.Authorizer.Grant(q.R.Context(), t)
}

// caller is who asks, and what it may. Its methods are those of a request.
type caller struct {
	free   bool // every request has every right
	Grant  *acl.Grant
	rights []right // what the handler asked for so far
	Hidden bool    // something was left out of the answer for want of rights
}

// right is one right that a handler asked for.
type right struct {
	res   acl.Resource
	name  string
	level acl.Level
	below bool
}

func (n *right) check(g *acl.Grant) error {
	if n.below {
		return g.CheckBelow(n.res, n.name, n.level)
	}
	return g.Check(n.res, n.name, n.level)
}

// need asks for a right and remembers it for when a parked request wakes.
func (c *caller) need(n right) error {
	if c.free {
		return nil
	}
	c.rights = append(c.rights, n)
	return n.check(c.Grant)
}

// Allow asks for a right; rows call it before they touch anything.
func (c *caller) Allow(res acl.Resource, name string, l acl.Level) error {
	return c.need(right{res: res, name: name, level: l})
}

// AllowBelow asks for a right on all names that begin with prefix.
func (c *caller) AllowBelow(res acl.Resource, prefix string, l acl.Level) error {
	return c.need(right{res: res, name: prefix, level: l, below: true})
}

// AuthorizeAgain is for a request that was parked: its token may be gone, or allow less.
func (q *Request) AuthorizeAgain() error {
	if q.Open {
		return nil
	}
	g, err := resolve(q)
	if err != nil {
		return err
	}
	if g == q.Grant {
		return nil
	}
	q.Grant = g
	for i := range q.rights {
		if err := q.rights[i].check(g); err != nil {
			return err
		}
	}
	return nil
}

// Standing is the right of a stream: its token is judged again by the clock, on an agent by a server. While that does
// not answer acl.down_policy decides, as for requests.
func (q *Request) Standing() *standing.Standing {
	ctx, token, rights := q.R.Context(), q.Token(), slices.Clone(q.rights)
	return standing.New(q.Clock, func() error {
		if q.Open || token == "" && IsJudged(ctx) {
			return nil
		}
		g, err := q.Authorizer.GrantWithin(ctx, token, freshGrant)
		if errkind.Is(err, errkind.Denied) {
			return err
		}
		for i := range rights {
			if err == nil {
				err = rights[i].check(g)
			}
		}
		if errkind.Is(err, errkind.Denied) {
			return err
		}
		return nil // nothing is known of the token now
	})
}

// freshGrant is how old what a server said of a stream's token may be.
const freshGrant = 2 * time.Second

// Sees tells whether an object belongs into this caller's answer.
func (c *caller) Sees(res acl.Resource, name string) bool {
	if c.free || c.Grant.Allow(res, name, acl.Read) {
		return true
	}
	c.Hidden = true
	return false
}

// TellFiltered adds the header of an answer from which something was removed, for callers with a token.
func (q *Request) TellFiltered() {
	if q.Hidden && q.Grant.Accessor != acl.AnonymousAccessor {
		q.W.Header()["X-Consul-Results-Filtered-By-Acls"] = ValueTrue
	}
}

// May tells whether the caller has a right.
func (c *caller) May(res acl.Resource, name string, l acl.Level) bool {
	return c.free || c.Grant.Check(res, name, l) == nil
}
