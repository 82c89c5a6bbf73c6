// Package agentproxy is the listener of an agent or a proxy: it passes the requests of clients on to the server, with
// the agent's token where they have none, and keeps what they lease.
//
// What always holds:
//   - An answer is the server's own. From the cache come only answers that made a lease or a token, to the same request
//     with the same token, as long as the lease or the token lives.
//   - What is in the cache is renewed as long as that goes, and leaves the cache when it ends, when it is revoked
//     through here, and when the token ends that it belongs to.
//   - The cache has at most maxEntries answers and maxCacheBytes; what does not fit is passed on and not kept.
//   - Equal requests that come together are sent once, and answered alike if the answer can be kept.
//   - Bodies of requests are bounded by maxBody, and every request by the client's timeout, but for streams, which last
//     as long as the client listens.
//
// New does nothing; Run owns all goroutines.
package agentproxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/client/vaultagent/agentconfig"
	"corbel.dev/corbel/client/vaultagent/autoauth"
)

const (
	// maxBody bounds a request, as servers do.
	maxBody = 32 << 20
	// maxKept bounds an answer that is looked into and may be kept.
	maxKept = 1 << 20
)

// Config says where to listen and how to pass on.
type Config struct {
	Role      agentconfig.Role
	Listeners []agentconfig.Listener
	Proxy     agentconfig.APIProxy
	Cache     bool
	Vault     vault.Config     // how the server is reached; its token is not used
	Tokens    *autoauth.Tokens // the agent's; nil: none
	Counts    *Counts
	Log       *slog.Logger // nil: nothing is logged
	// Quit ends the process; nil: it cannot be asked to.
	Quit func()
}

// Proxy passes requests on.
type Proxy struct {
	cfg    Config
	log    *slog.Logger
	client *vault.Client
	cache  *cache // nil: none
	certs  *certificates

	mu      sync.Mutex // guards both
	index   string     // the newest state of the server that was seen
	flights map[string]chan struct{}
}

// New checks the configuration.
func New(cfg Config) (*Proxy, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Counts == nil {
		cfg.Counts = &Counts{}
	}
	if cfg.Proxy.EnforceConsistency && cfg.Proxy.Inconsistent == "fail" {
		cfg.Vault.Retries = 0
	}
	if cfg.Vault.Timeout == 0 {
		cfg.Vault.Timeout = time.Minute
	}
	client, err := vault.New(cfg.Vault)
	if err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, log: cfg.Log, client: client, flights: map[string]chan struct{}{}}
	if cfg.Cache {
		p.cache = newCache()
	}
	if p.certs, err = newCertificates(cfg.Listeners); err != nil {
		return nil, err
	}
	return p, nil
}

// Reload reads the certificates of the listeners anew; those that cannot be read stay.
func (p *Proxy) Reload() error { return p.certs.reload() }

// handler answers at a listener.
func (p *Proxy) handler(l agentconfig.Listener) http.Handler {
	own := "/" + string(p.cfg.Role) + "/v1/"
	mux := http.NewServeMux()
	mux.HandleFunc(own+"metrics", p.cfg.Counts.serve)
	if !l.MetricsOnly {
		mux.HandleFunc("/v1/", p.forward)
		if p.cache != nil {
			mux.HandleFunc(own+"cache-clear", p.clear)
		}
		if l.EnableQuit && p.cfg.Quit != nil {
			mux.HandleFunc(own+"quit", func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost && r.Method != http.MethodPut {
					refuse(w, http.StatusMethodNotAllowed, "quit with POST")
					return
				}
				p.log.Info("the process ends: it was asked to")
				p.cfg.Quit()
			})
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "there is nothing at "+r.URL.Path)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.RequireRequestHeader && !strings.EqualFold(r.Header.Get("X-Vault-Request"), "true") {
			refuse(w, http.StatusPreconditionFailed, "missing 'X-Vault-Request' header")
			return
		}
		if strings.HasPrefix(r.URL.Path, "/v1/") && !l.MetricsOnly { // the mux would clean its path
			p.forward(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string][]string{"errors": {text}}) // to a client that may have gone
}

// request is what is passed on.
type request struct {
	method, target string // target: path and query, as they came
	path           string // below /v1/
	token          string
	header         http.Header
	body           []byte
}

// dropped are headers that are of the way, not of the request.
var dropped = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Proxy-Authorization", "Proxy-Authenticate", "Accept-Encoding", "Authorization", "Content-Length"}

