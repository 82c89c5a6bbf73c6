package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/telemetry"
)

// Between servers requests go as HTTP over the wire, whose certificates were checked before the first byte. Beside the
// clients' paths there are some of the servers' own.
const (
	echoPath     = "/-/echo"     // POST: a standby says that it is there
	statusPath   = "/-/status"   // GET: whether a server has its keys
	evidencePath = "/-/evidence" // GET: what a server knows about its own state

	// remoteHeader is the address of the client that a request came from.
	remoteHeader = "X-Corbel-Client-Address"
	// certHeader is the client's TLS certificates, DER in base64, its own first.
	certHeader = "X-Corbel-Client-Certificate"
	// fromHeader is the name of the host that hands a request on.
	fromHeader = "X-Corbel-From"
	// standbyHeader in an answer says that the server that it was handed to is not the active one, and did nothing.
	standbyHeader = "X-Corbel-Standby"

	maxParked   = 4096             // requests that wait for an active server
	parkedAtAll = 10 * time.Second // for so long
	parkedStep  = 50 * time.Millisecond
	maxEcho     = 64 << 10
)

// Via is how a request came here; the zero value is from its client itself.
type Via struct {
	Handed bool   // another server of the cluster handed it on
	Host   string // that server's host
}

// API answers the requests that other servers hand on.
type API interface {
	ServeVia(w http.ResponseWriter, r *http.Request, via Via)
}

// newProxy returns what handOn completes for each request: it has no Rewrite and no ErrorHandler.
func (c *Cluster) newProxy() *httputil.ReverseProxy {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			conn, err := c.cfg.Wire.Dial(ctx, addr, wire.ProtoSecrets, 0)
			if err != nil {
				return nil, &notSent{err}
			}
			return conn, nil
		},
		MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute, DisableCompression: true,
	}
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ModifyResponse: func(r *http.Response) error {
			if r.Header.Get(standbyHeader) != "" {
				return errElsewhere
			}
			return nil
		},
	}
}

// rewrite makes the request that goes to the leader.
func (c *Cluster) rewrite(r *httputil.ProxyRequest, leader *Server) {
	r.Out.URL.Scheme, r.Out.URL.Host = "http", leader.ClusterAddr
	r.Out.Host = r.In.Host
	r.Out.Header.Set(remoteHeader, r.In.RemoteAddr)
	r.Out.Header.Set(fromHeader, c.cfg.Self.Hostname)
	r.Out.Header[certHeader] = certificates(r.In.TLS)
	r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	if parent := telemetry.PassedOn(r.In.Context(), r.In.Header.Get("Traceparent")); parent != "" {
		r.Out.Header.Set("Traceparent", parent)
	}
}

// notSent is the error of a request that never left.
type notSent struct{ error }

// Unwrap gives the cause.
func (e *notSent) Unwrap() error { return e.error }

var errElsewhere = errors.New("that server is not the active one")

// Outcome says what became of a request that was to be handed on.
type Outcome int

// The outcomes.
const (
	Answered  Outcome = iota
	Serve             // this server has become the active one: it is to answer
	Redirect          // the client is to go there itself
	NoActive          // there is no active server
	Uncertain         // the active server went away meanwhile; it may have done what was asked
)

// Forward hands a request on to the active server and waits a while for one. Nothing was written unless the outcome is
// Answered. body is the request's, nil when it has none or is not to be sent again.
func (c *Cluster) Forward(w http.ResponseWriter, r *http.Request, body []byte) (Outcome, Server) {
	if c.parked.Add(1) > maxParked {
		c.parked.Add(-1)
		return NoActive, Server{}
	}
	defer c.parked.Add(-1)
	begun := c.cfg.Clock.Now()
	deadline := begun.Add(parkedAtAll)
	for {
		if c.keeper.Active() {
			return Serve, Server{}
		}
		leader, ok := c.Leader(r.Context())
		if ok && c.silent.of(leader.ID) {
			ok, deadline = false, begun.Add(parkedSilent)
		}
		if ok {
			if !c.cfg.Encrypted || r.Header.Get("X-Vault-No-Request-Forwarding") != "" {
				return Redirect, leader
			}
			err := c.handOn(w, r, leader, body)
			var unsent *notSent
			switch {
			case err == nil:
				return Answered, leader
			case r.Context().Err() != nil:
				return Uncertain, leader
			case errors.Is(err, errElsewhere) || errors.As(err, &unsent):
				c.known.Store(nil)
			case idempotent(r.Method):
				c.known.Store(nil)
			default:
				c.cfg.Log.Warn("secrets: the active server went away while it had a request", "server", leader.ClusterAddr,
					"error", err)
				return Uncertain, leader
			}
		}
		if c.cfg.Clock.Now().After(deadline) || r.Context().Err() != nil || c.keeper.Sealed() {
			if ok {
				return Redirect, leader
			}
			return NoActive, Server{}
		}
		c.sleep(r.Context(), parkedStep)
	}
}

