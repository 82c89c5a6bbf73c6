package forms

import (
	"encoding/asn1"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Hostname reports whether a text is the name of a host: labels of letters, digits, hyphens and
// underscores, of which the first may hold one '*'.
func Hostname(text string) bool {
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

// Email splits an address; ok is false for anything else.
func Email(text string) (domain string, ok bool) {
	user, domain, ok := strings.Cut(text, "@")
	return domain, ok && user != "" && domain != "" && !strings.ContainsAny(domain, "@ ") &&
		!strings.ContainsAny(user, " ,<>\"\r\n")
}

// Glob matches a pattern in which '*' stands for any run of bytes.
func Glob(pattern, text string) bool {
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

// OtherName is a subject alternative name of a type of its own, with a text as its value.
type OtherName struct {
	Type  string // object identifier
	Value string
}

// ParseOtherName reads "<oid>;UTF8:<value>".
func ParseOtherName(text string) (OtherName, error) {
	oid, rest, _ := strings.Cut(text, ";")
	kind, value, ok := strings.Cut(rest, ":")
	if !ok {
		return OtherName{}, fmt.Errorf("expected <oid>;<type>:<value>, got %q", text)
	}
	if _, valid := ParseOID(oid); !valid {
		return OtherName{}, fmt.Errorf("%q could not be parsed as a valid oid", oid)
	}
	if k := strings.ToUpper(kind); k != "UTF8" && k != "UTF-8" {
		return OtherName{}, fmt.Errorf("only UTF8 other names are supported, found %q", kind)
	}
	return OtherName{oid, value}, nil
}

// OIDSAN names the extension of alternative names.
var OIDSAN = asn1.ObjectIdentifier{2, 5, 29, 17}

// The tags of GeneralName.
const (
	tagOther = 0
	tagEmail = 1
	tagDNS   = 2
	tagURI   = 6
	tagIP    = 7
)

// MarshalSANs encodes the extension for names that hold other names, which crypto/x509 does not encode.
func MarshalSANs(n *Names) ([]byte, error) {
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
		oid, _ := ParseOID(o.Type)
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
func otherNames(der []byte) (out []OtherName, err error) {
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
		out = append(out, OtherName{oid.String(), text})
	}
	return out, nil
}

// parseIPs reads addresses.
func parseIPs(list []string) (out []net.IP, err error) {
	for _, text := range list {
		ip := net.ParseIP(strings.TrimSpace(text))
		if ip == nil {
			return nil, Refused("the value %q is not a valid IP address", text)
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
			return nil, Refused("the provided URI Subject Alternative Name %q is not a valid URI", text)
		}
		out = append(out, u)
	}
	return out, nil
}
