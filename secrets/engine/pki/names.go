package pki

import (
	"encoding/asn1"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// hostname reports whether a text is the name of a host: labels of letters, digits, hyphens and
// underscores, of which the first may hold one '*'.
func hostname(text string) bool {
	text = strings.TrimSuffix(text, ".")
	if text == "" || len(text) > 253 {
		return false
	}
	first := true
	for label := range strings.SplitSeq(text, ".") {
		if first && label == "*" && text != "*" {
			first = false
			continue
		}
		if first && strings.Count(label, "*") == 1 {
			label = strings.Replace(label, "*", "", 1)
		}
		first = false
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, ch := range []byte(label) {
			if !(ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || ch >= '0' && ch <= '9' || ch == '-' || ch == '_') {
				return false
			}
		}
	}
	return true
}

// email splits an address; ok is false for anything else.
func email(text string) (domain string, ok bool) {
	user, domain, ok := strings.Cut(text, "@")
	return domain, ok && user != "" && domain != "" && !strings.ContainsAny(domain, "@ ") &&
		!strings.ContainsAny(user, " ,<>\"\r\n")
}

// glob matches a pattern in which '*' stands for any run of bytes.
func glob(pattern, text string) bool {
	head, rest, more := strings.Cut(pattern, "*")
	if !more {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, head)
	if !ok {
		return false
	}
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, part)
		}
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text, rest = text[at+len(part):], after
	}
}

// allows reports whether the role lets a DNS name or an e-mail address into a certificate.
func (r *role) allows(name string) bool {
	host, mail := name, false
	if strings.Contains(name, "@") {
		if host, mail = email(name); !mail {
			return false
		}
	}
	if r.Hostnames && !hostname(host) {
		return false
	}
	wild := strings.Contains(host, "*")
	if wild && (mail || !r.Wildcards || !hostname(host)) {
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
		case r.Globs && strings.Contains(domain, "*") && glob(domain, host):
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

// checkNames refuses what the role does not let into a certificate.
func (r *role) checkNames(n *names) error {
	if n.Subject.CommonName == "" && r.RequireCN {
		return invalid("the common_name field is required, or must be provided in a CSR with \"use_csr_common_name\" set " +
			"to true, unless \"require_cn\" is set to false")
	}
	if cn := n.Subject.CommonName; cn != "" && !slices.Contains(r.Validations, "disabled") {
		isMail := strings.Contains(cn, "@")
		if !r.allows(cn) || (isMail && !slices.Contains(r.Validations, "email")) ||
			(!isMail && !slices.Contains(r.Validations, "hostname")) {
			return invalid("common name %s not allowed by this role", cn)
		}
	}
	for _, name := range n.DNS {
		if strings.Contains(name, "@") || !r.allows(name) {
			return invalid("subject alternate name %s not allowed by this role", name)
		}
	}
	for _, name := range n.Emails {
		if !strings.Contains(name, "@") || !r.allows(name) {
			return invalid("email address %s not allowed by this role", name)
		}
	}
	for _, ip := range n.IPs {
		if !r.IPs {
			return invalid("IP Subject Alternative Names are not allowed in this role, but was provided: %s", ip)
		}
		addr, ok := netip.AddrFromSlice(ip)
		if len(r.blocks) > 0 && (!ok || !slices.ContainsFunc(r.blocks,
			func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) })) {
			return invalid("IP Subject Alternative Name %s is in none of allowed_ip_sans_cidr", ip)
		}
	}
	for _, uri := range n.URIs {
		if !slices.ContainsFunc(r.URIs, func(p string) bool { return glob(p, uri.String()) }) {
			return invalid("URI Subject Alternative Name %s is not allowed in this role", uri)
		}
	}
	for _, o := range n.Others {
		if !slices.ContainsFunc(r.others, func(p otherName) bool {
			return (p.Type == "*" || p.Type == o.Type) && glob(p.Value, o.Value)
		}) {
			return invalid("other SAN %s not allowed for OID %s by this role", o.Value, o.Type)
		}
	}
	if s := n.Subject.SerialNumber; s != "" && !slices.ContainsFunc(r.Serials, func(p string) bool { return glob(p, s) }) {
		return invalid("serial_number %s not allowed by this role", s)
	}
	for _, id := range n.UserIDs {
		if !slices.ContainsFunc(r.UserIDs, func(p string) bool { return glob(p, id) }) {
			return invalid("user_id %s is not allowed by this role", id)
		}
	}
	return nil
}

