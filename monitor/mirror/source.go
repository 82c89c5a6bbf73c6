package mirror

import (
	"bytes"
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
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

const (
	pageObjects  = 500
	maxPageBytes = 64 << 20
	maxObjects   = 100_000   // of one source: a round keeps them in memory
	maxBytes     = 256 << 20 // of them all
	maxFileBytes = 1 << 20   // of a file with a key or a certificate
)

// Page is what a cluster answers that is asked for its objects. Encoded objects are as the plane's group has them, so
// hashes of passwords come along, which no other answer has.
type Page struct {
	Cluster  string   `json:"cluster"` // the ID of the source
	Objects  []Object `json:"objects"`
	Continue string   `json:"continue"` // where the next page begins; "" is nowhere
}

// Object is one of a Page.
type Object struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Encoded   []byte `json:"object"`
}

// source is another cluster's API.
type source struct {
	r    *monitor.Replicator
	http *http.Client
	key  string
}

// readFile reads a small file that a replicator names.
func readFile(field, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, field, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(b) > maxFileBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	if err != nil {
		return nil, errkind.E(errkind.Invalid, field, err)
	}
	return b, nil
}

// newSource reads the replicator's files, anew for each round, so that renewed ones count.
func newSource(r *monitor.Replicator) (*source, error) {
	key, err := readFile("api_key_file", r.APIKeyFile)
	if err != nil {
		return nil, err
	}
	// and so no other file of this server can be had by way of a replicator
	if _, err := uuid.Parse(strings.TrimSpace(string(key))); err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "api_key_file: what is in %s is no API key", r.APIKeyFile)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: r.Insecure} // asked for by the replicator
	if r.CACert != "" {
		text, err := readFile("ca_cert", r.CACert)
		if err != nil {
			return nil, err
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(text) {
			return nil, errkind.Errorf(errkind.Invalid, "ca_cert: there is no certificate in %s", r.CACert)
		}
	}
	if r.Cert != "" {
		pair, err := tls.LoadX509KeyPair(r.Cert, r.KeyFile)
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "cert, key", err)
		}
		secure.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: callTime}).DialContext, TLSClientConfig: secure,
		ForceAttemptHTTP2: true, MaxConnsPerHost: 1, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: callTime,
		TLSHandshakeTimeout: callTime}
	return &source{r: r, key: strings.TrimSpace(string(key)), http: &http.Client{Transport: transport, Timeout: callTime,
		CheckRedirect: noRedirect}}, nil
}

// all fetches everything that the replicator is about, or nothing; self is this cluster's ID.
func (s *source) all(ctx context.Context, typ monitor.Type, self string) (origin string, list []object, err error) {
	size, after := 0, ""
	for {
		page, err := s.page(ctx, typ, self, after)
		if err != nil {
			return "", nil, err
		}
		switch {
		case page.Cluster == "":
			return "", nil, errkind.Errorf(errkind.Invalid,
				"the source does not say which cluster it is: is there a Corbel at its url?")
		case page.Cluster == self:
			return "", nil, errkind.Errorf(errkind.Invalid, "the source is this cluster itself")
		case origin != "" && origin != page.Cluster:
			return "", nil, errkind.Errorf(errkind.Unavailable, "pages came from two clusters: %s and %s", origin, page.Cluster)
		}
		origin = page.Cluster
		for _, o := range page.Objects {
			one, err := decode(s.r, typ, o)
			if err != nil {
				return "", nil, err
			}
			list = append(list, one)
			size += len(one.encoded)
		}
		if len(list) > maxObjects || size > maxBytes {
			return "", nil, errkind.Errorf(errkind.TooLarge, "the source has more than %d objects or %d bytes of them",
				maxObjects, maxBytes)
		}
		if page.Continue == "" {
			return origin, list, nil
		}
		if page.Continue == after || len(page.Objects) == 0 {
			return "", nil, errkind.Errorf(errkind.Invalid, "the source's pages do not end")
		}
		after = page.Continue
	}
}

// decode reads an object of a source and refuses what this cluster would not take from its own users: then nothing of
// the list is copied, for what is left out of it would be deleted here.
func decode(r *monitor.Replicator, typ monitor.Type, o Object) (object, error) {
	v := typ.New()
	err := tagproto.Unmarshal(o.Encoded, v)
	if err == nil {
		err = v.Validate()
	}
	if err == nil {
		if namespace, name := v.Key(); namespace != o.Namespace || name != o.Name || r.Only != "" && namespace != r.Only ||
			name == "" {
			err = fmt.Errorf("it is %q in namespace %q", name, namespace)
		}
	}
	if err != nil {
		return object{}, errkind.E(errkind.Invalid, fmt.Sprintf("the source's %s %q of namespace %q", typ.Name, o.Name,
			o.Namespace), err)
	}
	return object{o.Namespace, o.Name, o.Encoded}, nil
}

func (s *source) page(ctx context.Context, typ monitor.Type, self, after string) (*Page, error) {
	q := url.Values{"limit": {strconv.Itoa(pageObjects)}, "for": {self}}
	if s.r.Only != "" {
		q.Set("namespace", s.r.Only)
	}
	if after != "" {
		q.Set("continue", after)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(s.r.URL, "/")+
		"/api/corbel/v1/replicas/"+typ.Name+"?"+q.Encode(), nil)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "url", err)
	}
	req.Header.Set("Authorization", "Key "+s.key)
	resp, err := s.http.Do(req)
	if err != nil {
		if of := (*url.Error)(nil); errors.As(err, &of) {
			err = of.Err // Status has the address
		}
		return nil, errkind.E(errkind.Unavailable, "the source", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxPageBytes+1))
	switch {
	case err != nil:
		return nil, errkind.E(errkind.Unavailable, "the source", err)
	case len(b) > maxPageBytes:
		return nil, errkind.Errorf(errkind.TooLarge, "a page of the source of more than %d bytes", maxPageBytes)
	case resp.StatusCode != http.StatusOK:
		return nil, errkind.Errorf(errkind.Unavailable, "the source answers %s: %s", resp.Status, excerpt(b))
	}
	page := new(Page)
	if err := json.Unmarshal(b, page); err != nil {
		return nil, errkind.E(errkind.Unavailable, "the source's answer", err)
	}
	return page, nil
}

// excerpt is the beginning of an answer, for messages.
func excerpt(b []byte) string {
	b = bytes.TrimSpace(b)
	if len(b) > 256 {
		b = append(b[:256:256], "..."...)
	}
	return strconv.Quote(string(b))
}
