package role

import (
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/ownname"
)

// Expanded is the role with its templates filled in for who asks.
func (r *Role) Expanded(who secrets.Identity) *Role {
	if !r.DomainsTemplate && !r.URIsTemplate {
		return r
	}
	own := *r
	if r.DomainsTemplate {
		own.Domains = ownname.All(r.Domains, who)
	}
	if r.URIsTemplate {
		own.URIs = ownname.All(r.URIs, who)
	}
	return &own
}
