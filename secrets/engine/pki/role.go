package pki

import (
	"crypto/x509"
	"encoding/asn1"
	"net/netip"
	"slices"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// role says what its certificates may be. Stored as the API shows it, under "roles/<name>".
type role struct {
	Issuer string
	lifetimes
	hostRule
	sanRule
	usageRule
	keyRule
	CSRName, CSRSANs bool
	subjectRule
	keepRule
	Policies         []string
	BasicConstraints bool

	policies []asn1.ObjectIdentifier
}

// lifetimes say from when until when certificates hold.
type lifetimes struct {
	TTL, MaxTTL time.Duration
	NotBefore   time.Duration
	NotAfter    string
}

// hostRule says which hosts and mailboxes certificates may name.
type hostRule struct {
	AllowLocalhost  bool
	Domains         []string
	DomainsTemplate bool
	Bare            bool
	Subdomains      bool
	Globs           bool
	Wildcards       bool
	AnyName         bool
	Hostnames       bool
	RequireCN       bool
	Validations     []string
}

// sanRule says which other names they may have.
type sanRule struct {
	IPs          bool
	IPBlocks     []string // of OpenBao; none are no bound
	URIs         []string
	URIsTemplate bool
	Others       []string
	Serials      []string
	UserIDs      []string
	blocks       []netip.Prefix
	others       []forms.OtherName // Value may have globs; "*" as type is any
}

// usageRule says what they are good for.
type usageRule struct {
	Server, Client     bool
	CodeSigning, Email bool
	KeyUsage           []string
	ExtKeyUsage        []string
	ExtKeyUsageOIDs    []string

	usage   x509.KeyUsage // with the two below, what parse made of them
	ext     []x509.ExtKeyUsage
	extOIDs []asn1.ObjectIdentifier
}

// keyRule says which keys they may have, and how they are signed.
type keyRule struct {
	KeyType       string
	KeyBits       int
	SignatureBits int
	PSS           bool
}

// subjectRule is what all their subjects have.
type subjectRule struct {
	OU, Organization  []string
	Country, Locality []string
	Province, Street  []string
	PostalCode        []string
}

// keepRule says what is kept of them.
type keepRule struct {
	Lease, NoStore bool
	NoStoreMeta    bool
}

func newRole() *role {
	return &role{Issuer: "default", CSRName: true, CSRSANs: true,
		lifetimes: lifetimes{NotBefore: 30 * time.Second},
		hostRule: hostRule{AllowLocalhost: true, Wildcards: true, Hostnames: true, RequireCN: true,
			Validations: []string{"email", "hostname"}},
		sanRule: sanRule{IPs: true},
		usageRule: usageRule{Server: true, Client: true,
			KeyUsage: []string{"DigitalSignature", "KeyAgreement", "KeyEncipherment"}},
		keyRule: keyRule{KeyType: forms.KeyRSA}}
}

func (r *role) params() record.Params {
	return record.Params{{Name: "issuer_ref", At: &r.Issuer}, {Name: "ttl", At: &r.TTL}, {Name: "max_ttl", At: &r.MaxTTL},
		{Name: "not_before_duration", At: &r.NotBefore},
		{Name: "not_after", At: &r.NotAfter}, {Name: "allow_localhost", At: &r.AllowLocalhost},
		{Name: "allowed_domains", At: &r.Domains},
		{Name: "allowed_domains_template", At: &r.DomainsTemplate}, {Name: "allow_bare_domains", At: &r.Bare},
		{Name: "allow_subdomains", At: &r.Subdomains},
		{Name: "allow_glob_domains", At: &r.Globs}, {Name: "allow_wildcard_certificates", At: &r.Wildcards},
		{Name: "allow_any_name", At: &r.AnyName},
		{Name: "enforce_hostnames", At: &r.Hostnames}, {Name: "allow_ip_sans", At: &r.IPs},
		{Name: "allowed_ip_sans_cidr", At: &r.IPBlocks},
		{Name: "allowed_uri_sans", At: &r.URIs}, {Name: "allowed_uri_sans_template", At: &r.URIsTemplate},
		{Name: "allowed_other_sans", At: &r.Others},
		{Name: "allowed_serial_numbers", At: &r.Serials}, {Name: "allowed_user_ids", At: &r.UserIDs},
		{Name: "server_flag", At: &r.Server}, {Name: "client_flag", At: &r.Client},
		{Name: "code_signing_flag", At: &r.CodeSigning}, {Name: "email_protection_flag", At: &r.Email},
		{Name: "key_type", At: &r.KeyType}, {Name: "key_bits", At: &r.KeyBits},
		{Name: "signature_bits", At: &r.SignatureBits}, {Name: "use_pss", At: &r.PSS}, {Name: "key_usage", At: &r.KeyUsage},
		{Name: "ext_key_usage", At: &r.ExtKeyUsage},
		{Name: "ext_key_usage_oids", At: &r.ExtKeyUsageOIDs}, {Name: "use_csr_common_name", At: &r.CSRName},
		{Name: "use_csr_sans", At: &r.CSRSANs},
		{Name: "ou", At: &r.OU}, {Name: "organization", At: &r.Organization}, {Name: "country", At: &r.Country},
		{Name: "locality", At: &r.Locality},
		{Name: "province", At: &r.Province}, {Name: "street_address", At: &r.Street},
		{Name: "postal_code", At: &r.PostalCode}, {Name: "generate_lease", At: &r.Lease},
		{Name: "no_store", At: &r.NoStore}, {Name: "no_store_metadata", At: &r.NoStoreMeta},
		{Name: "require_cn", At: &r.RequireCN}, {Name: "cn_validations", At: &r.Validations},
		{Name: "policy_identifiers", At: &r.Policies}, {Name: "basic_constraints_valid_for_non_ca", At: &r.BasicConstraints}}
}

func parseRole(raw []byte) (*role, error) {
	r := newRole()
	if err := r.params().Decode(raw); err != nil {
		return nil, err
	}
	return r, r.parse()
}

// parse checks the parameters and makes of them what issuing needs.
func (r *role) parse() (err error) {
	if r.KeyType == "any" {
		if r.KeyBits != 0 && r.KeyBits != 2048 {
			return invalid("field \"key_bits\": must be 0 where key_type is any")
		}
		r.KeyBits = 0
	} else if r.KeyBits, err = forms.KeySize(r.KeyType, r.KeyBits); err != nil {
		return err
	}
	if !slices.Contains([]int{0, 256, 384, 512}, r.SignatureBits) {
		return invalid("invalid signature_bits: %d: must be 0, 256, 384 or 512", r.SignatureBits)
	}
	if r.MaxTTL > 0 && r.TTL > r.MaxTTL {
		return invalid("\"ttl\" value must be less than \"max_ttl\" value")
	}
	if r.NotAfter != "" {
		if _, err := time.Parse(time.RFC3339, r.NotAfter); err != nil {
			return invalid("field \"not_after\": must be a time like 2030-01-02T15:04:05Z")
		}
	}
	if r.usage, err = forms.ParseKeyUsage(r.KeyUsage); err != nil {
		return err
	}
	if r.usage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 {
		return invalid("field \"key_usage\": CertSign and CRLSign are for issuers alone")
	}
	if r.ext, err = forms.ParseExtKeyUsage(r.ExtKeyUsage); err != nil {
		return err
	}
	for _, f := range []struct {
		on    bool
		usage x509.ExtKeyUsage
	}{{r.Server, x509.ExtKeyUsageServerAuth}, {r.Client, x509.ExtKeyUsageClientAuth},
		{r.CodeSigning, x509.ExtKeyUsageCodeSigning}, {r.Email, x509.ExtKeyUsageEmailProtection}} {
		if f.on && !slices.Contains(r.ext, f.usage) {
			r.ext = append(r.ext, f.usage)
		}
	}
	if r.extOIDs, err = forms.ParseOIDs("ext_key_usage_oids", r.ExtKeyUsageOIDs); err != nil {
		return err
	}
	if r.policies, err = forms.ParseOIDs("policy_identifiers", r.Policies); err != nil {
		return err
	}
	r.blocks = nil
	for _, text := range r.IPBlocks {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return invalid("field \"allowed_ip_sans_cidr\": %q is no block of addresses like 10.0.0.0/8", text)
		}
		r.blocks = append(r.blocks, p.Masked())
	}
	r.others = nil
	for _, text := range r.Others {
		if text == "*" {
			r.others = append(r.others, forms.OtherName{Type: "*", Value: "*"})
			continue
		}
		o, err := forms.ParseOtherName(text)
		if err != nil {
			return invalid("field \"allowed_other_sans\": %s", err)
		}
		r.others = append(r.others, o)
	}
	return r.checkValidations()
}

