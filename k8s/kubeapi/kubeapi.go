// Package kubeapi speaks to a Kubernetes API server: lists, watches and writes of objects, over HTTP and JSON.
//
// It is no client library: it knows no types, and of the API's conventions those that a mirror needs. Lists come in
// pages; a watch goes on from a resource version and is kept going by bookmarks; 410 Gone means to list again. Client
// and Mirror are safe for concurrent use. Every call has a deadline, every answer a bound; the token is read from its
// file again as the kubelet renews it.
//
// client-go does all this and more; docs/decisions/0007-kubernetes-client.md says why it is not used.
package kubeapi

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
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/k8s"
	"corbel.dev/corbel/kit/errkind"
)

// Config says which API server to talk to and how.
type Config struct {
	Host      string // https://host:port
	TokenFile string // read again each minute
	Token     string // where there is no file of it
	CAFile    string // PEM; "" is the system's authorities
	CA        []byte // PEM, where there is no file of it
	// Cert is what this client shows; nil is none.
	Cert *tls.Certificate
	// ServerName is whose certificate is expected; "" is the host's.
	ServerName string
	Timeout    time.Duration
	// Transport answers in place of the network; nil is the network.
	Transport http.RoundTripper
}

// accountDir is where the kubelet puts a pod's token and the authority.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster is the Config of a pod.
func InCluster(getenv func(string) string) (Config, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return Config{}, errkind.New(errkind.Invalid, "this process runs in no pod (KUBERNETES_SERVICE_HOST is not set): "+
			"say --kube-api, --kube-token-file and --kube-ca-file")
	}
	return Config{Host: "https://" + net.JoinHostPort(host, port), TokenFile: accountDir + "/token",
		CAFile: accountDir + "/ca.crt"}, nil
}

const (
	// pageSize is how many objects a page of a list has: the API's own clients use 500.
	pageSize = "500"
	// maxPageBytes bounds a page.
	maxPageBytes = 256 << 20
	// tokenAge is how long a token is used before its file is read again.
	tokenAge = time.Minute
)

// Client talks to one API server.
type Client struct {
	cfg  Config
	http *http.Client

	mu    sync.Mutex // guards what follows
	token string
	read  time.Time
}

// New checks cfg and builds a Client. It does no network.
func New(cfg Config) (*Client, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	u, err := url.Parse(cfg.Host)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errkind.Errorf(errkind.Invalid, "the API server is %q; it must be https://host:port", cfg.Host)
	}
	cfg.Host = strings.TrimSuffix(cfg.Host, "/")
	dial := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	tr := &http.Transport{DialContext: dial.DialContext, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
		ResponseHeaderTimeout: cfg.Timeout, IdleConnTimeout: 90 * time.Second}
	tr.TLSClientConfig = &tls.Config{ServerName: cfg.ServerName, MinVersion: tls.VersionTLS12}
	if cfg.Cert != nil {
		tr.TLSClientConfig.Certificates = []tls.Certificate{*cfg.Cert}
	}
	pem := cfg.CA
	if cfg.CAFile != "" {
		if pem, err = os.ReadFile(cfg.CAFile); err != nil {
			return nil, errkind.E(errkind.Invalid, "read the API server's authority", err)
		}
	}
	if len(pem) > 0 {
		tr.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !tr.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errkind.Errorf(errkind.Invalid, "the API server's authority holds no certificate %s", cfg.CAFile)
		}
	}
	c := &Client{cfg: cfg, http: &http.Client{Transport: tr}}
	if cfg.Transport != nil {
		c.http.Transport = cfg.Transport
	}
	return c, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// StatusError is an answer that is not a success.
type StatusError struct {
	Code    int
	Reason  string
	Message string
	Path    string
}

// Error implements error.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("Kubernetes answers %s with %d %s: %s", e.Path, e.Code, e.Reason, e.Message)
	if e.Code == http.StatusForbidden {
		text += "; give the account that right with a ClusterRole"
	}
	return text
}

// Is reports whether err is an answer with this code.
func Is(err error, code int) bool {
	var e *StatusError
	return errors.As(err, &e) && e.Code == code
}