func idempotent(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == "LIST"
}

func (c *Cluster) handOn(w http.ResponseWriter, r *http.Request, leader Server, body []byte) (err error) {
	client := r.Context()
	ctx, done := c.handed.begin(client, leader, c.cfg.Clock.Now)
	defer done()
	r = r.WithContext(ctx)
	if body != nil {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	begin := c.cfg.Clock.Now()
	one := *c.proxy
	one.Rewrite = func(r *httputil.ProxyRequest) { c.rewrite(r, &leader) }
	one.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, failed error) { err = failed }
	one.ServeHTTP(w, r)
	c.meters.forwarded(c.cfg.Clock.Since(begin), err, client.Err() != nil)
	return err
}

// RedirectTo is where a client finds what it asked for at another server; "" when that one has said no address.
func RedirectTo(leader Server, asked *url.URL) string {
	if leader.APIAddr == "" {
		return ""
	}
	to := strings.TrimSuffix(leader.APIAddr, "/") + asked.EscapedPath()
	if asked.RawQuery != "" {
		to += "?" + asked.RawQuery
	}
	return to
}

// own is where the paths of the servers' own begin; what is none of peerPaths is not there.
const own = "/-/"

// peerPaths is what servers ask of each other besides handing on the requests of clients. The wire lets nobody but
// servers come this far (serve).
var peerPaths = map[string]func(*peerHandler, http.ResponseWriter, *http.Request){
	echoPath: (*peerHandler).echo, statusPath: (*peerHandler).status, evidencePath: (*peerHandler).evidence,
}

// PeerPaths lists them.
func PeerPaths() []string { return slices.Sorted(maps.Keys(peerPaths)) }

// peerHandler serves what other servers send.
type peerHandler struct {
	c   *Cluster
	api API
}

// ServeHTTP implements http.Handler.
func (h *peerHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, own) {
		if serve := peerPaths[r.URL.Path]; serve != nil {
			serve(h, w, r)
			return
		}
		http.NotFound(w, r)
		return
	}
	if !h.c.cfg.Encrypted { // nobody proved to be a server, so nobody's word about a client counts
		http.Error(w, "requests are handed on over TLS alone", http.StatusForbidden)
		return
	}
	if !h.c.keeper.Active() {
		w.Header().Set(standbyHeader, "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if from := r.Header.Get(remoteHeader); from != "" {
		r.RemoteAddr = from
		r.Header.Del(remoteHeader)
	}
	from := r.Header.Get(fromHeader)
	r.Header.Del(fromHeader)
	r.TLS = shown(r.Header[certHeader]) // the client's connection, not the other server's
	r.Header.Del(certHeader)
	h.api.ServeVia(w, r, Via{Handed: true, Host: from})
	// A refusal may come before the body was read. The sender, who writes all of it, would find the connection closed
	// and not the answer: what it sends is taken, and kept nowhere.
	_, _ = io.Copy(io.Discard, r.Body) // one that went away is told nothing
}

