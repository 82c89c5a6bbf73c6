package node

import (
	"corbel.dev/corbel/api/consulapi"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/opaque"
	"corbel.dev/corbel/node/config"
)

// anonymousToken is what the contract calls the token of requests without one.
const anonymousToken = "anonymous"

// anonymousAccessor names it in refusals.
const anonymousAccessor = "00000000-0000-0000-0000-000000000002"

// authorizer makes the access rules from the configuration: with ACLs on, the
// management token may do everything and a request without a token what
// acl.default_policy says. In dev, loopback only, everybody may do everything.
func authorizer(acl *config.ACL, dev bool) consulapi.Authorizer {
	if dev || !acl.Enabled {
		return consulapi.AllowAll{}
	}
	return &tokens{management: opaque.New(acl.InitialManagement), allow: acl.DefaultPolicy == "allow"}
}

func defaultPolicy(cfg *config.Config) string {
	if cfg.Dev || !cfg.ACL.Enabled || cfg.ACL.DefaultPolicy == "allow" {
		return "allow"
	}
	return "deny"
}

type tokens struct {
	management opaque.Secret
	allow      bool
}

// Grant implements consulapi.Authorizer.
func (t *tokens) Grant(token string) (consulapi.Grant, error) {
	switch {
	case token == "" || token == anonymousToken:
		if t.allow {
			return consulapi.AllowAll{}, nil
		}
		return nobody{}, nil
	case !t.management.Empty() && t.management.Equal(token):
		return consulapi.AllowAll{}, nil
	}
	return nil, errkind.New(errkind.Denied, "ACL not found")
}

// nobody may do nothing.
type nobody struct{}

// Allowed implements consulapi.Grant.
func (nobody) Allowed(r consulapi.Resource, name string, l consulapi.Level) error {
	return errkind.Errorf(errkind.Denied, "Permission denied: token with AccessorID '%s' lacks permission '%s:%s' on %q",
		anonymousAccessor, r, l, name)
}

// Class implements consulapi.Grant.
func (nobody) Class() string { return "nobody" }
