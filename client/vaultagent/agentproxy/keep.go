package agentproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// counted are the headers that make another request of a request.
var counted = []string{"X-Vault-Namespace", "X-Vault-Wrap-Ttl", "X-Vault-Wrap-Format", "X-Vault-Policy-Override",
	"X-Vault-Mfa"}

// key is what equal requests have in common.
func (q *request) key() string {
	h := sha256.New()
	part := func(s string) { fmt.Fprintf(h, "%d:%s,", len(s), s) }
	part(q.method)
	part(q.target)
	part(q.token)
	for _, name := range counted {
		part(strings.Join(q.header.Values(name), ","))
	}
	part(string(q.body))
	return string(h.Sum(nil))
}

// envelope is what matters of an answer.
type envelope struct {
	LeaseID       string          `json:"lease_id"`
	LeaseDuration int64           `json:"lease_duration"`
	Renewable     bool            `json:"renewable"`
	Wrap          json.RawMessage `json:"wrap_info"`
	Auth          *struct {
		ClientToken   string `json:"client_token"`
		Accessor      string `json:"accessor"`
		LeaseDuration int64  `json:"lease_duration"`
		Renewable     bool   `json:"renewable"`
	} `json:"auth"`
}

// cached answers from the cache, or sends the request and keeps what can be kept.
func (p *Proxy) cached(w http.ResponseWriter, r *http.Request, q *request) {
	key := q.key()
	k, plain := p.cache.get(key, time.Now())
	if k == nil && !plain {
		end, waited := p.fly(r.Context(), key)
		defer end()
		if waited {
			k, _ = p.cache.get(key, time.Now())
		}
	}
	if k != nil {
		p.cfg.Counts.Add("cache.hit")
		w.Header().Set("X-Cache", "HIT")
		w.Header().Set("Age", strconv.Itoa(int(time.Since(k.at).Seconds())))
		head(w, k.header, http.StatusOK)
		_, _ = w.Write(k.body) // to a client that may have gone
		return
	}
	p.cfg.Counts.Add("cache.miss")
	resp, cancel, err := p.send(r.Context(), q)
	if err != nil {
		p.unreached(w, r, err)
		return
	}
	defer cancel()
	defer resp.Body.Close()
	w.Header().Set("X-Cache", "MISS")
	start, err := io.ReadAll(io.LimitReader(resp.Body, maxKept+1))
	if err != nil {
		p.unreached(w, r, err)
		return
	}
	if resp.StatusCode == http.StatusOK && len(start) <= maxKept {
		if k := p.keeps(q, key, resp.Header, start); k == nil {
			p.cache.isPlain(key)
		} else if !p.cache.put(k) {
			p.log.Warn("the cache is full: an answer was not kept", "path", q.path)
		}
	}
	if resp.StatusCode < 300 {
		p.revoked(q)
	}
	head(w, resp.Header, resp.StatusCode)
	if len(start) > maxKept {
		flow(w, io.MultiReader(bytes.NewReader(start), resp.Body))
		return
	}
	_, _ = w.Write(start) // to a client that may have gone
}

// fly lets one of equal requests go at a time: it waits for the one before, if there is one, and says so. Who waited
// for another one goes without a turn of its own.
func (p *Proxy) fly(ctx context.Context, key string) (end func(), waited bool) {
	p.mu.Lock()
	before, ok := p.flights[key]
	if !ok {
		done := make(chan struct{})
		p.flights[key] = done
		p.mu.Unlock()
		return func() {
			p.mu.Lock()
			delete(p.flights, key)
			p.mu.Unlock()
			close(done)
		}, false
	}
	p.mu.Unlock()
	select {
	case <-before:
	case <-ctx.Done():
	}
	return func() {}, true
}

// keeps makes of an answer what can be kept; nil: it is not for keeping.
func (p *Proxy) keeps(q *request, key string, header http.Header, body []byte) *kept {
	var e envelope
	if json.Unmarshal(body, &e) != nil || len(e.Wrap) > 0 && string(e.Wrap) != "null" {
		return nil
	}
	k := &kept{key: key, path: q.path, namespace: strings.Trim(q.header.Get("X-Vault-Namespace"), "/"), token: q.token,
		header: header.Clone(), body: body, at: time.Now(), place: -1}
	own := func() bool { return q.token != "" && (q.token == p.auto() || p.cache.knows(q.token)) }
	switch {
	case e.Auth != nil && e.Auth.ClientToken != "":
		login := strings.HasPrefix(q.path, "auth/") && strings.Contains(q.path, "/login")
		if !login && !strings.HasPrefix(q.path, "auth/token/create") || !login && !own() || e.Auth.LeaseDuration <= 0 {
			return nil
		}
		if login {
			k.token = "" // the new token belongs to none
		}
		k.made, k.accessor = e.Auth.ClientToken, e.Auth.Accessor
		k.life = started(k.at, time.Duration(e.Auth.LeaseDuration)*time.Second, e.Auth.Renewable)
	case e.LeaseID != "" && e.LeaseDuration > 0 && own() && !strings.HasPrefix(q.path, "sys/leases/"):
		k.lease = e.LeaseID
		k.life = started(k.at, time.Duration(e.LeaseDuration)*time.Second, e.Renewable)
	default:
		return nil
	}
	return k
}

// revoked takes out what a request has revoked.
func (p *Proxy) revoked(q *request) {
	if q.method != http.MethodPut && q.method != http.MethodPost {
		return
	}
	var in struct {
		Token    string `json:"token"`
		Accessor string `json:"accessor"`
		LeaseID  string `json:"lease_id"`
	}
	_ = json.Unmarshal(q.body, &in) // without a body the path says it
	rest := func(prefix string) string { return strings.TrimPrefix(strings.TrimPrefix(q.path, prefix), "/") }
	leases := strings.TrimPrefix(q.path, "sys/leases/")
	if leases == q.path {
		leases = strings.TrimPrefix(q.path, "sys/")
	}
	switch {
	case q.path == "auth/token/revoke-self":
		p.cache.dropToken(q.token)
	case q.path == "auth/token/revoke":
		p.cache.dropToken(in.Token)
	case q.path == "auth/token/revoke-orphan":
		p.cache.dropOrphaning(in.Token)
	case q.path == "auth/token/revoke-accessor":
		p.cache.dropAccessor(in.Accessor)
	case strings.HasPrefix(leases, "revoke-prefix/"), strings.HasPrefix(leases, "revoke-force/"):
		_, prefix, _ := strings.Cut(leases, "/")
		p.cache.dropPrefix(prefix)
	case leases == "revoke" || strings.HasPrefix(leases, "revoke/"):
		id := in.LeaseID
		if id == "" {
			id = rest(strings.TrimSuffix(q.path, leases) + "revoke")
		}
		p.cache.drop(func(k *kept) bool { return k.lease != "" && k.lease == id })
	}
}
