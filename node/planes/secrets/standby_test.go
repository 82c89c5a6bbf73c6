package secretsplane

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// read reads a path with headers, and says whether a standby answered by itself.
func (v *vaultTest) read(path, token string, header ...string) (code int, here bool, got *http.Response, body string) {
	v.t.Helper()
	req, err := http.NewRequest(http.MethodGet, v.url+"/v1/"+path, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", token)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw := make([]byte, 1<<16)
	n, _ := resp.Body.Read(raw)
	lag := resp.Header.Get("X-Corbel-LastContact")
	if lag != "" {
		if ms, err := strconv.Atoi(lag); err != nil || ms < 0 || ms > 5000 {
			v.t.Errorf("an answer says that it is at most %q ms old", lag)
		}
	}
	return resp.StatusCode, lag != "", resp, string(raw[:n])
}

// awaitRead waits until a read has a code, and says whether it came from the standby itself.
func (v *vaultTest) awaitRead(code int, path, token string) (here bool) {
	v.t.Helper()
	polltest.Until(v.t, func() bool {
		var got int
		got, here, _, _ = v.read(path, token)
		return got == code
	}, "status %d of %s", code, path)
	return here
}

// TestVaultStandbyReads: standbys answer reads of secrets by themselves and say how old they may be; whoever sends
// the index of what it wrote reads that; what a standby does not have or allow is the active server's to judge; what
// is revoked ends there too.
func TestVaultStandbyReads(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit")
	list, shares, root := threeVaults(t, "standby_reads = true\nenable_response_header_raft_node_id = "+
		"true\nunsafe_allow_api_audit_creation = true\n")
	a, b, c := list[0], list[1], list[2]
	a.must(204, "POST", "sys/mounts/secret", root, obj{"type": "kv"})
	a.must(204, "POST", "sys/mounts/two", root, obj{"type": "kv-v2"})
	b.must(204, "PUT", "secret/x", root, obj{"v": "0"})
	polltest.Until(t, func() bool { code, here, _, _ := c.read("secret/x", root); return code == 200 && here },
		"a standby to answer by itself")
	t.Run("index", func(t *testing.T) {
		here := 0
		for n := range 50 {
			want := fmt.Sprint(n)
			code, _, head := b.raw("PUT", "secret/x", root, []byte(`{"v":"`+want+`"}`))
			if code != 204 || head.Get("X-Vault-Index") == "" || head.Get("X-Vault-Raft-Node-ID") == "" {
				t.Fatal(code, head)
			}
			for _, v := range []*vaultTest{b, c, a} {
				code, own, _, body := v.read("secret/x", root, "X-Vault-Index", head.Get("X-Vault-Index"))
				if code != 200 || !strings.Contains(body, `"v":"`+want+`"`) {
					t.Fatalf("%d: %d %s", n, code, body)
				}
				if own {
					here++
				}
				if own && v == a {
					t.Error("the active server answers as a standby")
				}
			}
		}
		if here == 0 {
			t.Error("no standby answered by itself")
		}
		if _, own, _, _ := c.read("secret/x", root, "X-Vault-Index", "bm90IG9uZQ=="); own {
			t.Error("an index that cannot be read was taken for one that was reached")
		}
		if _, own, _, _ := c.read("secret/x", root, "X-Vault-Forward", "active-node"); own {
			t.Error("the active server was asked for")
		}
	})
	const node = "X-Vault-Raft-Node-ID"
	t.Run("local", func(t *testing.T) { // what tells of one server is told by the one that was asked
		for _, path := range []string{"sys/host-info", "sys/in-flight-req", "sys/config/state/sanitized",
			"sys/metrics?format=prometheus", "sys/pprof/goroutine?debug=1"} {
			polltest.Until(t, func() bool {
				code, _, head := b.raw("GET", path, root, nil)
				return code == 200 && head.Get(node) == "b"
			}, "%s of a standby", path)
			// a redirect leads there
			if code, _, head := b.raw("GET", path, "wrong", nil); code != 403 || head.Get(node) != "a" {
				t.Errorf("%s with a wrong token: %d %v", path, code, head)
			}
		}
		if _, body, _ := b.raw("GET", "sys/config/state/sanitized", root, nil); !strings.Contains(string(body),
			b.srv.apiAddr) {
			t.Errorf("a standby tells of another server: %s", body)
		}
	})
	t.Run("rights", func(t *testing.T) { standbyRights(t, a, b, root) })
	t.Run("audit", func(t *testing.T) {
		a.must(204, "PUT", "sys/audit/file", root, obj{"type": "file", "options": obj{"file_path": log}})
		count := func() int { raw, _ := os.ReadFile(log); return strings.Count(string(raw), `"secret/x"`) }
		polltest.Until(t, func() bool {
			before := count()
			_, here, _, _ := b.read("secret/x", root)
			return here && count() == before+2
		}, "a line of the request and one of the answer of a standby's read")
		b.must(204, "PUT", "secret/handed", root, obj{"v": "1"})
		if raw, err := os.ReadFile(log); err != nil || !strings.Contains(string(raw), `"forwarded_from":"`+hostname()+`"`) {
			t.Errorf("what a standby handed on is not recorded as such: %v", err)
		}
		a.must(204, "DELETE", "sys/audit/file", root, nil)
	})
	t.Run("keys", func(t *testing.T) {
		a.must(204, "PUT", "sys/rotate", root, nil)
		a.must(204, "PUT", "secret/after", root, obj{"v": "1"})
		polltest.Until(t, func() bool { code, here, _, _ := b.read("secret/after", root); return code == 200 && here },
			"a record of a new term on a standby")
		c.stop()
		c.start()
		if code, _, _, _ := c.read("secret/x", root); code != 503 {
			t.Error(code)
		}
		c.unseal(shares[:2])
		c.awaitHealth(429)
		polltest.Until(t, func() bool { code, here, _, _ := c.read("secret/x", root); return code == 200 && here },
			"a standby to answer after it was unsealed again")
	})
	t.Run("turn", func(t *testing.T) {
		a.awaitVoters(root)
		a.must(204, "PUT", "sys/step-down", root, nil)
		polltest.Within(t, time.Minute, func() bool {
			code, here, _, _ := a.read("secret/x", root)
			return code == 200 &&
				here
		}, "the former active server to answer as a standby")
		next := active(t, list)
		next.must(204, "PUT", "secret/x", root, obj{"v": "later"})
		polltest.Until(t, func() bool { _, _, _, body := a.read("secret/x", root); return strings.Contains(body, "later") },
			"what the next one wrote")
	})
}

func standbyRights(t *testing.T, a, b *vaultTest, root string) {
	made := func(more obj) string {
		more["policies"] = []string{"r"}
		return a.must(200, "POST", "auth/token/create", root, more)["auth"].(obj)["client_token"].(string)
	}
	a.must(204, "PUT", "sys/policies/acl/r", root,
		obj{"policy": `path "secret/x" { capabilities = ["read"] } path "two/*" { capabilities = ["read", "list"] }`})
	a.must(200, "PUT", "two/data/k", root, obj{"data": obj{"v": "1"}})
	token := made(obj{})
	// at once: what is not known here is asked of the active server
	if code, _, _, _ := b.read("secret/x", token); code != 200 {
		t.Fatal(code)
	}
	polltest.Until(t, func() bool { code, here, _, _ := b.read("two/data/k", token); return code == 200 && here },
		"version 2 on a standby")
	if code, here, _, _ := b.read("secret/other", token); code != 403 || here {
		t.Error(code, here)
	}
	if code, here, _, _ := b.read("secret/x", "wrong"); code != 403 || here {
		t.Error(code, here)
	}
	if code, here, _, _ := b.read("secret/none", root); code != 404 || here {
		t.Error(code, here)
	}
	limited := made(obj{"num_uses": 3})
	used := 0
	for range 8 {
		if code, _, _, _ := b.read("secret/x", limited); code == 200 {
			used++
		}
	}
	if used != 3 {
		t.Errorf("a token of 3 uses was used %d times", used)
	}
	short := made(obj{"ttl": "1s", "explicit_max_ttl": "1s"})
	b.awaitRead(403, "secret/x", short)
	a.must(204, "PUT", "sys/policies/acl/r", root, obj{"policy": `path "two/*" { capabilities = ["read"] }`})
	b.awaitRead(403, "secret/x", token)
	if code, _, _, _ := b.read("two/data/k", token); code != 200 {
		t.Error(code)
	}
	a.must(204, "POST", "auth/token/revoke", root, obj{"token": token})
	b.awaitRead(403, "two/data/k", token)
	a.must(204, "DELETE", "sys/mounts/two", root, nil)
	b.awaitRead(404, "two/data/k", root)
}
