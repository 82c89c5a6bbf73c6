package secretsplane

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/node/vaultconf"
)

// vaultTest is a server of a test's cluster, in this process, on real sockets and disks.
type vaultTest struct {
	t    *testing.T
	conf string
	srv  *Server
	stop func()
	url  string
}

const vaultTestConf = `
storage "raft" {
  path    = %q
  node_id = %q
  autopilot_reconcile_interval = "1s"
}
listener "tcp" {
  address         = %q
  cluster_address = %q
  tls_disable     = true
  disable_unauthed_rekey_endpoints         = false
  disable_unauthed_generate_root_endpoints = false
}
`

func startVault(t *testing.T, id, more string) *vaultTest {
	t.Helper()
	ports, err := testport.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	address := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	v := &vaultTest{t: t, conf: fmt.Sprintf(vaultTestConf, filepath.Join(t.TempDir(), id), id, address(ports[0]),
		address(ports[1])) + more}
	v.start()
	return v
}

// start runs the server; a restart keeps both ports.
func (v *vaultTest) start() {
	v.t.Helper()
	cfg, err := vaultconf.Parse([]vaultconf.Source{{Name: "test", Text: v.conf}}, os.Getenv)
	if err != nil {
		v.t.Fatal(err)
	}
	if v.srv, err = NewServer(cfg, logWriterOf(v.t)); err != nil {
		v.t.Fatal(err)
	}
	v.url = "http://" + v.srv.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	srv := v.srv
	go func() {
		defer close(done)
		if err := srv.Run(ctx); err != nil {
			v.t.Errorf("server: %v", err)
		}
	}()
	v.stop = func() { cancel(); <-done }
	v.t.Cleanup(func() { v.stop() })
	polltest.Within(v.t, 60*time.Second, func() bool {
		code, _ := v.do("GET", "sys/seal-status", "", nil)
		return code == 200
	}, "the state of the seal to be known")
}

type testLog struct{ t *testing.T }

// Write implements io.Writer.
func (l testLog) Write(p []byte) (int, error) {
	if testing.Verbose() {
		fmt.Printf("%s", p)
	}
	return len(p), nil
}

func logWriterOf(t *testing.T) io.Writer { return testLog{t} }

// do sends a request and returns status and body.
func (v *vaultTest) do(method, path, token string, body any) (int, map[string]any) {
	v.t.Helper()
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			v.t.Fatal(err)
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, v.url+"/v1/"+path, in)
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", token)
	client := &http.Client{Timeout: 60 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return 0, map[string]any{"error": err.Error()}
	}
	defer resp.Body.Close()
	out := map[string]any{}
	_ = json.NewDecoder(resp.Body).Decode(&out)
	out["location"] = resp.Header.Get("Location")
	return resp.StatusCode, out
}

func (v *vaultTest) must(status int, method, path, token string, body any) map[string]any {
	v.t.Helper()
	got, out := v.do(method, path, token, body)
	if got != status {
		v.t.Fatalf("%s %s: status %d, want %d: %v", method, path, got, status, out)
	}
	return out
}

type obj = map[string]any

// keysOf are the shares and the token that an init gave.
func keysOf(out obj) (shares []string, token string) {
	for _, s := range out["keys_base64"].([]any) {
		shares = append(shares, s.(string))
	}
	return shares, out["root_token"].(string)
}

func (v *vaultTest) unseal(shares []string) {
	v.t.Helper()
	for _, s := range shares {
		v.must(200, "PUT", "sys/unseal", "", obj{"key": s})
	}
	if st := v.must(200, "GET", "sys/seal-status", "", nil); st["sealed"] != false {
		v.t.Fatalf("still sealed: %v", st)
	}
}

// awaitHealth waits for a code of sys/health: 200 active, 429 standby.
func (v *vaultTest) awaitHealth(code int) {
	v.t.Helper()
	polltest.Within(v.t, 60*time.Second, func() bool {
		got, _ := v.do("GET", "sys/health", "", nil)
		return got == code
	}, "%s", fmt.Sprintf("%s to be %d", v.url, code))
}

// threeVaults is a cluster of three unsealed servers; the first is active.
func threeVaults(t *testing.T, more string) (list []*vaultTest, shares []string, token string) {
	a := startVault(t, "a", more)
	shares, token = keysOf(a.must(200, "PUT", "sys/init", "", obj{"secret_shares": 3, "secret_threshold": 2}))
	a.unseal(shares[:2])
	a.awaitHealth(200)
	a.must(204, "PUT", "sys/storage/raft/autopilot/configuration", token, obj{"server_stabilization_time": "1s"})
	list = []*vaultTest{a}
	for _, id := range []string{"b", "c"} {
		v := startVault(t, id, more)
		if out := v.must(200, "PUT", "sys/storage/raft/join", "", obj{"leader_api_addr": a.url}); out["joined"] != true {
			t.Fatal(out)
		}
		v.unseal(shares[1:])
		v.awaitHealth(429)
		list = append(list, v)
	}
	return list, shares, token
}

