package jwks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

const (
	// of one question to another system; the login that waits for it has a deadline of its own
	askTimeout  = 5 * time.Second
	answerBytes = 1 << 20 // the most that another system may answer
)

// CheckURL takes addresses of the web alone.
func CheckURL(field, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("%s: %q is no http or https address", field, text)
	}
	return nil
}

// CheckCA takes PEM certificates, or nothing.
func CheckCA(field, pem string) error {
	if pem != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(pem)) {
		return fmt.Errorf("%s holds no PEM certificate", field)
	}
	return nil
}

// client talks to a system whose certificate is signed by ca, or by the host's authorities when it is empty.
func client(ca string) *http.Client {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		conf.RootCAs = x509.NewCertPool()
		conf.RootCAs.AppendCertsFromPEM([]byte(ca))
	}
	return &http.Client{
		Timeout: askTimeout,
		Transport: &http.Transport{TLSClientConfig: conf, DialContext: (&net.Dialer{Timeout: askTimeout}).DialContext,
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the answer is a redirect: configure the address that it leads to")
		},
	}
}

// Ask sends a request to another system and decodes the JSON that comes back. ca is as in Source. Errors are of kind
// Unavailable.
func Ask(ctx context.Context, ca string, r *http.Request, into any) error {
	_, err := AskStatus(ctx, ca, r, into)
	return err
}

// AskStatus is Ask for who tells apart what the other system refuses; status is 0 where it did not answer.
func AskStatus(ctx context.Context, ca string, r *http.Request, into any) (status int, err error) {
	status, b, err := AskRaw(ctx, ca, r)
	if err != nil {
		return status, err
	}
	if status/100 != 2 {
		return status, errkind.Errorf(errkind.Unavailable, "%s answered %d %s", r.URL.Host, status, http.StatusText(status))
	}
	if err := json.Unmarshal(b, into); err != nil {
		return status, errkind.Errorf(errkind.Unavailable, "the answer of %s is no JSON as expected: %w", r.URL.Host, err)
	}
	return status, nil
}

// AskRaw is AskStatus for who reads also what comes with a refusal.
func AskRaw(ctx context.Context, ca string, r *http.Request) (status int, body []byte, err error) {
	a, err := AskWhole(ctx, ca, r)
	return a.Status, a.Body, err
}

// Answer is what another system said.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// AskWhole is AskRaw for who reads the headers too.
func AskWhole(ctx context.Context, ca string, r *http.Request) (Answer, error) {
	res, err := client(ca).Do(r.WithContext(ctx))
	if err != nil {
		return Answer{}, errkind.E(errkind.Unavailable, "ask "+r.URL.Host, err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end or given up
	b, err := io.ReadAll(io.LimitReader(res.Body, answerBytes))
	if err != nil {
		return Answer{}, errkind.E(errkind.Unavailable, "read the answer of "+r.URL.Host, err)
	}
	return Answer{res.StatusCode, res.Header, b}, nil
}
