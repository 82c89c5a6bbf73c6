package consulapi

import (
	"net/http"
	"strings"

	"corbel.dev/corbel/api/httpx"
)

// Resource is what a right is about.
type Resource string

// The resources of the contract's rules.
const (
	ResAgent    Resource = "agent"
	ResKey      Resource = "key"
	ResNode     Resource = "node"
	ResService  Resource = "service"
	ResSession  Resource = "session"
	ResOperator Resource = "operator"
	ResACL      Resource = "acl"
	resNone     Resource = "" // the row is open to all
)

// Level is how much of a right is needed.
type Level uint8

// The levels, least first.
const (
	Read Level = iota + 1
	List
	Write
)

// String returns the level as rules spell it.
func (l Level) String() string {
	switch l {
	case Read:
		return "read"
	case List:
		return "list"
	}
	return "write"
}

// Grant is what one token may do.
type Grant interface {
	// Allowed is nil or an error of kind Denied with the contract's text.
	Allowed(r Resource, name string, l Level) error
	// Class names grants that see the same answers, so that those can share an
	// encoded body. The class of a grant that may see all is "".
	Class() string
}

// Authorizer turns a token into rights.
type Authorizer interface {
	// Grant fails with kind Denied for an unknown token ("ACL not found").
	Grant(token string) (Grant, error)
}

// AllowAll is the Authorizer while ACLs are off.
type AllowAll struct{}

// Grant implements Authorizer.
func (AllowAll) Grant(string) (Grant, error) { return AllowAll{}, nil }

// Allowed implements Grant.
func (AllowAll) Allowed(Resource, string, Level) error { return nil }

// Class implements Grant.
func (AllowAll) Class() string { return "" }

// token finds the request's token; the first place that has one wins.
func token(r *http.Request, q httpx.Query, fallback func() string) string {
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
	if fallback != nil {
		return fallback()
	}
	return ""
}
