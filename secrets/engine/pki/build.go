package pki

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

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

type extension = pkix.Extension

// names is what a certificate is to prove of its holder.
type names struct {
	Subject pkix.Name
	DNS     []string
	Emails  []string
	IPs     []net.IP
	URIs    []*url.URL
	Others  []otherName
	UserIDs []string
}

var (
	oidUserID           = asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 1}
	oidBasicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
)

// askedNames reads the names that a request gives by its parameters. A common name that is one of a
// host or a mailbox is an alternative name as well, unless the request says no.
func askedNames(f *secrets.Fields) (*names, error) {
	n := &names{}
	n.Subject.CommonName, n.Subject.SerialNumber = f.String("common_name"), f.String("serial_number")
	n.UserIDs = f.Strings("user_ids")
	if err := n.alternatives(f); err != nil {
		return nil, err
	}
	if !f.Bool("exclude_cn_from_sans", false) {
		n.addName(n.Subject.CommonName)
	}
	return n, f.Err()
}

func (n *names) addName(name string) {
	switch _, mail := email(name); {
	case mail && !slices.Contains(n.Emails, name):
		n.Emails = append(n.Emails, name)
	case !mail && hostname(name) && !slices.Contains(n.DNS, name):
		n.DNS = append(n.DNS, name)
	}
}

// alternatives reads the subject alternative names.
func (n *names) alternatives(f *secrets.Fields) (err error) {
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
		o, err := parseOtherName(text)
		if err != nil {
			return invalid("could not parse requested other SAN: %v", err)
		}
		n.Others = append(n.Others, o)
	}
	return f.Err()
}

// take takes the alternative names of a request for a certificate.
func (n *names) take(csr *x509.CertificateRequest) error {
	n.DNS, n.Emails, n.IPs, n.URIs, n.Others = csr.DNSNames, csr.EmailAddresses, csr.IPAddresses, csr.URIs, nil
	for _, ext := range csr.Extensions {
		if ext.Id.Equal(oidSAN) {
			others, err := otherNames(ext.Value)
			if err != nil {
				return invalid("csr: %v", err)
			}
			n.Others = append(n.Others, others...)
		}
	}
	return nil
}

// userIDs are the user ids of a subject.
func userIDs(subject pkix.Name) (ids []string) {
	for _, at := range subject.Names {
		if text, ok := at.Value.(string); ok && at.Type.Equal(oidUserID) {
			ids = append(ids, text)
		}
	}
	return ids
}

// into writes the names into a template.
func (n *names) into(t *x509.Certificate) error {
	t.Subject = n.Subject
	for _, id := range n.UserIDs {
		t.Subject.ExtraNames = append(t.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: oidUserID, Value: id})
	}
	if len(n.Others) == 0 {
		t.DNSNames, t.EmailAddresses, t.IPAddresses, t.URIs = n.DNS, n.Emails, n.IPs, n.URIs
		return nil
	}
	value, err := marshalSANs(n)
	t.ExtraExtensions = append(t.ExtraExtensions, extension{Id: oidSAN, Value: value})
	return err
}

// subjectOf reads the parts of a subject that requests for authorities give.
func subjectOf(f *secrets.Fields, into *pkix.Name) {
	for name, at := range map[string]*[]string{"ou": &into.OrganizationalUnit, "organization": &into.Organization,
		"country": &into.Country, "locality": &into.Locality,
		"province": &into.Province, "street_address": &into.StreetAddress, "postal_code": &into.PostalCode} {
		if f.Has(name) {
			*at = f.Strings(name)
		}
	}
}

// signatureOf is the algorithm that a key signs with.
func signatureOf(public crypto.PublicKey, bits int, pss bool) (x509.SignatureAlgorithm, error) {
	kind, size, err := keyShape(public)
	if err != nil {
		return 0, err
	}
	if kind == keyEd25519 {
		return x509.PureEd25519, nil
	}
	if bits == 0 {
		bits = 256
		if kind == keyEC && size > 256 {
			bits = min(size, 512) / 128 * 128
		}
	}
	at := slices.Index([]int{256, 384, 512}, bits)
	if at < 0 {
		return 0, invalid("invalid signature_bits: %d: must be 0, 256, 384 or 512", bits)
	}
	switch {
	case kind == keyEC:
		return []x509.SignatureAlgorithm{x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512}[at], nil
	case pss:
		return []x509.SignatureAlgorithm{x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS}[at], nil
	}
	return []x509.SignatureAlgorithm{x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA}[at], nil
}

