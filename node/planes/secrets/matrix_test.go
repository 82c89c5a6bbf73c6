package secretsplane

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/secrets/cluster"
)

// secretsRoutesFor are the protocols of the secrets plane's own port, secretsPathsFor what its servers ask there
// besides handing on the requests of clients.
var (
	secretsRoutesFor = map[string]wire.Roles{"Raft 2": wire.Servers, "the secrets plane's protocol 0": wire.Servers}
	secretsPathsFor  = map[string]int{"/-/echo": http.StatusNoContent, "/-/status": http.StatusOK,
		"/-/evidence": http.StatusOK}
)

// identityOf makes a certificate of the authority that a member of a Raft cluster of secrets has on its disk.
func identityOf(t *testing.T, file, name string) *wire.TLS {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a := &cluster.Authority{}
	if err := json.Unmarshal(raw, a); err != nil {
		t.Fatal(err)
	}
	id, err := a.Identity(name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// asServerWith connects to the secrets plane's port with that identity, or without a certificate (nil).
func asServerWith(id *wire.TLS, show *tls.Certificate) wiretest.Opener {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		cfg := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
		if id != nil {
			cfg.Certificates = id.Client.Certificates
		} else if show != nil {
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return show, nil }
		}
		return (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
	}
}

// TestSecretsMatrix is C11 for the secrets plane's own wire and for how a server comes to be one of its cluster.
func TestSecretsMatrix(t *testing.T) {
	t.Parallel()
	v := startVault(t, "a", "")
	shares, token := keysOf(v.must(200, "PUT", "sys/init", "", obj{"secret_shares": 3, "secret_threshold": 2}))
	v.unseal(shares[:2])
	v.awaitHealth(200)
	other, err := cluster.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Identity("a", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	catalog := wiretest.NewAuthority(t).Issue("server.dc1.consul", -time.Minute, time.Hour)
	server := asServerWith(identityOf(t, authorityFileOf(v), "a"), nil)
	callers := []wiretest.Caller{
		{Name: "a stranger", Open: asServerWith(nil, nil), Role: wire.Stranger},
		{Name: "a server of another cluster", Open: asServerWith(foreign, nil), Role: wire.Stranger},
		{Name: "a server of the catalog", Open: asServerWith(nil, &catalog), Role: wire.Stranger},
		{Name: "a server", Open: server, Role: wire.Server},
	}
	addr := v.srv.wire.Addr().String()
	for _, c := range callers {
		for _, r := range v.srv.wire.Routes() {
			name := fmt.Sprintf("%s %d", r.Proto, r.Group)
			if want, ok := secretsRoutesFor[name]; !ok || want != r.Roles {
				t.Errorf("%s is for %s; the table says %v", name, r.Roles, want)
			}
			if got, want := wiretest.Admitted(t, c.Open, addr, r), r.Roles&wire.Roles(c.Role) != 0; got != want {
				t.Errorf("%s at %s: let in %v, want %v", c.Name, name, got, want)
			}
		}
	}
	if got := len(v.srv.wire.Routes()); got != len(secretsRoutesFor) {
		t.Errorf("%d protocols, %d in the table", got, len(secretsRoutesFor))
	}
	t.Run("paths", func(t *testing.T) { secretsPaths(t, server, addr) })
	t.Run("enrolment", func(t *testing.T) { secretsEnrolment(t, v, token) })
}

func authorityFileOf(v *vaultTest) string {
	_, rest, _ := strings.Cut(v.conf, `path    = "`)
	dir, _, _ := strings.Cut(rest, `"`)
	return filepath.Join(dir, "authority.json")
}

// secretsPaths asks as a server for every path that is the servers' own, and for one that nobody registered.
func secretsPaths(t *testing.T, open wiretest.Opener, addr string) {
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := open(ctx, addr)
			if err == nil {
				_, err = conn.Write([]byte{byte(wire.ProtoSecrets), 0})
			}
			return conn, err
		}}}
	paths := append(cluster.PeerPaths(), "/-/unheard-of")
	for _, path := range paths {
		want, ok := secretsPathsFor[path]
		if !ok {
			want = http.StatusNotFound
		}
		resp, err := client.Post("http://"+addr+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s answers %d, want %d", path, resp.StatusCode, want)
		}
	}
	for path := range secretsPathsFor {
		if !slices.Contains(paths, path) {
			t.Errorf("%s is in the table and nobody registered it", path)
		}
	}
}

// secretsEnrolment: a stranger gets a challenge, which proves nothing, and becomes a member with no answer but one
// that the root key made, for the server and within the time of the challenge.
func secretsEnrolment(t *testing.T, v *vaultTest, token string) {
	invited := v.must(200, "PUT", "sys/storage/raft/bootstrap/challenge", "", obj{"server_id": "mallory"})
	challenge := invited["data"].(obj)["challenge"]
	for what, answer := range map[string]obj{
		"no proof":                {"server_id": "mallory", "challenge": challenge},
		"a wrong proof":           {"server_id": "mallory", "challenge": challenge, "answer": make([]byte, 32)},
		"another one's challenge": {"server_id": "eve", "challenge": challenge, "answer": make([]byte, 32)},
		"no challenge":            {"server_id": "mallory", "answer": make([]byte, 32)},
	} {
		answer["cluster_addr"] = "127.0.0.1:1"
		if code, out := v.do("PUT", "sys/storage/raft/bootstrap/answer", "", answer); code != http.StatusForbidden ||
			out["data"] != nil {
			t.Errorf("%s: %d %v", what, code, out)
		}
	}
	out := v.must(200, "GET", "sys/storage/raft/configuration", token, nil)
	if list := out["data"].(obj)["config"].(obj)["servers"].([]any); len(list) != 1 {
		t.Errorf("the members are %v", list)
	}
}
