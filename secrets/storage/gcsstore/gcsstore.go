// Package gcsstore gives a bucket of Google Cloud Storage to objectstore.
//
// It speaks the JSON API. Each write names the generation of the object that it follows, 0 where there is none, and
// the service refuses one that follows another. An emulator that ignores that would make two servers active at once,
// so whoever opens a bucket asks Check first. No request that may have been done is sent again by itself.
package gcsstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/objectstore"
)

// Config says where.
type Config struct {
	Bucket string
	// Endpoint is host:port, then of HTTP, or a URL; default Google's.
	Endpoint string
	// Tokens are sent with each request; nil sends none, as emulators want it.
	Tokens *Tokens
	// Transport replaces the network's defaults in tests.
	Transport http.RoundTripper
}

// Bucket is one.
type Bucket struct {
	cfg  Config
	base string // of the endpoint
	name string // escaped
	cl   *http.Client
}

var _ objectstore.Bucket = (*Bucket)(nil)

const (
	// callTime bounds one request, and valueBytes what one carries: larger objects are in parts.
	callTime   = 30 * time.Second
	valueBytes = 64 << 20
)

// New makes a bucket. It does no network.
func New(cfg Config) (*Bucket, error) {
	if cfg.Bucket == "" {
		return nil, errors.New("bucket: is missing")
	}
	base := cmp.Or(cfg.Endpoint, "https://storage.googleapis.com")
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the endpoint %q must be host:port, http://host or https://host", cfg.Endpoint)
	}
	if cfg.Transport == nil {
		cfg.Transport = transport(http.ProxyFromEnvironment)
	}
	return &Bucket{cfg, strings.TrimSuffix(u.String(), "/"), url.PathEscape(cfg.Bucket), client(cfg.Transport)}, nil
}

func transport(proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{Proxy: proxy, DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: 15 * time.Second, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 4,
		DisableCompression: true}
}

// client follows no redirects: neither tokens nor writes go where nobody configured.
func client(t http.RoundTripper) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// Close drops idle connections.
func (b *Bucket) Close() {
	b.cl.CloseIdleConnections()
	if b.cfg.Tokens != nil {
		b.cfg.Tokens.Close()
	}
}

// Info implements objectstore.Bucket.
func (b *Bucket) Info() storage.Info {
	return storage.Info{Name: "gcs", ValueBytes: valueBytes,
		Durability: "a commit is an object that the service acknowledged before it returns: it outlives what the bucket " +
			"outlives"}
}

// Check finds out whether we may do all that is needed, and whether the service keeps to preconditions: it writes an
// object, tries to write it again and to replace what it is not, and removes it.
func (b *Bucket) Check(ctx context.Context) error {
	var number [8]byte
	_, _ = rand.Read(number[:])
	key := "check/" + hex.EncodeToString(number[:])
	if err := b.Create(ctx, key, []byte("1")); err != nil {
		return err
	}
	again, other := b.Create(ctx, key, []byte("2")), b.Replace(ctx, key, []byte("3"), "1")
	_, listErr := b.List(ctx, "check/", "")
	err := b.Delete(ctx, key)
	for _, outcome := range []error{again, other} {
		if outcome == nil {
			return errkind.Errorf(errkind.Invalid,
				"bucket %s: the service does not keep to ifGenerationMatch, without which two servers could write at once",
				b.cfg.Bucket)
		}
		if !errkind.Is(outcome, errkind.Conflict) {
			return outcome
		}
	}
	if errkind.Is(err, errkind.Unavailable) { // too soon after the write: the object stays, and is in nobody's way
		err = nil
	}
	return errors.Join(listErr, err)
}

// object is the path of one.
func (b *Bucket) object(key string) string {
	return "/storage/v1/b/" + b.name + "/o/" + url.PathEscape(key)
}

