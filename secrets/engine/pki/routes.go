package pki

import (
	"strings"

	"corbel.dev/corbel/secrets"
)

type handler = func(*call) (*secrets.Response, error)

func reads(do handler) map[secrets.Operation]handler {
	return map[secrets.Operation]handler{secrets.Read: do}
}

func writes(do handler) map[secrets.Operation]handler {
	return map[secrets.Operation]handler{secrets.Update: do}
}

func lists(do handler) map[secrets.Operation]handler {
	return map[secrets.Operation]handler{secrets.List: do}
}

func both(read, write handler) map[secrets.Operation]handler {
	return map[secrets.Operation]handler{secrets.Read: read, secrets.Update: write, secrets.Patch: write}
}

func all(read, write, remove handler) map[secrets.Operation]handler {
	m := both(read, write)
	m[secrets.Delete] = remove
	return m
}

// routes are the paths below the mount, by their first segment.
var routes = byFirst([]route{
	{"roles", lists((*call).listRoles)},
	{"roles/+", all((*call).readRole, (*call).writeRole, (*call).deleteRole)},
	{"issue/+", writes((*call).issue)},
	{"sign/+", writes((*call).sign)},
	{"sign-verbatim", writes((*call).signVerbatim)},
	{"sign-verbatim/+", writes((*call).signVerbatim)},

	{"root", map[secrets.Operation]handler{secrets.Delete: (*call).deleteRoot}},
	{"root/generate/+", writes((*call).generateRoot)},
	{"root/rotate/+", writes((*call).rotateRoot)},
	{"root/replace", writes((*call).replaceRoot)},
	{"root/sign-intermediate", writes((*call).signIntermediate)},
	{"root/sign-self-issued", writes((*call).signSelfIssued)},
	{"intermediate/generate/+", writes((*call).generateIntermediate)},
	{"intermediate/cross-sign", writes((*call).crossSign)},
	{"intermediate/set-signed", writes((*call).setSigned)},
	{"issuers", lists((*call).listIssuers)},
	{"issuers/generate/root/+", writes((*call).generateRoot)},
	{"issuers/generate/intermediate/+", writes((*call).generateIntermediate)},
	{"issuers/import/cert", writes((*call).importCerts)},
	{"issuers/import/bundle", writes((*call).importBundle)},
	{"issuer/+", all((*call).readIssuer, (*call).writeIssuer, (*call).deleteIssuer)},
	{"keys", lists((*call).listKeys)},
	{"keys/generate/+", writes((*call).generateKey)},
	{"keys/import", writes((*call).importKey)},
	{"key/+", all((*call).readKey, (*call).writeKey, (*call).deleteKey)},

	{"config/ca", writes((*call).importBundle)},
	{"config/issuers", both((*call).readIssuersConfig, (*call).writeIssuersConfig)},
	{"config/keys", both((*call).readKeysConfig, (*call).writeKeysConfig)},
	{"config/urls", both((*call).readURLs, (*call).writeURLs)},
	{"config/cluster", both((*call).readCluster, (*call).writeCluster)},
	{"config/crl", both((*call).readCRLConfig, (*call).writeCRLConfig)},
	{"config/auto-tidy", both((*call).readAutoTidy, (*call).writeAutoTidy)},

	{"ca", reads((*call).caDER)},
	{"ca/pem", reads((*call).caPEM)},
	{"ca_chain", reads((*call).caChain)},
	{"certs", lists((*call).listCerts)},
	{"certs/revoked", lists((*call).listRevoked)},
	{"certs/unified-revoked", lists((*call).listRevoked)},
	{"cert/+", reads((*call).readCert)},
	{"cert/+/raw", reads((*call).readCertRaw)},
	{"cert/+/raw/pem", reads((*call).readCertRawPEM)},
	{"revoke", writes((*call).revoke)},
	{"revoke-with-key", writes((*call).revokeWithKey)},
	{"crl", reads((*call).crlDER)},
	{"crl/pem", reads((*call).crlPEM)},
	{"crl/delta", reads((*call).deltaDER)},
	{"crl/delta/pem", reads((*call).deltaPEM)},
	{"crl/rotate", both((*call).rotateCRL, (*call).rotateCRL)},
	{"crl/rotate-delta", both((*call).rotateDelta, (*call).rotateDelta)},
	// Of all clusters: this is the one that there is.
	{"unified-crl", reads((*call).crlDER)},
	{"unified-crl/pem", reads((*call).crlPEM)},
	{"unified-crl/delta", reads((*call).deltaDER)},
	{"unified-crl/delta/pem", reads((*call).deltaPEM)},
	{"unified-ocsp", writes((*call).ocspPost)},
	{"unified-ocsp/*", reads((*call).ocspGet)},
	{"ocsp", writes((*call).ocspPost)},
	{"ocsp/*", reads((*call).ocspGet)},
	{"tidy", writes((*call).tidy)},
	{"tidy-cancel", writes((*call).cancelTidy)},
	{"tidy-status", reads((*call).tidyStatus)},
})

// ofIssuer are the paths below issuer/:ref/.
var ofIssuer = byFirst([]route{
	{"issue/+", writes((*call).issue)},
	{"sign/+", writes((*call).sign)},
	{"sign-verbatim", writes((*call).signVerbatim)},
	{"sign-verbatim/+", writes((*call).signVerbatim)},
	{"sign-intermediate", writes((*call).signIntermediate)},
	{"sign-self-issued", writes((*call).signSelfIssued)},
	{"revoke", writes((*call).revokeIssuer)},
	{"resign-crls", writes((*call).resignCRLs)},
	{"sign-revocation-list", writes((*call).signRevocationList)},
	{"json", reads((*call).issuerJSON)},
	{"pem", reads((*call).caPEM)},
	{"der", reads((*call).caDER)},
	{"crl", reads((*call).crlJSON)},
	{"crl/pem", reads((*call).crlPEM)},
	{"crl/der", reads((*call).crlDER)},
	{"crl/delta", reads((*call).deltaJSON)},
	{"crl/delta/pem", reads((*call).deltaPEM)},
	{"crl/delta/der", reads((*call).deltaDER)},
	{"unified-crl", reads((*call).crlJSON)},
	{"unified-crl/pem", reads((*call).crlPEM)},
	{"unified-crl/der", reads((*call).crlDER)},
	{"unified-crl/delta", reads((*call).deltaJSON)},
	{"unified-crl/delta/pem", reads((*call).deltaPEM)},
	{"unified-crl/delta/der", reads((*call).deltaDER)},
})

func byFirst(list []route) map[string][]route {
	m := map[string][]route{}
	for _, rt := range list {
		first, _, _ := strings.Cut(rt.path, "/")
		m[first] = append(m[first], rt)
	}
	return m
}