func (c *Client) bearer() (string, error) {
	if c.cfg.TokenFile == "" {
		return c.cfg.Token, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" && time.Since(c.read) < tokenAge {
		return c.token, nil
	}
	text, err := os.ReadFile(c.cfg.TokenFile)
	if err != nil {
		return "", errkind.E(errkind.Invalid, "read the account's token", err)
	}
	c.token, c.read = strings.TrimSpace(string(text)), time.Now()
	return c.token, nil
}

// send returns an answer of 2xx, whose body the caller closes.
func (c *Client) send(ctx context.Context, method, path string, q url.Values, kind string, body []byte) (*http.Response,
	error) {
	target := c.cfg.Host + path
	if len(q) > 0 {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		target += sep + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "make request", err)
	}
	req.Header.Set("Accept", "application/json")
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	token, err := c.bearer()
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "ask the API server", err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	e := &StatusError{Code: resp.StatusCode, Path: path}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the code matters, its text is a courtesy
	_ = json.Unmarshal(text, e)
	e.Code = resp.StatusCode
	return nil, e
}

func (c *Client) call(ctx context.Context, method, path string, q url.Values, kind string, body []byte,
	into any) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.send(ctx, method, path, q, kind, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPageBytes+1))
	switch {
	case err != nil:
		return errkind.E(errkind.Unavailable, "read the API server's answer", err)
	case len(text) > maxPageBytes:
		return errkind.Errorf(errkind.TooLarge, "the API server's answer is larger than %d bytes", maxPageBytes)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errkind.E(errkind.Invalid, "read the API server's answer", err)
	}
	return nil
}

// Get reads one object.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.call(ctx, http.MethodGet, path, nil, "", nil, into)
}

// Send writes with method an object, or a patch whose kind is its media type ("" is JSON).
func (c *Client) Send(ctx context.Context, method, path, kind string, object, into any) error {
	var body []byte
	if object != nil {
		var err error
		if body, err = json.Marshal(object); err != nil {
			return errkind.E(errkind.Invalid, "encode object", err)
		}
		if kind == "" {
			kind = "application/json"
		}
	}
	return c.call(ctx, method, path, nil, kind, body, into)
}

// List reads all pages and returns the resource version that they are of.
func (c *Client) List(ctx context.Context, path string, item func([]byte) error) (version string, err error) {
	q := url.Values{"limit": {pageSize}}
	for {
		var page struct {
			Metadata struct{ ResourceVersion, Continue string }
			Items    []json.RawMessage
		}
		if err := c.call(ctx, http.MethodGet, path, q, "", nil, &page); err != nil {
			return "", err
		}
		for _, raw := range page.Items {
			if err := item(raw); err != nil {
				return "", err
			}
		}
		if page.Metadata.Continue == "" {
			return page.Metadata.ResourceVersion, nil
		}
		q.Set("continue", page.Metadata.Continue)
	}
}

// Event is one event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK.
type Event struct {
	Type   string
	Object json.RawMessage
}

// Watch tells of changes after version until the server ends the watch, which is no error. The server is asked to do so
// after most; half a minute later the watch ends by itself.
func (c *Client) Watch(ctx context.Context, path, version string, most time.Duration, told func(Event) error) error {
	ctx, cancel := context.WithTimeout(ctx, most+30*time.Second)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, path, url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"},
		"resourceVersion": {version}, "timeoutSeconds": {fmt.Sprint(int(most.Seconds()))}}, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return readEvents(resp.Body, path, told)
}

// readEvents reads a stream of JSON values until it ends.
func readEvents(r io.Reader, path string, told func(Event) error) error {
	bounded := &bound{r: r, left: k8s.MaxObjectBytes}
	dec := json.NewDecoder(bounded)
	for {
		var e Event
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errkind.E(errkind.Unavailable, "watch "+path, err)
		}
		bounded.left = k8s.MaxObjectBytes
		if e.Type == "ERROR" {
			status := &StatusError{Path: path}
			if err := json.Unmarshal(e.Object, status); err != nil {
				return errkind.E(errkind.Invalid, "watch "+path, err)
			}
			return status
		}
		if err := told(e); err != nil {
			return err
		}
	}
}

// bound ends a stream whose next value is too large.
type bound struct {
	r    io.Reader
	left int
}

// Read implements io.Reader.
func (b *bound) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errkind.Errorf(errkind.TooLarge, "an event of more than %d bytes", k8s.MaxObjectBytes)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