// call does a request. unclear is the kind of an error when nobody knows what was done.
func (b *Bucket) call(ctx context.Context, method, path string, query url.Values, body []byte,
	unclear errkind.Kind) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	for first := true; ; first = false {
		r, err := http.NewRequestWithContext(ctx, method, b.base+path+"?"+query.Encode(), bytes.NewReader(body))
		if err != nil {
			return nil, nil, errkind.E(errkind.Invalid, "gcs", err)
		}
		if body != nil {
			r.Header.Set("Content-Type", "application/octet-stream")
		}
		var token string
		if b.cfg.Tokens != nil {
			if token, err = b.cfg.Tokens.Get(ctx); err != nil {
				return nil, nil, err
			}
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := b.cl.Do(r)
		if err != nil {
			return nil, nil, errkind.E(unclear, "gcs", err)
		}
		data, err := io.ReadAll(io.LimitReader(answer.Body, valueBytes+1))
		_ = answer.Body.Close() // read to its end, or given up
		if answer.StatusCode == http.StatusUnauthorized && token != "" && first {
			b.cfg.Tokens.Drop(ctx, token) // revoked before its time; nothing was done
			continue
		}
		if err == nil && len(data) > valueBytes {
			err = errkind.Errorf(errkind.TooLarge, "an answer of more than %d bytes", valueBytes)
		}
		if err != nil {
			return nil, nil, errkind.E(unclear, "gcs", err)
		}
		return data, answer.Header, outcome(answer.StatusCode, data, unclear)
	}
}

// outcome says what an answer means. The service's documentation does not say of any 5xx, nor of 408, that nothing
// was done.
func outcome(status int, body []byte, unclear errkind.Kind) error {
	if status >= 200 && status < 300 {
		return nil
	}
	text := errorText(body)
	kind := errkind.Invalid
	switch {
	case status == http.StatusPreconditionFailed:
		kind = errkind.Conflict
	case status == http.StatusNotFound && !strings.Contains(text, "bucket does not exist"):
		kind = errkind.NotFound
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		kind = errkind.Denied
	case status == http.StatusTooManyRequests, status == http.StatusConflict: // 409: two at once, ask again
		kind = errkind.Unavailable
	case status == http.StatusRequestTimeout, status >= 500:
		kind = unclear
	}
	return errkind.Errorf(kind, "gcs: %d %s", status, text)
}

// errorText takes the message out of an answer's body, as the API or the token endpoint writes it.
func errorText(body []byte) string {
	var api struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &api) == nil && api.Error.Message != "" {
		return api.Error.Message
	}
	var oauth struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if json.Unmarshal(body, &oauth) == nil && oauth.Error != "" {
		return strings.TrimSuffix(oauth.Error+": "+oauth.Description, ": ")
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), 300)]), ""))
}

// Get implements objectstore.Bucket. The tag is the object's generation.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, string, error) {
	data, header, err := b.call(ctx, http.MethodGet, b.object(key), url.Values{"alt": {"media"}}, nil, errkind.Unavailable)
	if err != nil {
		return nil, "", err
	}
	tag := header.Get("X-Goog-Generation")
	if tag == "" {
		return nil, "", errkind.New(errkind.Unavailable, "gcs: an answer without x-goog-generation")
	}
	return data, tag, nil
}

// Create implements objectstore.Bucket.
func (b *Bucket) Create(ctx context.Context, key string, data []byte) error {
	return b.Replace(ctx, key, data, "0")
}

// Replace implements objectstore.Bucket.
func (b *Bucket) Replace(ctx context.Context, key string, data []byte, tag string) error {
	query := url.Values{"uploadType": {"media"}, "name": {key}, "ifGenerationMatch": {tag}, "fields": {"generation"}}
	_, _, err := b.call(ctx, http.MethodPost, "/upload/storage/v1/b/"+b.name+"/o", query, data, errkind.Unknown)
	return err
}

// Delete implements objectstore.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	_, _, err := b.call(ctx, http.MethodDelete, b.object(key), nil, nil, errkind.Unknown)
	if errkind.Is(err, errkind.NotFound) {
		return nil
	}
	return err
}

// List implements objectstore.Bucket. Pages of the service may hold nothing and yet not be the last.
func (b *Bucket) List(ctx context.Context, prefix, after string) ([]string, error) {
	query := url.Values{"prefix": {prefix}, "maxResults": {"1000"}, "fields": {"items/name,nextPageToken"}}
	if after != "" {
		query.Set("startOffset", after) // inclusive
	}
	for {
		data, _, err := b.call(ctx, http.MethodGet, "/storage/v1/b/"+b.name+"/o", query, nil, errkind.Unavailable)
		if err != nil {
			return nil, err
		}
		var page struct {
			Items []struct {
				Name string `json:"name"`
			} `json:"items"`
			NextPageToken string `json:"nextPageToken"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return nil, errkind.E(errkind.Unavailable, "gcs: a list", err)
		}
		var keys []string
		for _, o := range page.Items {
			if o.Name > after {
				keys = append(keys, o.Name)
			}
		}
		if len(keys) > 0 || page.NextPageToken == "" {
			return keys, nil
		}
		query.Set("pageToken", page.NextPageToken)
	}
}
