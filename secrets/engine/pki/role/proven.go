package role

import (
	"time"

	"corbel.dev/corbel/secrets/engine/pki/forms"
)

// Proven is the role for names that a client proved (ACME): what the request names is what the certificate names, it
// is for servers alone unless the role's own usages are wanted, and it has no lease. A nil role is any name and key.
func (r *Role) Proven(usages bool, longest time.Duration) (*Role, error) {
	p := New()
	if r == nil {
		p.AnyName, p.KeyType, usages = true, "any", false
	} else {
		*p = *r
	}
	if p.NoStore {
		return nil, forms.Refused("the role has no_store, and ACME needs its certificates")
	}
	if !usages {
		p.Server, p.Client, p.CodeSigning, p.Email, p.ExtKeyUsage, p.ExtKeyUsageOIDs = true, false, false, false, nil, nil
	}
	p.CSRName, p.CSRSANs, p.RequireCN, p.Lease = true, true, false, false
	if p.MaxTTL == 0 || p.MaxTTL > longest {
		p.MaxTTL = longest
	}
	p.TTL = min(p.TTL, p.MaxTTL)
	return p, p.Complete()
}
