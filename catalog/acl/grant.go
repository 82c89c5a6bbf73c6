package acl

import (
	"corbel.dev/corbel/kit/errkind"
)

// Grant is a resolved token: who asks, and what they may do. It never changes.
type Grant struct {
	*Authorizer
	// Accessor names the token in refusals and logs, where the secret may not be.
	Accessor string
	// Token is nil for rights that no stored token gives.
	Token *Token
}

// Unlimited is the grant of everybody while access control is off.
var Unlimited = &Grant{Authorizer: Compile(Write, []Rule{{Resource: ACL, Level: Write}})}

// Check is nil, or an error of kind Denied with the contract's text.
func (g *Grant) Check(r Resource, name string, l Level) error {
	if g.Allow(r, name, l) {
		return nil
	}
	return g.refuse(r, name, l)
}

// CheckBelow is Check for all names that begin with prefix.
func (g *Grant) CheckBelow(r Resource, prefix string, l Level) error {
	if g.AllowBelow(r, prefix, l) {
		return nil
	}
	return g.refuse(r, prefix, l)
}

// CheckAny is Check for at least one name.
func (g *Grant) CheckAny(r Resource, l Level) error {
	if g.AllowAny(r, l) {
		return nil
	}
	return g.refuse(r, "", l)
}

func (g *Grant) refuse(r Resource, name string, l Level) error {
	if name == "" {
		return errkind.Errorf(errkind.Denied, "Permission denied: token with AccessorID '%s' lacks permission '%v:%v'",
			g.Accessor, r, l)
	}
	return errkind.Errorf(errkind.Denied, "Permission denied: token with AccessorID '%s' lacks permission '%v:%v' on %q",
		g.Accessor, r, l, name)
}
