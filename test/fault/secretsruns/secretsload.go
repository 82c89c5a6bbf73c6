package secretsruns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn"
	faultrun "corbel.dev/corbel/test/fault"
)

// secretsRoleID opens approle in a run.
const secretsRoleID = "7c2b1a0e-4f2d-4a67-9a51-0d6b1c9f3e55"

// secretsLedger is what a cycle's writers were told, and what they may not have been told.
type secretsLedger struct {
	mu      sync.Mutex     // guards what follows
	acked   map[string]int // the greatest number that was acknowledged, by key
	sent    map[string]int // the greatest that was sent
	revoked []string       // tokens whose end was acknowledged
	logins  []string       // tokens of logins that were acknowledged
	wraps   []*wrapOf
	limited []*limitedOf
	renewed []renewedOf
	history map[string][]ackedAt // when which number was acknowledged, by key
	wrong   error                // with what was read meanwhile
}

// renewedOf is a token with the time until which an acknowledged renewal said that it lives.
type renewedOf struct {
	token string
	until time.Time
}

// wrapOf is an answer that was wrapped.
type wrapOf struct {
	token, content string
	asked, got     int // how often it was tried to unwrap it, and how often the content came
}

// limitedOf is a token of usesOfLimited uses.
type limitedOf struct {
	token string
	used  int
}

const usesOfLimited = 4

// reset forgets everything: each cycle has keys and tokens of its own.
func (l *secretsLedger) reset() {
	l.acked, l.sent, l.revoked, l.logins, l.wraps, l.limited, l.renewed = map[string]int{}, map[string]int{}, nil, nil,
		nil, nil, nil
	l.history, l.wrong = map[string][]ackedAt{}, nil
}

// write does what clients do until ctx ends.
func (r *SecretsRun) write(ctx context.Context, cycle, w int, rng *rand.Rand) {
	lost := 0
	for ctx.Err() == nil {
		s := r.Servers[rng.IntN(len(r.Servers))]
		switch rng.IntN(20) {
		case 0:
			r.endToken(ctx, s)
		case 1:
			r.login(ctx, s)
		case 2:
			r.wrap(ctx, s, rng)
		case 3:
			r.limit(ctx, s, rng)
		case 4:
			if r.pg != nil {
				r.role(ctx, s, rng)
			}
		case 5:
			r.renew(ctx, s)
		case 6, 7, 8, 9:
			r.readStated(ctx, s, rng)
		default:
			lost += r.put(ctx, s, fmt.Sprintf("w%d/k%d-%d-%d", w, rng.IntN(4), cycle, lost))
		}
	}
}

// put writes growing numbers under keys of its own. After an outcome that is not known (1) a key is written no more:
// what was sent may still be done, on top of whatever came later.
func (r *SecretsRun) put(ctx context.Context, s *faultrun.Server, key string) (lost int) {
	r.mu.Lock()
	r.sent[key]++
	n := r.sent[key]
	r.mu.Unlock()
	code, _, err := r.Do(ctx, s, "PUT", "secret/"+key, r.Token, map[string]any{"n": n})
	r.mu.Lock()
	var op *net.OpError
	switch {
	case err == nil && code < 300:
		r.acked[key] = n
		r.history[key] = append(r.history[key], ackedAt{time.Now(), n})
		r.report.Acked++
	case errors.As(err, &op) && op.Op == "dial": // nothing was sent
		r.sent[key]--
	default:
		r.report.Unknown++
		lost = 1
	}
	r.mu.Unlock()
	if err != nil || code >= 300 {
		_ = spawn.Sleep(ctx, 5*time.Millisecond)
	}
	return lost
}

// made makes a token by a request and returns its id; "" where that was not acknowledged.
func (r *SecretsRun) made(ctx context.Context, s *faultrun.Server, path, token string, in map[string]any) string {
	code, body, err := r.Do(ctx, s, "POST", path, token, in)
	var got struct {
		Auth struct {
			Token string `json:"client_token"`
		} `json:"auth"`
	}
	if err != nil || code != http.StatusOK || json.Unmarshal(body, &got) != nil {
		return ""
	}
	return got.Auth.Token
}

func (r *SecretsRun) endToken(ctx context.Context, s *faultrun.Server) {
	token := r.made(ctx, s, "auth/token/create", r.Token, map[string]any{"policies": []string{"default"}})
	if token == "" {
		return
	}
	code, _, err := r.Do(ctx, s, "POST", "auth/token/revoke", r.Token, map[string]any{"token": token})
	if err == nil && code < 300 {
		r.mu.Lock()
		r.revoked = append(r.revoked, token)
		r.report.Revoked++
		r.mu.Unlock()
	}
}

func (r *SecretsRun) login(ctx context.Context, s *faultrun.Server) {
	if token := r.made(ctx, s, "auth/approle/login", "", map[string]any{"role_id": secretsRoleID}); token != "" {
		r.mu.Lock()
		r.logins = append(r.logins, token)
		r.report.Logins++
		r.mu.Unlock()
	}
}