func active(t *testing.T, list []*vaultTest) *vaultTest {
	t.Helper()
	var found *vaultTest
	polltest.Within(t, 60*time.Second, func() bool {
		for _, v := range list {
			if code, _ := v.do("GET", "sys/health", "", nil); code == 200 {
				found = v
				return true
			}
		}
		return false
	}, "%s", "an active server")
	return found
}

// awaitVoters waits until three servers vote.
func (v *vaultTest) awaitVoters(token string) {
	v.t.Helper()
	polltest.Within(v.t, 60*time.Second, func() bool {
		out := v.must(200, "GET", "sys/storage/raft/configuration", token, nil)
		n := 0
		for _, s := range out["data"].(obj)["config"].(obj)["servers"].([]any) {
			if s.(obj)["voter"] == true {
				n++
			}
		}
		return n == 3
	}, "%s", "three voters")
}

// TestVaultCluster: three servers; standbys hand requests on; the active one is stopped, another takes over; step-down.
func TestVaultCluster(t *testing.T) {
	list, shares, token := threeVaults(t, "")
	a, b, c := list[0], list[1], list[2]
	b.must(204, "POST", "sys/mounts/secret", token, obj{"type": "kv"})
	b.must(204, "PUT", "secret/x", token, obj{"v": "1"})
	if out := c.must(200, "GET", "secret/x", token, nil); out["data"].(obj)["v"] != "1" {
		t.Fatal(out)
	}
	b.must(403, "GET", "secret/x", "wrong", nil)
	if out := b.must(200, "GET", "sys/leader", "", nil); out["ha_enabled"] != true || out["is_self"] != false ||
		out["leader_address"] != a.url {
		t.Fatal(out)
	}
	// not handed on
	for path, header := range map[string]string{"secret/x?version=1": "X-Vault-No-Request-Forwarding",
		"sys/storage/raft/snapshot": "X-None"} {
		req, err := http.NewRequest("GET", b.url+"/v1/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header, "true")
		req.Header.Set("X-Vault-Token", token)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 307 || resp.Header.Get("Location") != a.url+"/v1/"+path {
			t.Errorf("%s of a standby: %s to %s", path, resp.Status, resp.Header.Get("Location"))
		}
	}
	b.awaitVoters(token)
	polltest.Within(t, 60*time.Second, func() bool {
		return len(c.must(200, "GET", "sys/ha-status", token, nil)["data"].(obj)["nodes"].([]any)) == 3
	}, "%s", "both standbys in ha-status")
	a.stop()
	next := active(t, list[1:])
	other := b
	if next == b {
		other = c
	}
	handed := other.timing("ha.rpc.client.forward")
	other.must(204, "PUT", "secret/x", token, obj{"v": "2"})
	if n := other.timing("ha.rpc.client.forward"); n <= handed {
		t.Errorf("%d requests were handed on, and %d before", n, handed)
	}
	if out := next.must(200, "GET", "secret/x", token, nil); out["data"].(obj)["v"] != "2" {
		t.Fatal(out)
	}
	a.start()
	if st := a.must(200, "GET", "sys/seal-status", "", nil); st["sealed"] != true || st["initialized"] != true {
		t.Fatal(st)
	}
	a.unseal(shares[:2])
	a.awaitHealth(429)
	other.must(204, "PUT", "sys/step-down", token, nil)
	polltest.Within(t, 60*time.Second, func() bool {
		code, _ := next.do("GET", "sys/health", "", nil)
		return code == 429
	}, "%s", "another active server")
	counted := func(name string) bool { // by whoever was active: on a busy machine that has changed once more
		return slices.ContainsFunc(list, func(v *vaultTest) bool { return v.timing(name) > 0 })
	}
	polltest.Until(t, func() bool { return counted("core.step_down") && counted("core.leadership_lost") },
		"the turn that ended to be counted")
	polltest.Until(t, func() bool { return counted("ha.rpc.client.echo") }, "a standby to say that it is there")
	if out := next.must(200, "GET", "secret/x", token, nil); out["data"].(obj)["v"] != "2" {
		t.Fatal(out)
	}
}

// TestVaultKeys: new shares with a proof that they arrived, a root token from shares; old shares open nothing.
func TestVaultKeys(t *testing.T) {
	list, shares, token := threeVaults(t, "")
	a, b := list[0], list[1]
	start := b.must(200, "PUT", "sys/rekey/init", "", obj{"secret_shares": 2, "secret_threshold": 2,
		"require_verification": true})
	b.must(400, "PUT", "sys/rekey/init", "", obj{"secret_shares": 1, "secret_threshold": 1})
	b.must(400, "PUT", "sys/rekey/update", "", obj{"key": shares[0], "nonce": "other"})
	b.must(200, "PUT", "sys/rekey/update", "", obj{"key": shares[0], "nonce": start["nonce"]})
	done := b.must(200, "PUT", "sys/rekey/update", "", obj{"key": shares[2], "nonce": start["nonce"]})
	if done["complete"] != true || done["verification_required"] != true {
		t.Fatal(done)
	}
	fresh, _ := keysOf(obj{"keys_base64": done["keys_base64"], "root_token": ""})
	if st := a.must(200, "GET", "sys/seal-status", "", nil); st["n"] != 3.0 {
		t.Fatal(st) // not before they were verified
	}
	b.must(200, "PUT", "sys/rekey/verify", "", obj{"key": fresh[0], "nonce": done["verification_nonce"]})
	if out := b.must(200, "PUT", "sys/rekey/verify", "",
		obj{"key": fresh[1], "nonce": done["verification_nonce"]}); out["complete"] != true {
		t.Fatal(out)
	}
	a.must(204, "POST", "sys/rotate", token, nil)

	otp := strings.Repeat("o", int(a.must(200, "GET", "sys/generate-root/attempt", "", nil)["otp_length"].(float64)))
	attempt := a.must(200, "PUT", "sys/generate-root/attempt", "", obj{"otp": otp})
	a.must(200, "PUT", "sys/generate-root/update", "", obj{"key": fresh[0], "nonce": attempt["nonce"]})
	made := a.must(200, "PUT", "sys/generate-root/update", "", obj{"key": fresh[1], "nonce": attempt["nonce"]})
	raw, err := base64.RawStdEncoding.DecodeString(made["encoded_root_token"].(string))
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		raw[i] ^= 'o'
	}
	a.must(200, "GET", "auth/token/lookup-self", string(raw), nil)

	// A standby follows the change of the root key, and takes over.
	a.must(204, "POST", "sys/mounts/secret", token, obj{"type": "kv"})
	a.must(204, "PUT", "sys/seal", token, nil)
	next := active(t, list[1:])
	next.must(204, "PUT", "secret/x", string(raw), obj{"v": "1"})
	a.must(200, "PUT", "sys/unseal", "", obj{"key": shares[0]})
	a.must(400, "PUT", "sys/unseal", "", obj{"key": shares[1]})
	a.unseal(fresh)
	a.awaitHealth(429)
	a.must(403, "PUT", "sys/storage/raft/remove-peer", "", obj{"server_id": "a"})
	next.must(204, "PUT", "sys/storage/raft/demote", token, obj{"server_id": "a"})
	next.must(204, "PUT", "sys/storage/raft/remove-peer", token, obj{"server_id": "a"})
	next.must(400, "PUT", "sys/storage/raft/remove-peer", token, obj{"server_id": "a"})
}

