package forms

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
)

// Extension is one of a certificate, a request or a list.
type Extension = pkix.Extension

// Names is what a certificate is to prove of its holder.
type Names struct {
	Subject pkix.Name
	DNS     []string
	Emails  []string
	IPs     []net.IP
	URIs    []*url.URL
	Others  []OtherName
	UserIDs []string
}

var (
	OIDUserID           = asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 1}
	OIDBasicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
)

// AskedNames reads the names that a request gives by its parameters. A common name that is one of a
// host or a mailbox is an alternative name as well, unless the request says no.
func AskedNames(f *secrets.Fields) (*Names, error) {
	n := &Names{}
	n.Subject.CommonName, n.Subject.SerialNumber = f.String("common_name"), f.String("serial_number")
	n.UserIDs = f.Strings("user_ids")
	if err := n.alternatives(f); err != nil {
		return nil, err
	}
	if !f.Bool("exclude_cn_from_sans", false) {
		n.AddName(n.Subject.CommonName)
	}
	return n, f.Err()
}

// AddName adds the name of a host or a mailbox where it is not there yet; other names are none.
func (n *Names) AddName(name string) {
	switch _, mail := Email(name); {
	case mail && !slices.Contains(n.Emails, name):
		n.Emails = append(n.Emails, name)
	case !mail && Hostname(name) && !slices.Contains(n.DNS, name):
		n.DNS = append(n.DNS, name)
	}
}

// alternatives reads the subject alternative names.
func (n *Names) alternatives(f *secrets.Fields) (err error) {
	for _, name := range f.Strings("alt_names") {
		if strings.Contains(name, "@") {
			n.Emails = append(n.Emails, name)
		} else {
			n.DNS = append(n.DNS, name)
		}
	}
	if n.IPs, err = parseIPs(f.Strings("ip_sans")); err != nil {
		return err
	}
	if n.URIs, err = parseURIs(f.Strings("uri_sans")); err != nil {
		return err
	}
	for _, text := range f.Strings("other_sans") {
		o, err := ParseOtherName(text)
		if err != nil {
			return Refused("could not parse requested other SAN: %v", err)
		}
		n.Others = append(n.Others, o)
	}
	return f.Err()
}

// Take takes the alternative names of a request for a certificate.
func (n *Names) Take(csr *x509.CertificateRequest) error {
	n.DNS, n.Emails, n.IPs, n.URIs, n.Others = csr.DNSNames, csr.EmailAddresses, csr.IPAddresses, csr.URIs, nil
	for _, ext := range csr.Extensions {
		if ext.Id.Equal(OIDSAN) {
			others, err := otherNames(ext.Value)
			if err != nil {
				return Refused("csr: %v", err)
			}
			n.Others = append(n.Others, others...)
		}
	}
	return nil
}

// UserIDs are the user ids of a subject.
func UserIDs(subject pkix.Name) (ids []string) {
	for _, at := range subject.Names {
		if text, ok := at.Value.(string); ok && at.Type.Equal(OIDUserID) {
			ids = append(ids, text)
		}
	}
	return ids
}

// Into writes the names into a template.
func (n *Names) Into(t *x509.Certificate) error {
	t.Subject = n.Subject
	for _, id := range n.UserIDs {
		t.Subject.ExtraNames = append(t.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: OIDUserID, Value: id})
	}
	if len(n.Others) == 0 {
		t.DNSNames, t.EmailAddresses, t.IPAddresses, t.URIs = n.DNS, n.Emails, n.IPs, n.URIs
		return nil
	}
	value, err := MarshalSANs(n)
	t.ExtraExtensions = append(t.ExtraExtensions, Extension{Id: OIDSAN, Value: value})
	return err
}

// SubjectOf reads the parts of a subject that requests for authorities give.
func SubjectOf(f *secrets.Fields, into *pkix.Name) {
	for name, at := range map[string]*[]string{"ou": &into.OrganizationalUnit, "organization": &into.Organization,
		"country": &into.Country, "locality": &into.Locality,
		"province": &into.Province, "street_address": &into.StreetAddress, "postal_code": &into.PostalCode} {
		if f.Has(name) {
			*at = f.Strings(name)
		}
	}
}

