package pki

import (
	"strings"

	"corbel.dev/corbel/secrets"
)

type handler = func(*call) (*secrets.Response, error)

// noun is what answers for one kind of thing: a request seen from its side.
type noun interface{ ~struct{ *call } }

func by[N noun](do func(N) (*secrets.Response, error)) handler {
	return func(c *call) (*secrets.Response, error) { return do(N{c}) }
}

func reads[N noun](do func(N) (*secrets.Response, error)) map[secrets.Operation]handler {
	return map[secrets.Operation]handler{secrets.Read: by(do)}
}

func writes[N noun](do func(N) (*secrets.Response, error)) map[secrets.Operation]handler {
	return map[secrets.Operation]handler{secrets.Update: by(do)}
}

func lists[N noun](do func(N) (*secrets.Response, error)) map[secrets.Operation]handler {
	return map[secrets.Operation]handler{secrets.List: by(do)}
}

func deletes[N noun](do func(N) (*secrets.Response, error)) map[secrets.Operation]handler {
	return map[secrets.Operation]handler{secrets.Delete: by(do)}
}

func both[N noun](read, write func(N) (*secrets.Response, error)) map[secrets.Operation]handler {
	return map[secrets.Operation]handler{secrets.Read: by(read), secrets.Update: by(write), secrets.Patch: by(write)}
}

func all[N noun](read, write, remove func(N) (*secrets.Response, error)) map[secrets.Operation]handler {
	m := both(read, write)
	m[secrets.Delete] = by(remove)
	return m
}

// routes are the paths below the mount, by their first segment.
var routes = byFirst([]route{
	{"roles", lists(roles.list)},
	{"roles/+", all(roles.read, roles.write, roles.delete)},
	{"issue/+", writes(issuing.issue)},
	{"sign/+", writes(issuing.sign)},
	{"sign-verbatim", writes(issuing.signVerbatim)},
	{"sign-verbatim/+", writes(issuing.signVerbatim)},

	{"root", deletes(authorities.deleteRoot)},
	{"root/generate/+", writes(authorities.generateRoot)},
	{"root/rotate/+", writes(authorities.rotateRoot)},
	{"root/replace", writes(authorities.replaceRoot)},
	{"root/sign-intermediate", writes(authorities.signIntermediate)},
	{"root/sign-self-issued", writes(authorities.signSelfIssued)},
	{"intermediate/generate/+", writes(authorities.generateIntermediate)},
	{"intermediate/cross-sign", writes(authorities.crossSign)},
	{"intermediate/set-signed", writes(authorities.setSigned)},
	{"issuers", lists(issuers.list)},
	{"issuers/generate/root/+", writes(authorities.generateRoot)},
	{"issuers/generate/intermediate/+", writes(authorities.generateIntermediate)},
	{"issuers/import/cert", writes(authorities.importCerts)},
	{"issuers/import/bundle", writes(authorities.importBundle)},
	{"issuer/+", all(issuers.read, issuers.write, issuers.delete)},
	{"keys", lists(keyring.list)},
	{"keys/generate/+", writes(keyring.generate)},
	{"keys/import", writes(keyring.take)},
	{"key/+", all(keyring.read, keyring.write, keyring.delete)},

	{"config/ca", writes(authorities.importBundle)},
	{"config/issuers", both(issuers.readDefault, issuers.writeDefault)},
	{"config/keys", both(keyring.readDefault, keyring.writeDefault)},
	{"config/urls", both(settings.readURLs, settings.writeURLs)},
	{"config/cluster", both(settings.readCluster, settings.writeCluster)},
	{"config/crl", both(crls.readConfig, crls.writeConfig)},
	{"config/acme", both(acmeMount.readSettings, acmeMount.writeSettings)},
	{"eab", lists(acmeMount.listEAB)},
	{"eab/+", deletes(acmeMount.deleteEAB)},
	{"config/auto-tidy", both(tidying.readAuto, tidying.writeAuto)},

	{"ca", reads(issuers.der)},
	{"ca/pem", reads(issuers.pem)},
	{"ca_chain", reads(issuers.chain)},
	{"certs", lists(certificates.list)},
	{"certs/revoked", lists(certificates.listRevoked)},
	{"certs/unified-revoked", lists(certificates.listRevoked)},
	{"cert/+", reads(certificates.read)},
	{"cert/+/raw", reads(certificates.readDER)},
	{"cert/+/raw/pem", reads(certificates.readPEM)},
	{"revoke", writes(certificates.revoke)},
	{"revoke-with-key", writes(certificates.revokeWithKey)},
	{"crl", reads(crls.der)},
	{"crl/pem", reads(crls.pem)},
	{"crl/delta", reads(crls.deltaDER)},
	{"crl/delta/pem", reads(crls.deltaPEM)},
	{"crl/rotate", both(crls.rotateWhole, crls.rotateWhole)},
	{"crl/rotate-delta", both(crls.rotateDelta, crls.rotateDelta)},
	// Of all clusters: this is the one that there is.
	{"unified-crl", reads(crls.der)},
	{"unified-crl/pem", reads(crls.pem)},
	{"unified-crl/delta", reads(crls.deltaDER)},
	{"unified-crl/delta/pem", reads(crls.deltaPEM)},
	{"unified-ocsp", writes(responder.post)},
	{"unified-ocsp/*", reads(responder.get)},
	{"ocsp", writes(responder.post)},
	{"ocsp/*", reads(responder.get)},
	{"tidy", writes(tidying.start)},
	{"tidy-cancel", writes(tidying.cancel)},
	{"tidy-status", reads(tidying.status)},
})

// ofIssuer are the paths below issuer/:ref/.
var ofIssuer = byFirst([]route{
	{"issue/+", writes(issuing.issue)},
	{"sign/+", writes(issuing.sign)},
	{"sign-verbatim", writes(issuing.signVerbatim)},
	{"sign-verbatim/+", writes(issuing.signVerbatim)},
	{"sign-intermediate", writes(authorities.signIntermediate)},
	{"sign-self-issued", writes(authorities.signSelfIssued)},
	{"revoke", writes(issuers.revoke)},
	{"resign-crls", writes(crls.resign)},
	{"sign-revocation-list", writes(crls.signGiven)},
	{"json", reads(issuers.json)},
	{"pem", reads(issuers.pem)},
	{"der", reads(issuers.der)},
	{"crl", reads(crls.json)},
	{"crl/pem", reads(crls.pem)},
	{"crl/der", reads(crls.der)},
	{"crl/delta", reads(crls.deltaJSON)},
	{"crl/delta/pem", reads(crls.deltaPEM)},
	{"crl/delta/der", reads(crls.deltaDER)},
	{"unified-crl", reads(crls.json)},
	{"unified-crl/pem", reads(crls.pem)},
	{"unified-crl/der", reads(crls.der)},
	{"unified-crl/delta", reads(crls.deltaJSON)},
	{"unified-crl/delta/pem", reads(crls.deltaPEM)},
	{"unified-crl/delta/der", reads(crls.deltaDER)},
})

func byFirst(list []route) map[string][]route {
	m := map[string][]route{}
	for _, rt := range list {
		first, _, _ := strings.Cut(rt.path, "/")
		m[first] = append(m[first], rt)
	}
	return m
}
