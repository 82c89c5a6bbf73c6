package forms

import (
	"crypto/x509"
	"encoding/asn1"
	"strconv"
	"strings"
)

var keyUsages = map[string]x509.KeyUsage{"digitalsignature": x509.KeyUsageDigitalSignature,
	"contentcommitment": x509.KeyUsageContentCommitment,
	"nonrepudiation":    x509.KeyUsageContentCommitment, "keyencipherment": x509.KeyUsageKeyEncipherment,
	"dataencipherment": x509.KeyUsageDataEncipherment,
	"keyagreement":     x509.KeyUsageKeyAgreement, "certsign": x509.KeyUsageCertSign, "crlsign": x509.KeyUsageCRLSign,
	"encipheronly": x509.KeyUsageEncipherOnly,
	"decipheronly": x509.KeyUsageDecipherOnly}

var extKeyUsages = map[string]x509.ExtKeyUsage{"any": x509.ExtKeyUsageAny, "serverauth": x509.ExtKeyUsageServerAuth,
	"clientauth":  x509.ExtKeyUsageClientAuth,
	"codesigning": x509.ExtKeyUsageCodeSigning, "emailprotection": x509.ExtKeyUsageEmailProtection,
	"ipsecendsystem": x509.ExtKeyUsageIPSECEndSystem,
	"ipsectunnel":    x509.ExtKeyUsageIPSECTunnel, "ipsecuser": x509.ExtKeyUsageIPSECUser,
	"timestamping": x509.ExtKeyUsageTimeStamping,
	"ocspsigning":  x509.ExtKeyUsageOCSPSigning, "microsoftservergatedcrypto": x509.ExtKeyUsageMicrosoftServerGatedCrypto,
	"netscapeservergatedcrypto":      x509.ExtKeyUsageNetscapeServerGatedCrypto,
	"microsoftcommercialcodesigning": x509.ExtKeyUsageMicrosoftCommercialCodeSigning,
	"microsoftkernelcodesigning":     x509.ExtKeyUsageMicrosoftKernelCodeSigning}

func plainName(text, prefix string) string {
	return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), prefix)
}

// ParseKeyUsage reads usages by the names that Go, OpenSSL or Vault give them.
func ParseKeyUsage(names []string) (usage x509.KeyUsage, err error) {
	for _, name := range names {
		bit, ok := keyUsages[plainName(name, "keyusage")]
		if !ok {
			return 0, Refused("field \"key_usage\": %q is not known", name)
		}
		usage |= bit
	}
	return usage, nil
}

// ParseExtKeyUsage reads extended usages by their names.
func ParseExtKeyUsage(names []string) (list []x509.ExtKeyUsage, err error) {
	for _, name := range names {
		u, ok := extKeyUsages[plainName(name, "extkeyusage")]
		if !ok {
			return nil, Refused("field \"ext_key_usage\": %q is not known", name)
		}
		list = append(list, u)
	}
	return list, nil
}

// ParseOIDs reads object identifiers; field is named in the error.
func ParseOIDs(field string, names []string) (list []asn1.ObjectIdentifier, err error) {
	for _, name := range names {
		oid, ok := ParseOID(name)
		if !ok {
			return nil, Refused("field %q: %q could not be parsed as a valid oid", field, name)
		}
		list = append(list, oid)
	}
	return list, nil
}

// ParseOID reads an object identifier like 1.2.3.
func ParseOID(text string) (oid asn1.ObjectIdentifier, ok bool) {
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return nil, false
		}
		oid = append(oid, int(n))
	}
	return oid, len(oid) > 1 && oid[0] <= 2 && (oid[0] == 2 || oid[1] < 40)
}
