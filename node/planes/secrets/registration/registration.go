// Package registration tells others what a server of the secrets plane is, as service_registration of Vault's
// configuration asks. With "consul" it is in a Consul catalog: a service with the tag active, standby or sealed, and a
// check that is critical while the server is sealed or gone. With "kubernetes" its own pod has labels that say so.
//
// Invariants: what others see is what the server was at most a second ago, or the check's time has run out; a catalog
// or a cluster that does not answer holds up nothing; what a failed call has left is unknown, and is told anew;
// when the server stops it is told to be sealed, or taken out, within leaveTries.
package registration

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/node/vaultconf"
)

// State is what a server is.
type State struct{ Initialized, Sealed, Standby bool }

// tags are the configured ones and what tells the state.
func (s State) tags(own []string) []string {
	out := slices.Clone(own)
	switch {
	case s.Sealed || !s.Initialized:
		out = append(out, "sealed")
	case s.Standby:
		out = append(out, "standby")
	default:
		out = append(out, "active")
	}
	if s.Initialized {
		out = append(out, "initialized")
	}
	return out
}

// check is the status of the check, and its output.
func (s State) check() (status, output string) {
	if s.Sealed || !s.Initialized {
		return "critical", "Vault Sealed"
	}
	return "passing", "Vault Unsealed"
}

// Entry is where a server is told to be.
type Entry struct{ book book }

// book is one kind of it. Its methods are called by one goroutine, in turn.
type book interface {
	// put tells what the server at apiAddr is; what it returns names the entry in the log.
	put(ctx context.Context, apiAddr string, s State) (string, error)
	// beat says every so often that it is still so. An error asks for another put.
	beat(ctx context.Context, s State) error
	every() time.Duration
	// leave is the end of an entry, whatever the last put or beat came to.
	leave(ctx context.Context) error
	close()
	where() string
}

// Of is the entry that a configuration asks for; nil is none. It takes the stanza's keys. Errors name the key.
func Of(cfg *vaultconf.Config, getenv func(string) string) (*Entry, error) {
	if len(cfg.Registrations) == 0 {
		return nil, nil
	}
	b := cfg.Registrations[0] // there is one at most
	if b.Type == "kubernetes" {
		p, err := readPod(b.Keys, getenv, cfg.StandbyReads)
		if err != nil {
			return nil, fmt.Errorf("service_registration %q: %w", b.Type, err)
		}
		return &Entry{p}, nil
	}
	c, err := read(b.Keys, getenv)
	if err != nil {
		return nil, fmt.Errorf("service_registration %q: %w", b.Type, err)
	}
	if c == nil {
		return nil, nil
	}
	return &Entry{c}, nil
}

// consul is a server's place in the catalog of an agent.
type consul struct {
	told  *definition // what the agent was told last; nil: nothing
	agent string      // the agent's URL
	token string
	http  *http.Client

	service string
	tags    []string
	meta    map[string]string
	address *string // nil: the host of api_addr
	ttl     time.Duration
}

// read is nil where the stanza turns it off.
func read(k *vaultconf.Keys, getenv func(string) string) (*consul, error) {
	e := &consul{token: k.String("token", getenv("CONSUL_HTTP_TOKEN")), service: k.String("service", "vault"),
		ttl: k.Duration("check_timeout", 5*time.Second), meta: k.Texts("service_meta")}
	for _, tag := range strings.Split(k.String("service_tags", ""), ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			e.tags = append(e.tags, tag)
		}
	}
	if k.Has("service_address") {
		address := k.String("service_address", "")
		e.address = &address
	}
	off := k.Bool("disable_registration", false)
	secure, err := readTLS(k)
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if ssl, _ := strconv.ParseBool(getenv("CONSUL_HTTP_SSL")); ssl {
		scheme = "https"
	}
	address := k.String("address", cmp.Or(getenv("CONSUL_HTTP_ADDR"), "127.0.0.1:8500"))
	if err := e.reach(address, k.String("scheme", scheme), secure); err != nil {
		return nil, err
	}
	k.Done()
	switch {
	case k.Err() != nil:
		return nil, k.Err()
	case e.ttl < time.Second:
		return nil, errors.New("check_timeout: must be 1s at least")
	case e.service == "":
		return nil, errors.New("service: must not be empty")
	case off:
		return nil, nil
	}
	return e, nil
}

func readTLS(k *vaultconf.Keys) (*tls.Config, error) {
	least := k.String("tls_min_version", "tls12")
	c, err := k.ClientTLS()
	if err != nil {
		return nil, err
	}
	switch least {
	case "tls10", "tls11", "tls12":
	case "tls13":
		c.MinVersion = tls.VersionTLS13
	default:
		return nil, fmt.Errorf("tls_min_version: %q must be tls12 or tls13", least)
	}
	return c, nil
}

// reach works out where the agent is: host:port, a URL, or the path of a socket behind unix://.
func (e *consul) reach(address, scheme string, secure *tls.Config) error {
	t := &http.Transport{TLSClientConfig: secure, MaxIdleConnsPerHost: 1, ForceAttemptHTTP2: true}
	e.http = &http.Client{Transport: t}
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
		e.agent = "http://agent"
		return nil
	}
	if !strings.Contains(address, "://") {
		address = scheme + "://" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("address: %q must be host:port, a URL, or a path behind unix://", address)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("scheme: %q must be http or https", u.Scheme)
	}
	e.agent = u.Scheme + "://" + u.Host
	return nil
}