// otherName is a subject alternative name of a type of its own, with a text as its value.
type otherName struct {
	Type  string // object identifier
	Value string
}

// parseOtherName reads "<oid>;UTF8:<value>".
func parseOtherName(text string) (otherName, error) {
	oid, rest, _ := strings.Cut(text, ";")
	kind, value, ok := strings.Cut(rest, ":")
	if !ok {
		return otherName{}, fmt.Errorf("expected <oid>;<type>:<value>, got %q", text)
	}
	if _, valid := parseOID(oid); !valid {
		return otherName{}, fmt.Errorf("%q could not be parsed as a valid oid", oid)
	}
	if k := strings.ToUpper(kind); k != "UTF8" && k != "UTF-8" {
		return otherName{}, fmt.Errorf("only UTF8 other names are supported, found %q", kind)
	}
	return otherName{oid, value}, nil
}

var oidSAN = asn1.ObjectIdentifier{2, 5, 29, 17}

// The tags of GeneralName.
const (
	tagOther = 0
	tagEmail = 1
	tagDNS   = 2
	tagURI   = 6
	tagIP    = 7
)

// marshalSANs encodes the extension for names that hold other names, which crypto/x509 does not encode.
func marshalSANs(n *names) ([]byte, error) {
	var list []asn1.RawValue
	add := func(tag int, b []byte) {
		list = append(list, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: b})
	}
	for _, s := range n.DNS {
		add(tagDNS, []byte(s))
	}
	for _, s := range n.Emails {
		add(tagEmail, []byte(s))
	}
	for _, ip := range n.IPs {
		if four := ip.To4(); four != nil {
			ip = four
		}
		add(tagIP, ip)
	}
	for _, u := range n.URIs {
		add(tagURI, []byte(u.String()))
	}
	for _, o := range n.Others {
		oid, _ := parseOID(o.Type)
		id, err := asn1.Marshal(oid)
		if err != nil {
			return nil, err
		}
		value, err := asn1.MarshalWithParams(o.Value, "utf8")
		if err != nil {
			return nil, err
		}
		if value, err = asn1.Marshal(asn1.RawValue{Class: asn1.ClassContextSpecific, IsCompound: true,
			Bytes: value}); err != nil {
			return nil, err
		}
		list = append(list, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tagOther, IsCompound: true,
			Bytes: append(id, value...)})
	}
	return asn1.Marshal(list)
}

// otherNames reads the other names of an extension. Names of kinds that are never issued are an error:
// left out in silence they would not be missed.
func otherNames(der []byte) (out []otherName, err error) {
	var list []asn1.RawValue
	if rest, err := asn1.Unmarshal(der, &list); err != nil || len(rest) > 0 {
		return nil, errors.New("the subject alternative names cannot be read")
	}
	for _, v := range list {
		switch v.Tag {
		case tagEmail, tagDNS, tagURI, tagIP:
			continue
		case tagOther:
		default:
			return nil, fmt.Errorf("a subject alternative name of kind %d is not supported", v.Tag)
		}
		var oid asn1.ObjectIdentifier
		rest, err := asn1.Unmarshal(v.Bytes, &oid)
		if err != nil {
			return nil, errors.New("an other name cannot be read")
		}
		var wrapped asn1.RawValue
		var text string
		if _, err := asn1.Unmarshal(rest, &wrapped); err != nil {
			return nil, errors.New("an other name cannot be read")
		}
		if rest, err := asn1.UnmarshalWithParams(wrapped.Bytes, &text, "utf8"); err != nil || len(rest) > 0 {
			return nil, fmt.Errorf("the other name of type %s is no UTF-8 text", oid)
		}
		out = append(out, otherName{oid.String(), text})
	}
	return out, nil
}

// parseIPs reads addresses.
func parseIPs(list []string) (out []net.IP, err error) {
	for _, text := range list {
		ip := net.ParseIP(strings.TrimSpace(text))
		if ip == nil {
			return nil, invalid("the value %q is not a valid IP address", text)
		}
		out = append(out, ip)
	}
	return out, nil
}

// parseURIs reads URIs.
func parseURIs(list []string) (out []*url.URL, err error) {
	for _, text := range list {
		u, err := url.Parse(text)
		if err != nil || u.Scheme == "" {
			return nil, invalid("the provided URI Subject Alternative Name %q is not a valid URI", text)
		}
		out = append(out, u)
	}
	return out, nil
}
