package pki

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/crypto/ocsp"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/authority"
	"corbel.dev/corbel/secrets/engine/pki/forms"
)

// ocspBytes bounds a question: one certificate's has about 100 bytes.
const ocspBytes = 2048

func ocspAnswer(status int, body []byte) (*secrets.Response, error) {
	resp := raw("application/ocsp-response", body)
	resp.Raw.Status = status
	return resp, nil
}

// responder answers questions of OCSP.
type responder struct{ *call }

func (c responder) post() (*secrets.Response, error) { return c.respond(c.r.Body) }

// get takes the question from the path, in base64.
func (c responder) get() (*secrets.Response, error) {
	text := strings.TrimPrefix(strings.TrimPrefix(c.r.Rest, "unified-"), "ocsp/")
	if len(text) > 2*ocspBytes {
		return ocspAnswer(http.StatusBadRequest, ocsp.MalformedRequestErrorResponse)
	}
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		der, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	}
	if err != nil {
		return ocspAnswer(http.StatusBadRequest, ocsp.MalformedRequestErrorResponse)
	}
	return c.respond(der)
}

// respond answers from the record of the certificate: no list is read.
func (c responder) respond(question []byte) (*secrets.Response, error) {
	cfg, err := c.crlConfig()
	if err != nil {
		return nil, err
	}
	if cfg.OCSPDisable {
		return ocspAnswer(http.StatusUnauthorized, ocsp.UnauthorizedErrorResponse)
	}
	if len(question) > ocspBytes {
		return ocspAnswer(http.StatusBadRequest, ocsp.MalformedRequestErrorResponse)
	}
	q, err := ocsp.ParseRequest(question)
	if err != nil || q.SerialNumber.Sign() < 0 || !q.HashAlgorithm.Available() {
		return ocspAnswer(http.StatusBadRequest, ocsp.MalformedRequestErrorResponse)
	}
	a, err := c.asked(q)
	if err != nil {
		return nil, err
	}
	if a == nil {
		return ocspAnswer(http.StatusUnauthorized, ocsp.UnauthorizedErrorResponse)
	}
	now := c.r.Now.UTC()
	t := ocsp.Response{Status: ocsp.Good, SerialNumber: q.SerialNumber, ThisUpdate: now, ProducedAt: now,
		IssuerHash: q.HashAlgorithm}
	if cfg.OCSPExpiry > 0 {
		t.NextUpdate = now.Add(cfg.OCSPExpiry)
	}
	rv, err := c.revocation(forms.Hyphens(q.SerialNumber))
	if err != nil {
		return nil, err
	}
	if rv != nil && rv.Group == a.Group() {
		t.Status, t.RevokedAt, t.RevocationReason = ocsp.Revoked, rv.Time, ocsp.Unspecified
	}
	if t.SignatureAlgorithm, err = a.RevocationAlgorithm(); err != nil {
		return nil, err
	}
	der, err := ocsp.CreateResponse(a.X509(), a.X509(), t, a.Key.Signer)
	if err != nil {
		return ocspAnswer(http.StatusInternalServerError, ocsp.InternalErrorErrorResponse)
	}
	return ocspAnswer(http.StatusOK, der)
}

// asked is the issuer that a question is about, or nil.
func (c responder) asked(q *ocsp.Request) (*authority.CA, error) {
	list, err := c.allIssuers()
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		if i.KeyID == "" || !i.May("ocsp-signing") {
			continue
		}
		name, key := forms.Hash(q.HashAlgorithm, i.X509().RawSubject), forms.Hash(q.HashAlgorithm, forms.KeyBits(i.X509()))
		if slices.Equal(name, q.IssuerNameHash) && slices.Equal(key, q.IssuerKeyHash) {
			k, err := c.Key(i.KeyID)
			return &authority.CA{Issuer: i, Key: k}, err
		}
	}
	return nil, nil
}
