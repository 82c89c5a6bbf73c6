// Package consulstore gives the KV of Consul, or of Corbel's catalog in another process, as a bucket for objectstore.
//
// It speaks the HTTP API: reads are consistent, writes compare and set. A value has at most 512 KiB there, so
// large commits are in parts.
package consulstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/objectstore"
)

// Config says where.
type Config struct {
	Address string // host:port or a URL; default 127.0.0.1:8500
	Scheme  string // where Address has none; default http
	Path    string // prefix of the keys; default vault/
	Token   string
	// Transport replaces the network's defaults: TLS, tests.
	Transport http.RoundTripper
}

// valueBytes is Consul's limit of a value.
const valueBytes = 512 << 10

// Bucket is a prefix of the KV.
type Bucket struct {
	cfg  Config
	base string
	cl   *http.Client
}

var _ objectstore.Bucket = (*Bucket)(nil)

// callTime bounds one request.
const callTime = 15 * time.Second

// New makes a bucket. It does no network.
func New(cfg Config) (*Bucket, error) {
	if cfg.Address == "" {
		cfg.Address = "127.0.0.1:8500"
	}
	if cfg.Scheme == "" {
		cfg.Scheme = "http"
	}
	if !strings.Contains(cfg.Address, "://") {
		cfg.Address = cfg.Scheme + "://" + cfg.Address
	}
	u, err := url.Parse(cfg.Address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("address: %q must be host:port, http://host or https://host", cfg.Address)
	}
	if cfg.Path = strings.Trim(cfg.Path, "/"); cfg.Path == "" {
		cfg.Path = "vault"
	}
	if cfg.Transport == nil {
		cfg.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 4,
			IdleConnTimeout: time.Minute, ResponseHeaderTimeout: callTime}
	}
	return &Bucket{cfg: cfg, base: strings.TrimSuffix(u.String(), "/") + "/v1/kv/" + escape(cfg.Path) + "/",
		cl: &http.Client{Transport: cfg.Transport, Timeout: callTime}}, nil
}

func escape(path string) string { return (&url.URL{Path: path}).EscapedPath() }

// Close drops idle connections.
func (b *Bucket) Close() { b.cl.CloseIdleConnections() }

// Info implements objectstore.Bucket.
func (b *Bucket) Info() storage.Info {
	return storage.Info{Name: "consul", ValueBytes: valueBytes,
		Durability: "a commit is in the log of a quorum of Consul's servers before it returns: it outlives what they outlive"}
}

// call does a request; writes says that its outcome may be unknown.
func (b *Bucket) call(ctx context.Context, method, key, query string, body []byte, writes bool) ([]byte, error) {
	unclear := errkind.Unavailable
	if writes {
		unclear = errkind.Unknown
	}
	r, err := http.NewRequestWithContext(ctx, method, b.base+escape(key)+query, bytes.NewReader(body))
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "consul", err)
	}
	if b.cfg.Token != "" {
		r.Header.Set("X-Consul-Token", b.cfg.Token)
	}
	answer, err := b.cl.Do(r)
	if err != nil {
		return nil, errkind.E(unclear, "consul", err)
	}
	defer answer.Body.Close()
	const most = 64 << 20
	data, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err != nil {
		return nil, errkind.E(unclear, "consul", err)
	}
	return data, outcome(answer.StatusCode, data, unclear)
}

// outcome says what an answer means.
func outcome(status int, body []byte, unclear errkind.Kind) error {
	text := strings.TrimSpace(string(body[:min(len(body), 300)]))
	switch {
	case status < 300:
		return nil
	case status == http.StatusNotFound:
		return errkind.New(errkind.NotFound, "consul: there is no such key")
	case status == http.StatusForbidden:
		return errkind.Errorf(errkind.Denied, "consul: %s", text)
	case status == http.StatusTooManyRequests:
		return errkind.Errorf(errkind.Overloaded, "consul: %d %s", status, text)
	case status == http.StatusRequestEntityTooLarge:
		return errkind.Errorf(errkind.TooLarge, "consul: %s", text)
	case status < 500, strings.Contains(text, "No cluster leader"), status == http.StatusServiceUnavailable:
		return errkind.Errorf(errkind.Unavailable, "consul: %d %s", status, text)
	}
	return errkind.Errorf(unclear, "consul: %d %s", status, text)
}

// Get implements objectstore.Bucket. The tag is the key's ModifyIndex.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, string, error) {
	data, err := b.call(ctx, http.MethodGet, key, "?consistent", nil, false)
	if err != nil {
		return nil, "", err
	}
	var list []struct {
		Value       []byte
		ModifyIndex uint64
	}
	if err := json.Unmarshal(data, &list); err != nil || len(list) != 1 {
		return nil, "", errkind.E(errkind.Unavailable, "consul", errors.Join(err, fmt.Errorf("%d keys for one", len(list))))
	}
	return list[0].Value, strconv.FormatUint(list[0].ModifyIndex, 10), nil
}

// Create implements objectstore.Bucket.
func (b *Bucket) Create(ctx context.Context, key string, data []byte) error {
	return b.set(ctx, key, data, "0")
}

// Replace implements objectstore.Bucket.
func (b *Bucket) Replace(ctx context.Context, key string, data []byte, tag string) error {
	return b.set(ctx, key, data, tag)
}

func (b *Bucket) set(ctx context.Context, key string, data []byte, index string) error {
	answer, err := b.call(ctx, http.MethodPut, key, "?cas="+index, data, true)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(answer)) != "true" {
		return errkind.Errorf(errkind.Conflict, "consul: %s was changed by another", key)
	}
	return nil
}

// Delete implements objectstore.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	_, err := b.call(ctx, http.MethodDelete, key, "", nil, true)
	return err
}

// List implements objectstore.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, after string) ([]string, error) {
	data, err := b.call(ctx, http.MethodGet, prefix, "?keys&consistent", nil, false)
	if errkind.Is(err, errkind.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var keys []string
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, errkind.E(errkind.Unavailable, "consul", err)
	}
	out := keys[:0]
	for _, key := range keys {
		if rest, ok := strings.CutPrefix(key, b.cfg.Path+"/"); ok && rest > after {
			out = append(out, rest)
		}
	}
	slices.Sort(out)
	return out, nil
}