// SignatureOf is the algorithm that a key signs with.
func SignatureOf(public crypto.PublicKey, bits int, pss bool) (x509.SignatureAlgorithm, error) {
	kind, size, err := KeyShape(public)
	if err != nil {
		return 0, err
	}
	if kind == KeyEd25519 {
		return x509.PureEd25519, nil
	}
	if bits == 0 {
		bits = 256
		if kind == KeyEC && size > 256 {
			bits = min(size, 512) / 128 * 128
		}
	}
	at := slices.Index([]int{256, 384, 512}, bits)
	if at < 0 {
		return 0, Refused("invalid signature_bits: %d: must be 0, 256, 384 or 512", bits)
	}
	switch {
	case kind == KeyEC:
		return []x509.SignatureAlgorithm{x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512}[at], nil
	case pss:
		return []x509.SignatureAlgorithm{x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS}[at], nil
	}
	return []x509.SignatureAlgorithm{x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA}[at], nil
}

// EndOf says when a certificate ends that is asked for now: not_after, else the ttl, within
// longest. warn tells that the limit cut it short.
func EndOf(now time.Time, f *secrets.Fields, notAfter string, ttl, longest time.Duration) (end time.Time, warn string,
	err error) {
	if f.Has("not_after") && notAfter == "" {
		notAfter = f.String("not_after")
	}
	if d := f.Duration("ttl", 0); d > 0 {
		ttl = d
	} else if d < 0 {
		return end, "", Refused("field \"ttl\": must not be negative")
	}
	if err := f.Err(); err != nil {
		return end, "", err
	}
	end = now.Add(min(ttl, longest))
	if notAfter != "" {
		if end, err = time.Parse(time.RFC3339, notAfter); err != nil {
			return end, "", Refused("field \"not_after\": must be a time like 2030-01-02T15:04:05Z")
		}
		if last := now.Add(longest); end.After(last) {
			return last, "not_after is later than max_ttl allows, so max_ttl is being used", nil
		}
		if !end.After(now) {
			return end, "", Refused("field \"not_after\": lies in the past")
		}
	} else if ttl > longest {
		warn = "TTL \"" + ttl.String() + "\" is longer than permitted maxTTL \"" + longest.String() +
			"\", so maxTTL is being used"
	}
	return end, warn, nil
}

// SelfSign makes a certificate that signs itself.
func SelfSign(t *x509.Certificate, key crypto.Signer, bits int, pss bool) (cert *x509.Certificate, err error) {
	if t.SignatureAlgorithm, err = SignatureOf(key.Public(), bits, pss); err != nil {
		return nil, err
	}
	if t.SubjectKeyId, err = KeyID(key.Public()); err != nil {
		return nil, err
	}
	t.SerialNumber, t.AuthorityKeyId = NewSerial(), t.SubjectKeyId
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, Refused("error creating the certificate: %v", err)
	}
	return x509.ParseCertificate(der)
}

// Constraints reads the limits that an authority is to have.
func Constraints(f *secrets.Fields, t *x509.Certificate) (err error) {
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLen = true, true, f.Int("max_path_length", -1)
	t.MaxPathLenZero = t.MaxPathLen == 0
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	usage, err := ParseKeyUsage(f.Strings("key_usage"))
	if err != nil {
		return err
	}
	t.KeyUsage |= usage
	if t.ExtKeyUsage, err = ParseExtKeyUsage(f.Strings("ext_key_usage")); err != nil {
		return err
	}
	if t.UnknownExtKeyUsage, err = ParseOIDs("ext_key_usage_oids", f.Strings("ext_key_usage_oids")); err != nil {
		return err
	}
	t.PermittedDNSDomains, t.ExcludedDNSDomains = f.Strings("permitted_dns_domains"), f.Strings("excluded_dns_domains")
	t.PermittedEmailAddresses, t.ExcludedEmailAddresses = f.Strings("permitted_email_addresses"),
		f.Strings("excluded_email_addresses")
	t.PermittedURIDomains, t.ExcludedURIDomains = f.Strings("permitted_uri_domains"), f.Strings("excluded_uri_domains")
	for name, at := range map[string]*[]*net.IPNet{"permitted_ip_ranges": &t.PermittedIPRanges,
		"excluded_ip_ranges": &t.ExcludedIPRanges} {
		for _, text := range f.Strings(name) {
			_, block, err := net.ParseCIDR(text)
			if err != nil {
				return Refused("field %q: %q is no block of addresses like 10.0.0.0/8", name, text)
			}
			*at = append(*at, block)
		}
	}
	t.PermittedDNSDomainsCritical = true
	return f.Err()
}