// endOf says when a certificate ends that is asked for now: not_after, else the ttl, within
// longest. warn tells that the limit cut it short.
func endOf(now time.Time, f *secrets.Fields, notAfter string, ttl, longest time.Duration) (end time.Time, warn string,
	err error) {
	if f.Has("not_after") && notAfter == "" {
		notAfter = f.String("not_after")
	}
	if d := f.Duration("ttl", 0); d > 0 {
		ttl = d
	} else if d < 0 {
		return end, "", invalid("field \"ttl\": must not be negative")
	}
	if err := f.Err(); err != nil {
		return end, "", err
	}
	end = now.Add(min(ttl, longest))
	if notAfter != "" {
		if end, err = time.Parse(time.RFC3339, notAfter); err != nil {
			return end, "", invalid("field \"not_after\": must be a time like 2030-01-02T15:04:05Z")
		}
		if last := now.Add(longest); end.After(last) {
			return last, "not_after is later than max_ttl allows, so max_ttl is being used", nil
		}
		if !end.After(now) {
			return end, "", invalid("field \"not_after\": lies in the past")
		}
	} else if ttl > longest {
		warn = "TTL \"" + ttl.String() + "\" is longer than permitted maxTTL \"" + longest.String() +
			"\", so maxTTL is being used"
	}
	return end, warn, nil
}

// within applies what the issuer says of certificates that would outlive it.
func (a *authority) within(end time.Time, strict bool) (time.Time, error) {
	if !end.After(a.cert.NotAfter) || (a.NotAfter == "permit" && !strict) {
		return end, nil
	}
	if a.NotAfter == "truncate" && !strict {
		return a.cert.NotAfter, nil
	}
	return end, invalid("cannot satisfy request, as TTL would result in notAfter of %s that is beyond the expiration "+
		"of the CA certificate at %s",
		end.UTC().Format(time.RFC3339Nano), a.cert.NotAfter.Format(time.RFC3339Nano))
}

// certify makes the certificate of a template, with the issuer's URLs.
func (c *call) certify(a *authority, t *x509.Certificate, public crypto.PublicKey, bits int,
	pss bool) (*x509.Certificate, error) {
	if !c.r.Now.Before(a.cert.NotAfter) {
		return nil, invalid("the issuer %s has expired", a.ID)
	}
	var err error
	if t.SignatureAlgorithm, err = signatureOf(a.key.signer.Public(), signatureBits(a, bits), pss); err != nil {
		return nil, err
	}
	if t.SubjectKeyId == nil {
		if t.SubjectKeyId, err = keyID(public); err != nil {
			return nil, err
		}
	}
	t.SerialNumber, t.AuthorityKeyId = newSerial(), a.cert.SubjectKeyId
	if err := c.addURLs(a.issuer, t); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, public, a.key.signer)
	if err != nil {
		return nil, invalid("error creating the certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errkind.E(errkind.Internal, "read the certificate just signed", err)
	}
	if a.constrained {
		return cert, a.checkConstraints(cert, c.r.Now)
	}
	return cert, nil
}

// signatureBits is what the issuer's key can do: the curve decides where it is an EC key.
func signatureBits(a *authority, bits int) int {
	if kind, _, _ := keyShape(a.key.signer.Public()); kind == keyEC {
		return 0
	}
	return bits
}

// checkConstraints lets crypto/x509 judge whether the chain's name constraints let the names be.
func (a *authority) checkConstraints(cert *x509.Certificate, now time.Time) error {
	opts := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, CurrentTime: now}
	for i, link := range a.chain {
		if i == len(a.chain)-1 {
			opts.Roots.AddCert(link)
		} else {
			opts.Intermediates.AddCert(link)
		}
	}
	own := *cert
	own.UnhandledCriticalExtensions = nil // copied verbatim from a request, and not for us to handle
	if _, err := own.Verify(opts); err != nil {
		return invalid("the certificate would not verify by its issuer's chain: %v", err)
	}
	return nil
}

// selfSign makes a certificate that signs itself.
func selfSign(t *x509.Certificate, key crypto.Signer, bits int, pss bool) (cert *x509.Certificate, err error) {
	if t.SignatureAlgorithm, err = signatureOf(key.Public(), bits, pss); err != nil {
		return nil, err
	}
	if t.SubjectKeyId, err = keyID(key.Public()); err != nil {
		return nil, err
	}
	t.SerialNumber, t.AuthorityKeyId = newSerial(), t.SubjectKeyId
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, invalid("error creating the certificate: %v", err)
	}
	return x509.ParseCertificate(der)
}

// constraints reads the limits that an authority is to have.
func constraints(f *secrets.Fields, t *x509.Certificate) (err error) {
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLen = true, true, f.Int("max_path_length", -1)
	t.MaxPathLenZero = t.MaxPathLen == 0
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	usage, err := parseKeyUsage(f.Strings("key_usage"))
	if err != nil {
		return err
	}
	t.KeyUsage |= usage
	if t.ExtKeyUsage, err = parseExtKeyUsage(f.Strings("ext_key_usage")); err != nil {
		return err
	}
	if t.UnknownExtKeyUsage, err = parseOIDs("ext_key_usage_oids", f.Strings("ext_key_usage_oids")); err != nil {
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
				return invalid("field %q: %q is no block of addresses like 10.0.0.0/8", name, text)
			}
			*at = append(*at, block)
		}
	}
	t.PermittedDNSDomainsCritical = true
	return f.Err()
}
