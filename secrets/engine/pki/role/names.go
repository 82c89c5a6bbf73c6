package role

import (
	"net/netip"
	"slices"
	"strings"

	"corbel.dev/corbel/secrets/engine/pki/forms"
)

// allows reports whether the role lets a DNS name or an e-mail address into a certificate.
func (r *Role) allows(name string) bool {
	host, mail := name, false
	if strings.Contains(name, "@") {
		if host, mail = forms.Email(name); !mail {
			return false
		}
	}
	if r.Hostnames && !forms.Hostname(host) {
		return false
	}
	wild := strings.Contains(host, "*")
	if wild && (mail || !r.Wildcards || !forms.Hostname(host)) {
		return false
	}
	if r.AnyName {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	bare := host
	if wild { // what the wildcard stands for lies below this
		_, bare, _ = strings.Cut(host, ".")
	}
	if r.AllowLocalhost && !mail && (bare == "localhost" || bare == "localdomain") && (!wild || r.Subdomains) {
		return true
	}
	if r.AllowLocalhost && r.Subdomains && !mail && (strings.HasSuffix(bare, ".localhost") ||
		strings.HasSuffix(bare, ".localdomain")) {
		return true
	}
	for _, domain := range r.Domains {
		if strings.EqualFold(domain, name) && (r.Bare || mail) && !wild {
			return true
		}
		domain = strings.ToLower(strings.TrimSuffix(domain, "."))
		switch {
		case domain == "":
		case r.Globs && strings.Contains(domain, "*") && forms.Glob(domain, host):
			return true
		case r.Bare && host == domain:
			return true
		case r.Subdomains && strings.HasSuffix(bare, "."+domain):
			return true
		case r.Subdomains && wild && bare == domain:
			return true
		}
	}
	return false
}

// CheckNames refuses what the role does not let into a certificate.
func (r *Role) CheckNames(n *forms.Names) error {
	if n.Subject.CommonName == "" && r.RequireCN {
		return forms.Refused("the common_name field is required, or must be provided in a CSR with \"use_csr_common_name\" " +
			"set to true, unless \"require_cn\" is set to false")
	}
	if cn := n.Subject.CommonName; cn != "" && !slices.Contains(r.Validations, "disabled") {
		isMail := strings.Contains(cn, "@")
		if !r.allows(cn) || (isMail && !slices.Contains(r.Validations, "email")) ||
			(!isMail && !slices.Contains(r.Validations, "hostname")) {
			return forms.Refused("common name %s not allowed by this role", cn)
		}
	}
	for _, name := range n.DNS {
		if strings.Contains(name, "@") || !r.allows(name) {
			return forms.Refused("subject alternate name %s not allowed by this role", name)
		}
	}
	for _, name := range n.Emails {
		if !strings.Contains(name, "@") || !r.allows(name) {
			return forms.Refused("email address %s not allowed by this role", name)
		}
	}
	for _, ip := range n.IPs {
		if !r.IPs {
			return forms.Refused("IP Subject Alternative Names are not allowed in this role, but was provided: %s", ip)
		}
		addr, ok := netip.AddrFromSlice(ip)
		if len(r.blocks) > 0 && (!ok || !slices.ContainsFunc(r.blocks,
			func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) })) {
			return forms.Refused("IP Subject Alternative Name %s is in none of allowed_ip_sans_cidr", ip)
		}
	}
	for _, uri := range n.URIs {
		if !slices.ContainsFunc(r.URIs, func(p string) bool { return forms.Glob(p, uri.String()) }) {
			return forms.Refused("URI Subject Alternative Name %s is not allowed in this role", uri)
		}
	}
	for _, o := range n.Others {
		if !slices.ContainsFunc(r.others, func(p forms.OtherName) bool {
			return (p.Type == "*" || p.Type == o.Type) && forms.Glob(p.Value, o.Value)
		}) {
			return forms.Refused("other SAN %s not allowed for OID %s by this role", o.Value, o.Type)
		}
	}
	if s := n.Subject.SerialNumber; s != "" && !slices.ContainsFunc(r.Serials, func(p string) bool {
		return forms.Glob(p,
			s)
	}) {
		return forms.Refused("serial_number %s not allowed by this role", s)
	}
	for _, id := range n.UserIDs {
		if !slices.ContainsFunc(r.UserIDs, func(p string) bool { return forms.Glob(p, id) }) {
			return forms.Refused("user_id %s is not allowed by this role", id)
		}
	}
	return nil
}