// definition is a service as an agent takes it.
type definition struct {
	ID, Name string
	Tags     []string
	Meta     map[string]string `json:",omitempty"`
	Port     int
	Address  string
	Check    struct{ CheckID, Name, Notes, TTL, Status string }
}

func (e *consul) definition(apiAddr string, s State) (*definition, error) {
	u, err := url.Parse(apiAddr)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("api_addr: %q must be a URL", apiAddr)
	}
	port := 8200
	if text := u.Port(); text != "" {
		if port, err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("api_addr: %w", err)
		}
	}
	d := &definition{Name: e.service, Tags: s.tags(e.tags), Meta: e.meta, Port: port, Address: u.Hostname()}
	if e.address != nil {
		d.Address = *e.address
	}
	d.ID = e.service + ":" + u.Hostname() + ":" + strconv.Itoa(port)
	d.Check.CheckID, d.Check.Name = d.ID+":vault-sealed-check", "Vault Sealed Status"
	d.Check.Notes = "Vault service is healthy when Vault is in an unsealed status and can become an active Vault server"
	d.Check.TTL = e.ttl.String()
	d.Check.Status, _ = s.check()
	return d, nil
}

// look is how often the server's state is compared with what was told; most is how long others may take.
const (
	look       = 500 * time.Millisecond
	most       = 5 * time.Second
	leaveTries = 3
)

// Parts keep the entry of the server at apiAddr for as long as they run; a nil Entry has none. state is asked twice a
// second and must be cheap.
func (e *Entry) Parts(apiAddr string, log *slog.Logger, state func(context.Context) (State, error)) []life.Part {
	if e == nil {
		return nil
	}
	return []life.Part{{Name: "service registration", Run: func(ctx context.Context) error {
		e.run(ctx, apiAddr, log, state)
		return nil
	}}}
}

func (e *Entry) run(ctx context.Context, apiAddr string, log *slog.Logger,
	state func(context.Context) (State, error)) {
	defer e.book.close()
	there := ""    // how the entry is called; "": nothing that we know of
	tried := false // there may be an entry
	var last State
	var beat, retry time.Time
	failing := false
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		s, err := state(ctx)
		now := time.Now()
		switch {
		case ctx.Err() != nil || now.Before(retry):
		case err != nil:
			err = nil // the storage does not answer: the check runs out by itself
		case there == "" || s != last:
			tried = true
			if there, err = e.book.put(ctx, apiAddr, s); err == nil { // else nobody knows what they have
				last, beat = s, now
			}
		case now.Sub(beat) >= e.book.every():
			if beat, err = now, e.book.beat(ctx, s); err != nil {
				there = "" // it was forgotten, as by an agent that has begun anew
			}
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			retry = now.Add(time.Second)
			if !failing {
				log.Warn("service_registration: this server is not taken; trying again", "at", e.book.where(), "error", err)
			}
			failing = true
		case failing && there != "":
			failing = false
			log.Info("service_registration: this server is entered", "at", e.book.where(), "as", there)
		}
		select {
		case <-ctx.Done():
			if tried {
				e.leave(log)
			}
			return
		case <-t.C:
		}
	}
}

// leave ends the entry. A server that ends waits for others no longer than this.
func (e *Entry) leave(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	pause := time.NewTicker(look / 2)
	defer pause.Stop()
	for try := 1; ; try++ {
		err := e.book.leave(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil || try == leaveTries {
			log.Warn("service_registration: this server ends, and others are not told", "at", e.book.where(), "error", err)
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

func (e *consul) put(ctx context.Context, apiAddr string, s State) (string, error) {
	d, err := e.definition(apiAddr, s)
	if err != nil {
		return "", err
	}
	e.told = d // also if the answer is lost
	if err := e.send(ctx, "/v1/agent/service/register", d); err != nil {
		return "", err
	}
	return d.ID, nil
}

func (e *consul) beat(ctx context.Context, s State) error {
	status, output := s.check()
	return e.send(ctx, "/v1/agent/check/update/"+url.PathEscape(e.told.Check.CheckID),
		map[string]string{"Status": status, "Output": output})
}

func (e *consul) every() time.Duration { return e.ttl / 2 }

func (e *consul) leave(ctx context.Context) error {
	if e.told == nil {
		return nil
	}
	return e.send(ctx, "/v1/agent/service/deregister/"+url.PathEscape(e.told.ID), nil)
}

func (e *consul) close() { e.http.CloseIdleConnections() }

func (e *consul) where() string { return e.agent }

func (e *consul) send(ctx context.Context, path string, body any) error {
	ctx, cancel := context.WithTimeout(ctx, min(most, e.ttl))
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, e.agent+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	if e.token != "" {
		r.Header.Set("X-Consul-Token", e.token)
	}
	resp, err := e.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(said))
	}
	return nil
}