// renew renews the token of a login to ever later ends, some of which are so near each other that nothing is written.
func (r *SecretsRun) renew(ctx context.Context, s *faultrun.Server) {
	of := renewedOf{token: r.made(ctx, s, "auth/approle/login", "", map[string]any{"role_id": secretsRoleID})}
	for _, seconds := range []int{3600, 3610, 3620, 3900} {
		if of.token == "" {
			return
		}
		begun := time.Now()
		code, body, err := r.Do(ctx, s, "POST", "auth/token/renew-self", of.token, map[string]any{"increment": seconds})
		var got struct {
			Auth struct {
				Left int `json:"lease_duration"`
			} `json:"auth"`
		}
		if err != nil || code != http.StatusOK || json.Unmarshal(body, &got) != nil {
			break
		}
		of.until = begun.Add(time.Duration(got.Auth.Left-1) * time.Second) // it is told in whole seconds
	}
	if of.until.IsZero() {
		return
	}
	r.mu.Lock()
	r.renewed = append(r.renewed, of)
	r.report.Renewed++
	r.mu.Unlock()
}

// wrap wraps a content; every second one is unwrapped at once.
func (r *SecretsRun) wrap(ctx context.Context, s *faultrun.Server, rng *rand.Rand) {
	content := strconv.FormatUint(rng.Uint64(), 36)
	code, body, err := r.Do(ctx, s, "POST", "sys/wrapping/wrap", r.Token, map[string]any{"content": content},
		"X-Vault-Wrap-TTL", "1h")
	var got struct {
		Wrap struct {
			Token string `json:"token"`
		} `json:"wrap_info"`
	}
	if err != nil || code != http.StatusOK || json.Unmarshal(body, &got) != nil {
		return
	}
	of := &wrapOf{token: got.Wrap.Token, content: content}
	if rng.IntN(2) == 0 {
		of.asked++
		if code, body, err := r.Do(ctx, s, "POST", "sys/wrapping/unwrap", of.token, nil); err == nil &&
			code == http.StatusOK && holdsContent(body, content) {
			of.got++
		}
	}
	r.mu.Lock()
	r.wraps = append(r.wraps, of)
	r.mu.Unlock()
}

func holdsContent(body []byte, content string) bool {
	var got struct {
		Data struct {
			Content string `json:"content"`
		} `json:"data"`
	}
	return json.Unmarshal(body, &got) == nil && got.Data.Content == content
}

// limit makes a token of a few uses and takes some of them.
func (r *SecretsRun) limit(ctx context.Context, s *faultrun.Server, rng *rand.Rand) {
	token := r.made(ctx, s, "auth/token/create", r.Token, map[string]any{"policies": []string{"default"},
		"num_uses": usesOfLimited})
	if token == "" {
		return
	}
	of := &limitedOf{token: token}
	for range rng.IntN(usesOfLimited) {
		if code, _, err := r.Do(ctx, s, "GET", "auth/token/lookup-self", token, nil); err == nil && code == http.StatusOK {
			of.used++
		}
	}
	r.mu.Lock()
	r.limited = append(r.limited, of)
	r.mu.Unlock()
}

// role has a role made in PostgreSQL; every second one is revoked at once.
func (r *SecretsRun) role(ctx context.Context, s *faultrun.Server, rng *rand.Rand) {
	code, body, err := r.Do(ctx, s, "GET", "database/creds/app", r.Token, nil)
	var got struct {
		Lease string `json:"lease_id"`
	}
	if err != nil || code != http.StatusOK || json.Unmarshal(body, &got) != nil {
		return
	}
	r.mu.Lock()
	r.report.Roles++
	r.mu.Unlock()
	if rng.IntN(2) == 0 {
		_, _, _ = r.Do(ctx, s, "PUT", "sys/leases/revoke", r.Token, map[string]any{"lease_id": got.Lease})
	}
}

// compare reads everything back: nothing that was acknowledged is lost, no value came from nowhere, no token that was
// ended opens anything, none ends before a renewal said, no content is unwrapped twice, no token is used too often.
func (r *SecretsRun) compare(ctx context.Context) error {
	defer r.reset()
	if err := r.standbysRead(ctx); err != nil {
		return err
	}
	s := r.Servers[0]
	for key, sent := range r.sent {
		if err := r.compareKey(ctx, s, key, sent); err != nil {
			return err
		}
	}
	for token, want := range r.tokens() {
		code, _, err := r.steady(ctx, s, "GET", "auth/token/lookup-self", token, http.StatusOK, http.StatusForbidden)
		if err != nil {
			return err
		}
		if code != want {
			return fmt.Errorf("a token gets status %d, not %d: it was acknowledged as made (200) or revoked (403)", code, want)
		}
	}
	for _, w := range r.wraps {
		for range 2 {
			w.asked++
			code, body, err := r.steady(ctx, s, "POST", "sys/wrapping/unwrap", w.token, http.StatusOK, http.StatusBadRequest,
				http.StatusForbidden)
			if err != nil {
				return err
			}
			if code == http.StatusOK && holdsContent(body, w.content) {
				w.got++
			}
		}
		// Two tries here; an earlier one may have taken the content without telling.
		if w.got > 1 || w.got == 0 && w.asked == 2 {
			return fmt.Errorf("a wrapped content was given %d times in %d tries", w.got, w.asked)
		}
		r.report.Unwrapped += w.got
	}
	for _, of := range r.limited {
		for range usesOfLimited + 1 {
			code, _, err := r.steady(ctx, s, "GET", "auth/token/lookup-self", of.token, http.StatusOK, http.StatusForbidden)
			if err != nil {
				return err
			}
			if code == http.StatusOK {
				of.used++
			}
		}
		if of.used > usesOfLimited {
			return fmt.Errorf("a token of %d uses was used %d times", usesOfLimited, of.used)
		}
		r.report.Limited += of.used
	}
	return r.compareRenewed(ctx, s)
}

