package vaultapi

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// CertDecoders are what a proxy may have done to the client's certificate: escaped it as in a URL, written it as PEM,
// put it between colons (RFC 9440). What is left in the end is DER in base64.
var CertDecoders = []string{"URL", "PEM", "RFC9440"}

// certificate puts the client's certificate in the place of the proxy's. Whose request it is was judged before.
func (f *ForwardedFor) certificate(r *http.Request) error {
	if f.CertHeader == "" {
		return nil
	}
	r.TLS = &tls.ConnectionState{}
	text := r.Header.Get(f.CertHeader)
	if text == "" {
		return nil
	}
	c, err := decodeCertificate(text, f.CertDecoders)
	if err != nil {
		return withStatus(http.StatusBadRequest, "malformed "+f.CertHeader+" header: "+err.Error())
	}
	r.TLS.PeerCertificates = []*x509.Certificate{c}
	return nil
}

func decodeCertificate(text string, decoders []string) (*x509.Certificate, error) {
	for _, name := range decoders {
		switch name {
		case "URL":
			plain, err := url.PathUnescape(text) // '+' is base64's
			if err != nil {
				return nil, errors.New("it is not URL-encoded")
			}
			text = plain
		case "PEM":
			block, _ := pem.Decode([]byte(text))
			if block == nil || block.Type != "CERTIFICATE" {
				return nil, errors.New("it is no PEM certificate")
			}
			text = base64.StdEncoding.EncodeToString(block.Bytes)
		case "RFC9440":
			inner, begun := strings.CutPrefix(strings.TrimSpace(text), ":")
			inner, ended := strings.CutSuffix(inner, ":")
			if !begun || !ended {
				return nil, errors.New("it has no colons around it")
			}
			text = inner
		}
	}
	der, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, errors.New("it is no base64")
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errors.New("it is no certificate")
	}
	return c, nil
}
