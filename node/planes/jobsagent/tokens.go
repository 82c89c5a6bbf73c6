package jobsagentplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/jobs/client/tasktoken"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/node/plane"
)

// TokenKeys say where tasks get their tokens.
type TokenKeys struct {
	CA      string `key:"secrets_ca_file" doc:"CA certificates of the secrets plane, PEM; default the system's"`
	Auth    string `key:"secrets_auth" def:"jwt-nomad" doc:"path of the auth method where tasks log in for vault blocks"`
	Role    string `key:"secrets_role" def:"nomad-workloads" doc:"role of vault blocks that name none"`
	Catalog string `key:"catalog_auth" doc:"auth method of the catalog, for consul blocks; empty is none"`
}

// openLogins is how many tasks of a host ask for tokens at once, and waitingLogins how many wait for their turn; the
// others come back later.
const openLogins, waitingLogins = 16, 4096

// tokens is the step that gives tasks their tokens.
func (a *Agent) tokens(d *plane.Doors, k *Keys) (*tasktoken.Step, error) {
	dialer := &net.Dialer{Timeout: 10 * time.Second} // a host that is away is known soon; one that is slow has longer
	transport := &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: openLogins}
	if file := k.Tokens.CA; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("secrets_ca_file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("secrets_ca_file: %s has no certificate in PEM", file)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	a.asks = &http.Client{Transport: transport}
	return &tasktoken.Step{Issuer: &issuer{d: d, agent: a, keys: k.Tokens}, Clock: d.Clock,
		Gate: limit.NewGate(limit.GateConfig{Name: "logins of tasks", Slots: openLogins, MaxWaiting: waitingLogins,
			MaxPerKey: waitingLogins, MaxWait: 5 * time.Minute, Clock: d.Clock})}, nil
}

// secretsAPI is where the secrets plane answers: where the configuration says, else on this host.
func (a *Agent) secretsAPI(d *plane.Doors) string {
	if a.secrets != "" {
		return strings.TrimSuffix(a.secrets, "/")
	}
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(d.Cfg.Ports.Secrets))
}

// issuer implements tasktoken.Issuer: identities by the servers of the jobs plane, what they are exchanged for by the
// HTTP APIs of the others.
type issuer struct {
	d     *plane.Doors
	agent *Agent
	keys  TokenKeys
}

// Identity implements tasktoken.Issuer. A server that does not know the allocation yet will.
func (i *issuer) Identity(ctx context.Context, w *allocrunner.Work, name string) (t tasktoken.Token, err error) {
	ask := &noderpc.SignAsk{Key: i.agent.client.Key(), Alloc: w.Workload.ID, Task: w.Task.Name, Identity: name}
	answer, err := servers{i.d}.Call(ctx, noderpc.MethodIdentity, noderpc.Bytes(ask))
	switch errkind.Of(err) {
	case errkind.NotFound, errkind.NotLeader, errkind.Overloaded:
		return t, errkind.E(errkind.Unavailable, "", err)
	}
	if err != nil {
		return t, err
	}
	m, err := noderpc.Read[noderpc.Signed](answer)
	if err != nil {
		return t, err
	}
	t.Text = m.Token
	if m.Expires != 0 {
		t.Expires = expiry(m.Expires)
	}
	return t, nil
}

func expiry(t jobs.Time) time.Time { return time.Unix(0, int64(t)) }

// post sends a request and reads its answer.
func (i *issuer) post(ctx context.Context, target string, header http.Header, body, out any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(text))
	if err != nil {
		return errkind.E(errkind.Invalid, "", err)
	}
	r.Header = header
	r.Header.Set("Content-Type", "application/json")
	resp, err := i.agent.asks.Do(r)
	if err != nil {
		return errkind.E(errkind.Unavailable, "", err)
	}
	defer resp.Body.Close()
	if text, err = readAll(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		kind := errkind.Denied
		if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
			kind = errkind.Unavailable
		}
		return errkind.Errorf(kind, "%s: %.300s", resp.Status, bytes.TrimSpace(text))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return errkind.E(errkind.Unavailable, "the answer of "+r.URL.Host, err)
	}
	return nil
}

// login is what the secrets plane says of a token.
type login struct {
	Auth struct {
		Token    string `json:"client_token"`
		Seconds  int64  `json:"lease_duration"`
		Policies []string
	}
}

func (i *issuer) token(l *login) tasktoken.Token {
	t := tasktoken.Token{Text: l.Auth.Token, Policies: l.Auth.Policies}
	if l.Auth.Seconds > 0 {
		t.Expires = i.d.Clock.Now().Add(time.Duration(l.Auth.Seconds) * time.Second)
	}
	return t
}

// vaultHeader are the headers of a request to the secrets plane.
func vaultHeader(v *jobwire.Vault, token string) http.Header {
	h := http.Header{"X-Vault-Request": {"true"}}
	if token != "" {
		h.Set("X-Vault-Token", token)
	}
	if v != nil && jobwire.Get(v.Namespace) != "" {
		h.Set("X-Vault-Namespace", jobwire.Get(v.Namespace))
	}
	return h
}

// Secrets implements tasktoken.Issuer.
func (i *issuer) Secrets(ctx context.Context, v *jobwire.Vault, identity string) (tasktoken.Token, error) {
	role := v.Role
	if role == "" {
		role = i.keys.Role
	}
	out := &login{}
	err := i.post(ctx, i.agent.secretsAPI(i.d)+"/v1/auth/"+strings.Trim(i.keys.Auth, "/")+"/login",
		vaultHeader(v, ""), map[string]string{"role": role, "jwt": identity}, out)
	if err == nil && out.Auth.Token == "" {
		err = errkind.New(errkind.Denied, "the login gave no token")
	}
	return i.token(out), err
}

// Renew implements tasktoken.Issuer.
func (i *issuer) Renew(ctx context.Context, v *jobwire.Vault, token string) (tasktoken.Token, error) {
	out := &login{}
	err := i.post(ctx, i.agent.secretsAPI(i.d)+"/v1/auth/token/renew-self", vaultHeader(v, token), map[string]any{}, out)
	return i.token(out), err
}

// Catalog implements tasktoken.Issuer.
func (i *issuer) Catalog(ctx context.Context, identity string) (t tasktoken.Token, err error) {
	if !i.d.Cfg.ACL.Enabled || i.keys.Catalog == "" {
		return t, nil
	}
	var out struct {
		SecretID       string
		ExpirationTime time.Time
	}
	err = i.post(ctx, "http://"+hostAPI(i.d)+"/v1/acl/login", http.Header{},
		map[string]string{"AuthMethod": i.keys.Catalog, "BearerToken": identity}, &out)
	return tasktoken.Token{Text: out.SecretID, Expires: out.ExpirationTime}, err
}

// GiveBack implements tasktoken.Issuer.
func (i *issuer) GiveBack(ctx context.Context, kind, token string) error {
	if kind == tasktoken.Catalog {
		return i.post(ctx, "http://"+hostAPI(i.d)+"/v1/acl/logout", http.Header{"X-Consul-Token": {token}},
			map[string]any{}, nil)
	}
	return i.post(ctx, i.agent.secretsAPI(i.d)+"/v1/auth/token/revoke-self", vaultHeader(nil, token),
		map[string]any{}, nil)
}