// compareRenewed holds the ends of tokens against what renewals said.
func (r *SecretsRun) compareRenewed(ctx context.Context, s *faultrun.Server) error {
	for _, of := range r.renewed {
		_, body, err := r.steady(ctx, s, "GET", "auth/token/lookup-self", of.token, http.StatusOK)
		if err != nil {
			return err
		}
		var got struct {
			Data struct {
				TTL int `json:"ttl"`
			} `json:"data"`
		}
		if err := json.Unmarshal(body, &got); err != nil {
			return err
		}
		if end := time.Now().Add(time.Duration(got.Data.TTL+1) * time.Second); end.Before(of.until) {
			return fmt.Errorf("a token that a renewal said to live until %s ends at %s", of.until, end)
		}
	}
	return nil
}

// tokens are those whose state is known.
func (l *secretsLedger) tokens() map[string]int {
	out := map[string]int{}
	for _, t := range l.logins {
		out[t] = http.StatusOK
	}
	for _, t := range l.revoked {
		out[t] = http.StatusForbidden
	}
	return out
}

// steady asks until the answer has one of these codes: a server that starts or waits for its storage has others. It
// asks for the active server's answer: a standby may give one of its own that is old, and says so (readStated judges
// those).
func (r *SecretsRun) steady(ctx context.Context, s *faultrun.Server, method, path, token string,
	codes ...int) (code int,
	body []byte, err error) {
	err = spawn.Until(ctx, time.Minute, method+" "+path, func() (err error) {
		code, body, err = r.Do(ctx, s, method, path, token, nil, "X-Vault-Forward", "active-node")
		if err == nil && !slices.Contains(codes, code) {
			err = fmt.Errorf("status %d, %s", code, body)
		}
		return err
	})
	return code, body, err
}

func (r *SecretsRun) compareKey(ctx context.Context, s *faultrun.Server, key string, sent int) error {
	code, body, err := r.steady(ctx, s, "GET", "secret/"+key, r.Token, http.StatusOK, http.StatusNotFound)
	if err != nil {
		return err
	}
	var got struct {
		Data struct {
			N int `json:"n"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return err
	}
	if n := got.Data.N; n < r.acked[key] || n > sent || code != http.StatusOK && r.acked[key] > 0 {
		return fmt.Errorf("%s is %d at %s: %d was acknowledged, %d was sent last; a moment later: %s", key, n, s.Name,
			r.acked[key], sent, r.everywhere(ctx, "secret/"+key))
	}
	return nil
}

// everywhere is what is answered through each server two seconds later: it tells an old answer from a lost write.
func (r *SecretsRun) everywhere(ctx context.Context, path string) (out string) {
	if err := spawn.Sleep(ctx, 2*time.Second); err != nil {
		return err.Error()
	}
	for _, s := range r.Servers {
		code, body, err := r.Do(ctx, s, "GET", path, r.Token, nil, "X-Vault-Forward", "active-node")
		out += fmt.Sprintf("%s %d %s %v; ", s.Name, code, bytes.TrimSpace(body), faultrun.OrNone(err))
	}
	return out
}

// noRoleLeft ends all leases, lets so much time pass that entries of crashes are due, and finds no role in PostgreSQL.
func (r *SecretsRun) noRoleLeft(ctx context.Context) error {
	if r.pg == nil {
		return nil
	}
	if err := r.must(ctx, "PUT", "sys/leases/revoke-prefix/database/creds", nil); err != nil {
		return err
	}
	for _, s := range r.Servers {
		if err := s.Control.SetClock(ctx, 2*time.Hour, 1); err != nil {
			return err
		}
	}
	return spawn.Until(ctx, time.Minute, "PostgreSQL to have no role without a lease", func() error {
		left, err := r.pg.Texts(ctx, `SELECT rolname FROM pg_roles WHERE rolname LIKE 'v-%'`)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("of %d are left: %q", r.report.Roles, left)
		}
		return err
	})
}