// read makes a request of a client's.
func (p *Proxy) read(w http.ResponseWriter, r *http.Request) (*request, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // it was the request's: the answer has its own
	q := &request{method: r.Method, target: r.URL.RequestURI(), header: r.Header.Clone(), body: body}
	path, _, _ := strings.Cut(q.target, "?")
	q.path = strings.TrimPrefix(path, "/v1/")
	q.token = r.Header.Get("X-Vault-Token")
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && q.token == "" {
		q.token = strings.TrimSpace(bearer)
	}
	for _, name := range dropped {
		q.header.Del(name)
	}
	q.header.Set("X-Vault-Request", "true")
	if auto := p.auto(); auto != "" && (q.token == "" || p.cfg.Proxy.Force) {
		q.token = auto
	}
	q.header.Del("X-Vault-Token")
	if q.token != "" {
		q.header.Set("X-Vault-Token", q.token)
	}
	if ns := p.cfg.Vault.Namespace; ns != "" {
		asked := strings.Trim(q.header.Get("X-Vault-Namespace"), "/")
		switch {
		case asked == "":
			q.header.Set("X-Vault-Namespace", ns)
		case p.cfg.Proxy.PrependNamespace:
			q.header.Set("X-Vault-Namespace", strings.Trim(ns, "/")+"/"+asked)
		}
	}
	if p.cfg.Proxy.EnforceConsistency {
		p.mu.Lock()
		index := p.index
		p.mu.Unlock()
		if q.header.Get("X-Vault-Index") == "" && index != "" {
			q.header.Set("X-Vault-Index", index)
		}
		if p.cfg.Proxy.Inconsistent == "forward" {
			q.header.Set("X-Vault-Inconsistent", "forward-active-node")
		}
	}
	return q, nil
}

// auto is the agent's token, "" where requests do not get it.
func (p *Proxy) auto() string {
	if p.cfg.Tokens == nil || !p.cfg.Proxy.UseAutoAuthToken {
		return ""
	}
	token, _ := p.cfg.Tokens.Get()
	return token
}

func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	q, err := p.read(w, r)
	if err != nil {
		status := http.StatusBadRequest
		if errors.As(err, new(*http.MaxBytesError)) {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(w, status, err.Error())
		return
	}
	if p.cache == nil || streams(q.path) {
		p.pass(w, r, q)
		return
	}
	p.cached(w, r, q)
}

// streams reports whether an answer comes for as long as the client listens.
func streams(path string) bool {
	for _, prefix := range []string{"sys/monitor", "sys/events/", "sys/storage/raft/snapshot", "sys/pprof/"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// send asks the server.
func (p *Proxy) send(ctx context.Context, q *request) (*http.Response, context.CancelFunc, error) {
	cancel := context.CancelFunc(func() {})
	if !streams(q.path) {
		ctx, cancel = context.WithTimeout(ctx, p.cfg.Vault.Timeout)
	}
	resp, err := p.client.Forward(ctx, q.method, q.target, q.header, q.body)
	if err != nil {
		cancel()
		p.cfg.Counts.Add("proxy.error")
		return nil, nil, err
	}
	switch {
	case resp.StatusCode < 400:
		p.cfg.Counts.Add("proxy.success")
	case resp.StatusCode < 500:
		p.cfg.Counts.Add("proxy.client_error")
	default:
		p.cfg.Counts.Add("proxy.error")
	}
	if index := resp.Header.Get("X-Vault-Index"); index != "" && p.cfg.Proxy.EnforceConsistency {
		p.mu.Lock()
		p.index = index
		p.mu.Unlock()
	}
	return resp, cancel, nil
}

// pass sends a request and its answer on.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, q *request) {
	resp, cancel, err := p.send(r.Context(), q)
	if err != nil {
		p.unreached(w, r, err)
		return
	}
	defer cancel()
	defer resp.Body.Close()
	head(w, resp.Header, resp.StatusCode)
	flow(w, resp.Body)
}

func (p *Proxy) unreached(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has gone
	}
	p.log.Warn("a request was not answered", "path", r.URL.Path, "error", err)
	refuse(w, http.StatusBadGateway, fmt.Sprintf("the server did not answer: %v", err))
}

func head(w http.ResponseWriter, from http.Header, status int) {
	for name, values := range from {
		w.Header()[name] = values
	}
	for _, name := range dropped {
		w.Header().Del(name)
	}
	w.WriteHeader(status)
}

// flow copies a body as it comes.
func flow(w http.ResponseWriter, body io.Reader) {
	buf := make([]byte, 32<<10)
	rc := http.NewResponseController(w)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return
			}
			_ = rc.Flush() // a client that has gone is seen by the next write
		}
		if err != nil {
			return
		}
	}
}

// clear empties the cache, or a part of it.
func (p *Proxy) clear(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		refuse(w, http.StatusMethodNotAllowed, "clear the cache with POST")
		return
	}
	var in struct{ Type, Value, Namespace string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, "the body must be JSON with type and value: "+err.Error())
		return
	}
	if in.Value == "" && in.Type != "all" && in.Type != "" {
		refuse(w, http.StatusBadRequest, "value is missing: what to clear")
		return
	}
	ns := strings.Trim(cmp.Or(in.Namespace, r.Header.Get("X-Vault-Namespace"), p.cfg.Vault.Namespace), "/")
	value := strings.Trim(strings.TrimPrefix(strings.TrimPrefix(in.Value, "/"), "v1/"), "/")
	switch in.Type {
	case "all":
		p.cache.drop(func(*kept) bool { return true })
	case "request_path":
		p.cache.drop(func(k *kept) bool { return k.namespace == ns && strings.HasPrefix(k.path, value) })
	case "lease":
		p.cache.drop(func(k *kept) bool { return k.lease != "" && k.lease == in.Value })
	case "token":
		p.cache.dropToken(in.Value)
	case "token_accessor":
		p.cache.dropAccessor(in.Value)
	default:
		refuse(w, http.StatusBadRequest, "type must be request_path, lease, token, token_accessor or all")
	}
}
