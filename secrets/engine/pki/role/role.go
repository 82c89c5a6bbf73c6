// Package role says what the certificates of a role may be: which names and keys they have, for how long they hold and
// what they are good for. It is pure: a Role is a value, which Complete makes ready for use.
package role

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net/netip"
	"slices"
	"time"

	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/record"
)

// Role says what its certificates may be. Stored as the API shows it, under "roles/<name>".
type Role struct {
	Issuer string
	Lifetimes
	HostRule
	SANRule
	UsageRule
	KeyRule
	CSRName, CSRSANs bool
	SubjectRule
	KeepRule
	Policies         []string
	BasicConstraints bool

	policies []asn1.ObjectIdentifier
}

// Lifetimes say from when until when certificates hold.
type Lifetimes struct {
	TTL, MaxTTL time.Duration
	NotBefore   time.Duration
	NotAfter    string
}

// HostRule says which hosts and mailboxes certificates may name.
type HostRule struct {
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

// SANRule says which other names they may have.
type SANRule struct {
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

// UsageRule says what they are good for.
type UsageRule struct {
	Server, Client     bool
	CodeSigning, Email bool
	KeyUsage           []string
	ExtKeyUsage        []string
	ExtKeyUsageOIDs    []string

	usage   x509.KeyUsage // with the two below, what parse made of them
	ext     []x509.ExtKeyUsage
	extOIDs []asn1.ObjectIdentifier
}

// KeyRule says which keys they may have, and how they are signed.
type KeyRule struct {
	KeyType       string
	KeyBits       int
	SignatureBits int
	PSS           bool
}

// SubjectRule is what all their subjects have.
type SubjectRule struct {
	OU, Organization  []string
	Country, Locality []string
	Province, Street  []string
	PostalCode        []string
}

// KeepRule says what is kept of them.
type KeepRule struct {
	Lease, NoStore bool
	NoStoreMeta    bool
}

// New is a role with the defaults of the contract.
func New() *Role {
	return &Role{Issuer: "default", CSRName: true, CSRSANs: true,
		Lifetimes: Lifetimes{NotBefore: 30 * time.Second},
		HostRule: HostRule{AllowLocalhost: true, Wildcards: true, Hostnames: true, RequireCN: true,
			Validations: []string{"email", "hostname"}},
		SANRule: SANRule{IPs: true},
		UsageRule: UsageRule{Server: true, Client: true,
			KeyUsage: []string{"DigitalSignature", "KeyAgreement", "KeyEncipherment"}},
		KeyRule: KeyRule{KeyType: forms.KeyRSA}}
}

// Params are the role's parameters by the API's names.
func (r *Role) Params() record.Params {
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

// Parse reads a role as it is stored.
func Parse(raw []byte) (*Role, error) {
	r := New()
	if err := r.Params().Decode(raw); err != nil {
		return nil, err
	}
	return r, r.Complete()
}

// Complete checks the parameters and makes of them what issuing needs.
func (r *Role) Complete() (err error) {
	if r.KeyType == "any" {
		if r.KeyBits != 0 && r.KeyBits != 2048 {
			return forms.Refused("field \"key_bits\": must be 0 where key_type is any")
		}
		r.KeyBits = 0
	} else if r.KeyBits, err = forms.KeySize(r.KeyType, r.KeyBits); err != nil {
		return err
	}
	if !slices.Contains([]int{0, 256, 384, 512}, r.SignatureBits) {
		return forms.Refused("invalid signature_bits: %d: must be 0, 256, 384 or 512", r.SignatureBits)
	}
	if r.MaxTTL > 0 && r.TTL > r.MaxTTL {
		return forms.Refused("\"ttl\" value must be less than \"max_ttl\" value")
	}
	if r.NotAfter != "" {
		if _, err := time.Parse(time.RFC3339, r.NotAfter); err != nil {
			return forms.Refused("field \"not_after\": must be a time like 2030-01-02T15:04:05Z")
		}
	}
	if r.usage, err = forms.ParseKeyUsage(r.KeyUsage); err != nil {
		return err
	}
	if r.usage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 {
		return forms.Refused("field \"key_usage\": CertSign and CRLSign are for issuers alone")
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
			return forms.Refused("field \"allowed_ip_sans_cidr\": %q is no block of addresses like 10.0.0.0/8", text)
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
			return forms.Refused("field \"allowed_other_sans\": %s", err)
		}
		r.others = append(r.others, o)
	}
	return r.checkValidations()
}

func (r *Role) checkValidations() error {
	for _, v := range r.Validations {
		switch {
		case v != "email" && v != "hostname" && v != "disabled":
			return forms.Refused("field \"cn_validations\": %q is none of email, hostname, disabled", v)
		case v == "disabled" && len(r.Validations) > 1:
			return forms.Refused("field \"cn_validations\": disabled stands alone")
		}
	}
	if len(r.Validations) == 0 {
		r.Validations = []string{"email", "hostname"}
	}
	return nil
}

// Template begins a certificate of the role that holds from now until end.
func (r *Role) Template(now, end time.Time) (*x509.Certificate, error) {
	t := &x509.Certificate{NotBefore: now.Add(-r.NotBefore), NotAfter: end, KeyUsage: r.usage, ExtKeyUsage: r.ext,
		UnknownExtKeyUsage:    r.extOIDs,
		BasicConstraintsValid: r.BasicConstraints}
	for _, oid := range r.policies {
		p, err := x509.OIDFromInts(oidInts(oid))
		if err != nil {
			return nil, forms.Refused("policy_identifiers: %v", err)
		}
		t.Policies = append(t.Policies, p)
	}
	return t, nil
}

func oidInts(oid []int) []uint64 {
	out := make([]uint64, len(oid))
	for i, n := range oid {
		out[i] = uint64(n)
	}
	return out
}

// Subject is what the role says of the holder.
func (r *Role) Subject(into *pkix.Name) {
	into.OrganizationalUnit, into.Organization, into.Country = r.OU, r.Organization, r.Country
	into.Locality, into.Province, into.StreetAddress, into.PostalCode = r.Locality, r.Province, r.Street, r.PostalCode
}

// CheckKey refuses keys that the role does not allow.
func (r *Role) CheckKey(public crypto.PublicKey) error {
	kind, bits, err := forms.KeyShape(public)
	switch {
	case err != nil:
		return err
	case r.KeyType != "any" && kind != r.KeyType:
		return forms.Refused("role requires keys of type %s", r.KeyType)
	case kind == forms.KeyEC && bits < 224, r.KeyType != "any" && bits < r.KeyBits:
		return forms.Refused("role requires a minimum of a %d-bit key, but CSR's key is %d bits", max(r.KeyBits, 224), bits)
	}
	return nil
}