// echo hears of a standby.
func (h *peerHandler) echo(w http.ResponseWriter, r *http.Request) {
	var s Server
	if json.NewDecoder(io.LimitReader(r.Body, maxEcho)).Decode(&s) == nil && s.ID != "" {
		h.c.hear(s)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (h *peerHandler) status(w http.ResponseWriter, _ *http.Request) {
	_ = json.NewEncoder(w).Encode(peerStatus{ID: h.c.cfg.Self.ID, Unsealed: !h.c.keeper.Sealed()})
}

func (h *peerHandler) evidence(w http.ResponseWriter, r *http.Request) {
	if h.c.cfg.Evidence == nil {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(h.c.cfg.Evidence())
}

// certificates are what a client showed on its connection, for certHeader.
func certificates(c *tls.ConnectionState) (out []string) {
	if c == nil {
		return nil
	}
	for i, cert := range c.PeerCertificates {
		if i == maxCerts {
			break
		}
		out = append(out, base64.StdEncoding.EncodeToString(cert.Raw))
	}
	return out
}

// shown is the client's connection as another server tells of it; nil where it showed nothing.
func shown(list []string) *tls.ConnectionState {
	out := &tls.ConnectionState{}
	for _, text := range list {
		der, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil
		}
		out.PeerCertificates = append(out.PeerCertificates, cert)
	}
	if len(out.PeerCertificates) == 0 {
		return nil
	}
	return out
}

// maxCerts bounds how many certificates of a client are told to the active server.
const maxCerts = 10

type peerStatus struct {
	ID       string `json:"id"`
	Unsealed bool   `json:"unsealed"`
}

// serve answers other servers until ctx ends.
func (c *Cluster) serve(ctx context.Context) {
	server := &http.Server{Handler: &peerHandler{c, c.api}, ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 5 * time.Minute,
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	l := c.cfg.Wire.Listen(wire.ProtoSecrets, 0, wire.Servers)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
			c.cfg.Log.Error("secrets: no longer answering other servers", "error", err)
		}
	}()
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if server.Shutdown(stop) != nil {
		_ = server.Close()
	}
	<-done
}

// StandbyAnswer marks an answer to another server: this one is not active, and did nothing.
func StandbyAnswer(h http.Header) { h.Set(standbyHeader, "1") }

// standby is what a server does that is not the active one.
type standby struct{ *Cluster }

// echo tells the active server, from time to time, that this one stands by.
func (c standby) echo(ctx context.Context) {
	client := &http.Client{Transport: c.proxy.Transport, Timeout: echoEvery}
	raw, err := json.Marshal(c.cfg.Self)
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		c.sleep(ctx, echoEvery)
		if c.cfg.Raft != nil {
			c.meters.tell(c.cfg.Raft)
		}
		if c.keeper.Sealed() || c.keeper.Active() {
			continue
		}
		if err := c.keeper.Refresh(ctx); c.stale(err) {
			continue
		} else if err != nil && ctx.Err() == nil {
			c.cfg.Log.Debug("secrets: the keyring could not be read anew", "error", err)
		}
		if err := c.identify(ctx); err != nil {
			continue
		}
		leader, ok := c.Leader(ctx)
		if !ok || !c.cfg.Encrypted || leader.ID == c.cfg.Self.ID {
			continue
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+leader.ClusterAddr+echoPath,
			bytes.NewReader(raw))
		if err != nil {
			continue
		}
		begin := c.cfg.Clock.Now()
		resp, err := client.Do(req)
		c.meters.echoed(c.cfg.Clock.Since(begin), err)
		if err == nil {
			_ = resp.Body.Close()
		}
	}
}

// yield hands the leadership of the Raft group to a member that has its keys, as long as this one has not: nobody
// could be the active server otherwise.
func (c standby) yield(ctx context.Context) {
	client := &http.Client{Transport: c.proxy.Transport, Timeout: 2 * time.Second}
	for ctx.Err() == nil {
		c.sleep(ctx, yieldEvery)
		g := c.cfg.Raft.group.Load()
		if g == nil || !g.IsLeader() || !c.keeper.Sealed() {
			continue
		}
		list, _, err := g.Configuration()
		if err != nil {
			continue
		}
		for _, s := range list {
			if s.ID == c.cfg.Self.ID || !s.Voter || !c.unsealed(ctx, client, s.Address) {
				continue
			}
			within, cancel := context.WithTimeout(ctx, 5*time.Second)
			if err := g.TransferLeadership(within, s.ID); err == nil {
				c.cfg.Log.Info("secrets: this server is sealed and led the Raft group: it handed over", "to", s.ID)
			}
			cancel()
			break
		}
	}
}

// yieldEvery is how often a sealed leader looks for somebody who could be active.
const yieldEvery = 500 * time.Millisecond

func (c standby) unsealed(ctx context.Context, client *http.Client, addr string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+statusPath, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var st peerStatus
	return json.NewDecoder(io.LimitReader(resp.Body, maxEcho)).Decode(&st) == nil && st.Unsealed
}
