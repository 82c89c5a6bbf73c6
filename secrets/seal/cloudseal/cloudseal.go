// Package cloudseal seals by a key that a cloud keeps: AWS KMS, Google Cloud KMS, Azure Key Vault.
//
// The calls are made here, as the clouds document them; credentials and signatures are those of the clouds' libraries
// where the binary has them in any case.
//
// Invariants. What was sealed is a record that names the key, and its version where the cloud tells one, so a key may
// be changed while the former one still opens. A call ends within callsWithin, retries included, and holds up nothing
// else. No error has a credential in it; each names the seal, what the cloud said and what to do. A record is never a
// reason to ask another host than the configured one.
package cloudseal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

const (
	callsWithin = 20 * time.Second // all tries of one call
	tryWithin   = 8 * time.Second  // one of them: a cloud that hangs is asked again, elsewhere behind its name
	lookWithin  = 5 * time.Second  // for which key is the newest: a server starts without the answer too
	maxTries    = 5
	maxPause    = 5 * time.Second // of what a cloud asks for with Retry-After
	maxAnswer   = 1 << 20
)

// keeper is one cloud's key. key names it as the cloud does, with its version where there are versions.
type keeper interface {
	encrypt(ctx context.Context, plain []byte) (key string, blob []byte, err error)
	decrypt(ctx context.Context, key string, blob []byte) ([]byte, error)
	// newest is the key that encrypt would name.
	newest(ctx context.Context) (string, error)
}

// Seal is one by a cloud's key. It implements seal.Auto, and tells when the key was changed (Stale).
type Seal struct {
	kind   string
	keeper keeper
	log    *slog.Logger
	key    atomic.Pointer[string] // that encrypts now, as far as is known; nil: nobody has asked
}

func newSeal(kind string, k keeper, log *slog.Logger) *Seal {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Seal{kind: kind, keeper: k, log: log}
}

// record is what is stored.
type record struct {
	Seal string `json:"seal"`
	Key  string `json:"key"`
	Blob []byte `json:"blob"`
}

func (s *Seal) parse(wrapped []byte) (r record, err error) {
	if err := json.Unmarshal(wrapped, &r); err != nil || r.Seal != s.kind || len(r.Blob) == 0 {
		return r, errkind.Errorf(errkind.Invalid, "the stored root key was not sealed by a seal %q", s.kind)
	}
	return r, nil
}

// Type implements seal.Auto.
func (s *Seal) Type() string { return s.kind }

// Wrap implements seal.Auto.
func (s *Seal) Wrap(ctx context.Context, plain []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callsWithin)
	defer cancel()
	key, blob, err := s.keeper.encrypt(ctx, plain)
	if err != nil {
		return nil, s.fault("encrypt", err)
	}
	s.key.Store(&key)
	return json.Marshal(record{s.kind, key, blob})
}

// Unwrap implements seal.Auto. It also learns which key would encrypt now, for Stale.
func (s *Seal) Unwrap(ctx context.Context, wrapped []byte) ([]byte, error) {
	r, err := s.parse(wrapped)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, callsWithin)
	defer cancel()
	plain, err := s.keeper.decrypt(within, r.Key, r.Blob)
	if err != nil {
		return nil, s.fault("decrypt", err)
	}
	look, done := context.WithTimeout(ctx, lookWithin)
	defer done()
	if key, err := s.keeper.newest(look); err != nil {
		s.log.Warn("secrets: the seal does not say which key is the newest; the root key stays under the one that opened it",
			"seal", s.kind, "key", r.Key, "error", err)
	} else {
		s.key.Store(&key)
	}
	return plain, nil
}

// Stale reports whether something was wrapped by another key, or version of it, than the one of now.
func (s *Seal) Stale(wrapped []byte) bool {
	r, err := s.parse(wrapped)
	now := s.key.Load()
	return err == nil && now != nil && *now != r.Key
}

func (s *Seal) fault(what string, err error) error {
	kind := errkind.Unavailable // whatever the cloud says: nobody who asks this server is to blame
	if errkind.Is(err, errkind.Invalid) {
		kind = errkind.Invalid
	}
	return errkind.Errorf(kind, "seal %s: %s: %w", s.kind, what, err)
}

// refusal is an answer that is no success.
type refusal struct {
	host    string
	status  int
	code    string // the cloud's word for it
	message string
	advice  string
	again   bool // it may be different next time
}

// Error implements error.
func (r *refusal) Error() string {
	text := fmt.Sprintf("%s answered %d", r.host, r.status)
	if r.code != "" {
		text += " " + r.code
	}
	if r.message != "" {
		text += ": " + r.message
	}
	if r.advice != "" {
		text += "; " + r.advice
	}
	return text
}

// caller asks a cloud.
type caller struct {
	http    *http.Client
	again   backoff.Backoff                        // between tries, as it begins
	explain func(status int, body []byte) *refusal // what an answer that is no success means
}

func newCaller(client *http.Client, explain func(int, []byte) *refusal) caller {
	if client == nil {
		client = newClient(http.ProxyFromEnvironment)
	}
	return caller{http: client, again: backoff.Backoff{Min: 200 * time.Millisecond, Max: maxPause}, explain: explain}
}

// newClient follows no redirects: neither tokens nor keys go where nobody configured.
func newClient(proxy func(*http.Request) (*url.URL, error)) *http.Client {
	return &http.Client{Transport: &http.Transport{Proxy: proxy, MaxIdleConnsPerHost: 1, ForceAttemptHTTP2: true,
		IdleConnTimeout: time.Minute, TLSHandshakeTimeout: tryWithin},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// call sends what build makes, anew for each try, and reads the answer's JSON into out. It tries again after 429, 5xx
// and connections that fail, until ctx ends or maxTries were made.
func (c *caller) call(ctx context.Context, build func(context.Context) (*http.Request, error), out any) error {
	pause := c.again
	for try := 1; ; try++ {
		wait, err := c.once(ctx, build, out)
		var told *refusal
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errkind.E(errkind.Unavailable, "it did not answer in time", err)
		case errors.As(err, &told) && !told.again:
			return err
		case errkind.Is(err, errkind.Invalid) || errkind.Is(err, errkind.Denied):
			return err
		case try == maxTries:
			return errkind.Errorf(errkind.Unavailable, "%w (tried %d times)", err, try)
		}
		timer := time.NewTimer(max(wait, pause.Next()))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errkind.E(errkind.Unavailable, "", err)
		}
	}
}

// once is one try. wait is what the cloud asks for before the next.
func (c *caller) once(ctx context.Context, build func(context.Context) (*http.Request, error), out any) (
	wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	req, err := build(ctx)
	if err != nil {
		return 0, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, errkind.E(errkind.Unavailable, "", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return 0, errkind.E(errkind.Unavailable, "", err)
	case resp.StatusCode == http.StatusOK:
		if err := json.Unmarshal(body, out); err != nil {
			return 0, errkind.Errorf(errkind.Unavailable, "%s: the answer is no JSON: %w", req.URL.Host, err)
		}
		return 0, nil
	}
	told := c.explain(resp.StatusCode, body)
	told.host, told.status = req.URL.Host, resp.StatusCode
	told.message = shortened(told.message)
	told.again = told.again || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 ||
		resp.StatusCode == http.StatusRequestTimeout
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		wait = min(time.Duration(seconds)*time.Second, maxPause)
	}
	return wait, told
}

func shortened(text string) string {
	const most = 300
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

// post makes the request of a JSON body.
func post(ctx context.Context, at string, in any) (*http.Request, []byte, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return nil, nil, errkind.E(errkind.Invalid, "", err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req, body, nil
}