// TestVaultSnapshot: a snapshot is taken and put back; one of another cluster is refused, and taken by force.
func TestVaultSnapshot(t *testing.T) {
	a := startVault(t, "a", "")
	shares, token := keysOf(a.must(200, "PUT", "sys/init", "", obj{"secret_shares": 1, "secret_threshold": 1}))
	a.unseal(shares)
	a.awaitHealth(200)
	a.must(204, "POST", "sys/mounts/secret", token, obj{"type": "kv"})
	a.must(204, "PUT", "secret/x", token, obj{"v": "old"})
	if code, _, _ := a.raw("GET", "sys/storage/raft/snapshot", "wrong", nil); code != 403 {
		t.Fatal(code)
	}
	code, saved, _ := a.raw("GET", "sys/storage/raft/snapshot", token, nil)
	if code != 200 || len(saved) == 0 {
		t.Fatal(code)
	}
	a.must(204, "PUT", "secret/x", token, obj{"v": "new"})
	for _, bad := range [][]byte{saved[:len(saved)/2], []byte("no archive"), nil} {
		if code, body, _ := a.raw("POST", "sys/storage/raft/snapshot", token, bad); code != 400 ||
			!bytes.Contains(body, []byte("no snapshot, or a damaged one: ")) {
			t.Errorf("%d bytes that are no snapshot: %d %s", len(bad), code, body)
		}
	}
	if code, body, _ := a.raw("POST", "sys/storage/raft/snapshot", token, saved); code != 204 {
		t.Fatal(code, string(body))
	}
	polltest.Within(t, 60*time.Second, func() bool {
		_, out := a.do("GET", "secret/x", token, nil)
		data, _ := out["data"].(obj)
		return data["v"] == "old"
	}, "the former value")

	b := startVault(t, "b", "")
	otherShares, other := keysOf(b.must(200, "PUT", "sys/init", "", obj{"secret_shares": 1, "secret_threshold": 1}))
	b.unseal(otherShares)
	b.awaitHealth(200)
	if code, _, _ := b.raw("POST", "sys/storage/raft/snapshot", other, saved); code != 400 {
		t.Fatal(code)
	}
	if code, body, _ := b.raw("POST", "sys/storage/raft/snapshot-force", other, saved); code != 204 {
		t.Fatal(code, string(body))
	}
	b.awaitHealth(503)
	b.must(400, "PUT", "sys/unseal", "", obj{"key": otherShares[0]})
	b.unseal(shares)
	b.awaitHealth(200)
	if out := b.must(200, "GET", "secret/x", token, nil); out["data"].(obj)["v"] != "old" {
		t.Fatal(out)
	}
}

// raw sends bytes and returns bytes.
func (v *vaultTest) raw(method, path, token string, body []byte) (int, []byte, http.Header) {
	v.t.Helper()
	req, err := http.NewRequest(method, v.url+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return resp.StatusCode, out, resp.Header
}