func (r *role) checkValidations() error {
	for _, v := range r.Validations {
		switch {
		case v != "email" && v != "hostname" && v != "disabled":
			return invalid("field \"cn_validations\": %q is none of email, hostname, disabled", v)
		case v == "disabled" && len(r.Validations) > 1:
			return invalid("field \"cn_validations\": disabled stands alone")
		}
	}
	if len(r.Validations) == 0 {
		r.Validations = []string{"email", "hostname"}
	}
	return nil
}

func (c *call) role(name string) (*role, error) {
	r, ok, err := c.e.roles.Get(c, c.view, "roles/"+name, parseRole)
	if err == nil && !ok {
		err = invalid("unknown role: %s", name)
	}
	if err != nil {
		return nil, err
	}
	return r.expanded(c.r.Who), nil
}

// roles answers what is asked of roles.
type roles struct{ *call }

func (c roles) list() (*secrets.Response, error) {
	after, limit := c.f.String("after"), max(c.f.Int("limit", 0), 0)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	names, err := c.view.List(c, "roles/", after, limit)
	if err != nil {
		return nil, err
	}
	return keys(names)
}

func (c roles) read() (*secrets.Response, error) {
	r, ok, err := c.e.roles.Get(c, c.view, "roles/"+c.args[0], parseRole)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errNotFound
	}
	return show(r.params())
}

func (c roles) delete() (*secrets.Response, error) {
	return &secrets.Response{Ops: []secrets.Op{storage.Delete("roles/" + c.args[0])}}, nil
}

func (c roles) write() (*secrets.Response, error) {
	name := c.args[0]
	if err := storage.CheckKey("roles/" + name); err != nil {
		return nil, invalid("role name: %v", err)
	}
	r := newRole()
	if c.r.Op == secrets.Patch {
		raw, ok, err := c.view.Get(c, "roles/"+name)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, invalid("unknown role: %s", name)
		}
		if err := r.params().Decode(raw); err != nil {
			return nil, err
		}
	}
	if err := r.params().Read(c.f); err != nil {
		return nil, err
	}
	if err := r.parse(); err != nil {
		return nil, err
	}
	if _, longest := c.e.cfg.TTLs(); r.MaxTTL > longest || r.TTL > longest {
		c.warn = append(c.warn, "ttl or max_ttl is longer than the mount allows ("+longest.String()+"), which will cap it")
	}
	if _, err := c.issuerBy(r.Issuer); err != nil {
		c.warn = append(c.warn, "issuer_ref: "+err.Error())
	}
	raw, err := r.params().Encode()
	if err != nil {
		return nil, err
	}
	c.ops = append(c.ops, storage.Put("roles/"+name, raw))
	return show(r.params())
}
