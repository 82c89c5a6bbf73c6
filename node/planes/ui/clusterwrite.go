package uiplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
)

// What is written in other clusters of the monitor plane: silences, with the login of whoever looks and by the
// cluster's own API, which judges their rights there.

// elsewhere is the plane of these writes: /CLUSTER/api/core/v2/namespaces/NAMESPACE/silenced/NAME.
const elsewhere = "elsewhere"

// silencePath is all that may be written elsewhere.
var silencePath = regexp.MustCompile(`^/api/core/v2/namespaces/[^/]+/silenced/[^/]+$`)

// maxSilence bounds a silence, and the answer to it.
const maxSilence = 64 << 10

// ServeHTTP implements http.Handler; the request has the person's login on it.
func (c *clusters) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	path = "/" + path
	name, err := url.PathUnescape(name)
	if err != nil || !silencePath.MatchString(path) || r.Method != http.MethodPut && r.Method != http.MethodDelete {
		http.Error(w, "in other clusters silences alone are written: PUT or DELETE /CLUSTER/api/core/v2/namespaces/"+
			"NAMESPACE/silenced/NAME", http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSilence))
	if err != nil {
		http.Error(w, "the silence: "+err.Error(), http.StatusBadRequest)
		return
	}
	urls, err := c.urls(r, name)
	switch {
	case errkind.Is(err, errkind.NotFound) && name == c.own:
		c.here(w, r, path, body)
		return
	case errkind.Is(err, errkind.NotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case errkind.Is(err, errkind.Denied):
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	for _, at := range urls {
		// It may be done twice: a silence of one name is one.
		if err = c.there(w, r, at, path, body); err == nil {
			return
		}
	}
	http.Error(w, fmt.Sprintf("the cluster %s: %s", name, errkind.Text(err)), http.StatusBadGateway)
}

// urls are the addresses of a cluster, as this one names them to whoever asks.
func (c *clusters) urls(r *http.Request, name string) ([]string, error) {
	q, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "/api/enterprise/federation/v1/clusters/"+
		url.PathEscape(name), nil)
	if err != nil {
		return nil, err
	}
	q.RequestURI, q.RemoteAddr = q.URL.RequestURI(), r.RemoteAddr
	q.Header.Set("Authorization", r.Header.Get("Authorization"))
	answer, err := httpx.Answer(c.web.API, q)
	if err != nil {
		return nil, err
	}
	var named struct {
		Spec struct {
			URLs []string `json:"api_urls"`
		} `json:"spec"`
	}
	switch {
	case answer.Status == http.StatusNotFound:
		return nil, errkind.Errorf(errkind.NotFound, "no cluster %q is named here", name)
	case answer.Status == http.StatusUnauthorized, answer.Status == http.StatusForbidden:
		return nil, errkind.New(errkind.Denied, "this session may not read which clusters there are: it needs a login of "+
			"the monitor plane with that right")
	case answer.Status != http.StatusOK:
		return nil, errkind.Errorf(errkind.Unavailable, "the cluster %s: %s", name, bytes.TrimSpace(answer.Body))
	}
	if err := json.Unmarshal(answer.Body, &named); err != nil {
		return nil, err
	}
	if len(named.Spec.URLs) == 0 {
		return nil, errkind.Errorf(errkind.Unavailable, "the cluster %s has no api_urls", name)
	}
	return named.Spec.URLs, nil
}

// here writes in this cluster.
func (c *clusters) here(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	own := r.Clone(r.Context())
	own.Body, own.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	at, err := url.Parse(path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	own.URL, own.RequestURI = at, path
	c.web.API.ServeHTTP(w, own)
}

// there writes at an address of another cluster and passes its answer on; an error tells that nothing answered.
func (c *clusters) there(w http.ResponseWriter, r *http.Request, at, path string, body []byte) error {
	if err := mayShow(at); err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(r.Context(), r.Method, strings.TrimSuffix(at, "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", r.Header.Get("Authorization"))
	q.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(q)
	if err != nil {
		return errkind.E(errkind.Unavailable, "", err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	said, err := io.ReadAll(io.LimitReader(answer.Body, maxSilence))
	if err != nil {
		return errkind.E(errkind.Unavailable, "", err)
	}
	status := answer.StatusCode
	if status == http.StatusUnauthorized { // the session here goes on
		status, said = http.StatusForbidden, []byte(notKnownThere)
	}
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(status)
	_, _ = w.Write(said) // the browser may be gone
	return nil
}

// notKnownThere says how a login becomes one of another cluster.
const notKnownThere = "this login is not known there: replicate users or API keys (docs/monitor-federation.md); " +
	"passwords need monitor.jwt_private_key_file to be the same there"

// mayShow refuses an address that would show a login to the network in plain text.
func mayShow(at string) error {
	to, err := url.Parse(at)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(to.Hostname()); to.Scheme != "https" && to.Hostname() != "localhost" &&
		(ip == nil || !ip.IsLoopback()) {
		return errkind.New(errkind.Unavailable, "api_urls: a login is shown over https alone")
	}
	return nil
}
