package secretsplane

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/polltest"
)

// report asks a server of the secrets plane alone for the doctor's report.
func (v *vaultTest) report(token string, header ...string) (code int, r doctor.Report) {
	v.t.Helper()
	req, err := http.NewRequest(http.MethodGet, v.url+"/v1/sys/doctor", nil)
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
	if resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
			v.t.Fatal(err)
		}
	}
	return resp.StatusCode, r
}

// TestVaultDoctor: any server of secrets reports about all; the active one judges tokens, and one that cannot answers
// its own host alone.
func TestVaultDoctor(t *testing.T) {
	list, _, root := threeVaults(t, "")
	a, b, c := list[0], list[1], list[2]
	a.awaitVoters(root)
	all := func(v *vaultTest, token string) func() error {
		return func() error {
			code, r := v.report(token)
			if code != http.StatusOK || r.Asked != 3 || len(r.Silent) > 0 {
				return errors.New(http.StatusText(code) + " " + strings.Join(r.Fine, "; "))
			}
			return nil
		}
	}
	polltest.NoError(t, 30*time.Second, all(a, root), "a report of the active server about three")
	polltest.NoError(t, 30*time.Second, func() error { return all(other(list, active(t, list)), "")() },
		"a report of a standby about three")
	a.must(204, "PUT", "sys/policies/acl/doctor", root, obj{"policy": `path "sys/doctor" { capabilities = ["read"] }`})
	granted := func(policy string) string {
		return a.must(200, "POST", "auth/token/create", root,
			obj{"policies": []string{policy}})["auth"].(obj)["client_token"].(string)
	}
	for token, want := range map[string]int{"": 403, "s.wrong": 403, granted("default"): 403, granted("doctor"): 200} {
		code := 0
		asActive(t, list, func(v *vaultTest) { code, _ = v.report(token) })
		if code != want {
			t.Errorf("the active server answers %d, want %d", code, want)
		}
	}
	if code, _ := b.report("", "X-Forwarded-For", "10.0.0.1"); code != 403 {
		t.Errorf("a standby answers %d to a proxy on its host", code)
	}
	c.stop()
	polltest.NoError(t, 60*time.Second, func() error {
		_, r := a.report(root)
		for _, s := range r.Silent {
			if s.Member == "c" && len(r.Findings) > 0 && r.Findings[0].Code == "member-silent" {
				return nil
			}
		}
		return errors.New("not named")
	}, "the server that is gone")
	lead := active(t, list[:2])
	lead.must(204, "PUT", "sys/seal", root, obj{})
	if code, _ := lead.report(""); code != http.StatusOK {
		t.Errorf("a sealed server answers its own host with %d", code)
	}
}

// other is the first server that is not the one.
func other(list []*vaultTest, one *vaultTest) *vaultTest {
	return list[slices.IndexFunc(list, func(v *vaultTest) bool { return v != one })]
}

// asActive asks the active server, and once more where it was another one's turn before the answer was there.
func asActive(t *testing.T, list []*vaultTest, ask func(*vaultTest)) {
	t.Helper()
	for range 20 {
		v := active(t, list)
		ask(v)
		if code, _ := v.do("GET", "sys/health", "", nil); code == http.StatusOK {
			return
		}
	}
	t.Fatal("no server stays the active one")
}
