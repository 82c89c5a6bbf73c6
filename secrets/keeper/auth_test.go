package keeper

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/task"
)

// wait moves the house's clock. Only while nothing else runs.
func (h *house) wait(d time.Duration) { h.now = h.now.Add(d) }

// quick is a hash of the password "pw" that costs little.
func quick(t testing.TB) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("pw"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

func text(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestUserpass(t *testing.T) {
	h := newHouse(t)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/mounts/up", `{"type":"userpass"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/auth/up", `{"type":"kv"}`)
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	h.ok(secrets.Update, "auth/userpass/users/Ann",
		`{"password":"s3cret","token_policies":"app,App","token_ttl":"10m","token_max_ttl":"1h"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/userpass/users/bob", `{}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/userpass/users/bob",
		`{"password":"x","token_type":"batch","token_period":"1h"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/userpass/users/bob",
		`{"password":"x","token_bound_cidrs":"nowhere"}`)
	if r := h.ok(secrets.Read, "auth/userpass/users/ann", ""); field(t, r, "token_ttl") != 600.0 || fmt.Sprint(field(t, r,
		"token_policies")) != "[app]" || strings.Contains(string(r.Data), "password") {
		t.Errorf("the user reads %s", r.Data)
	}
	if r := h.ok(secrets.List, "auth/userpass/users/", ""); string(r.Data) != `{"keys":["ann"]}` {
		t.Errorf("the users are %s", r.Data)
	}
	r, err := h.as("", secrets.Update, "auth/userpass/login/aNN", `{"password":"s3cret"}`)
	if err != nil {
		t.Fatal(err)
	}
	if tok := r.Token; tok.DisplayName != "userpass-ann" || tok.Meta["username"] != "ann" || tok.Left != 10*time.Minute ||
		fmt.Sprint(tok.Policies) != "[app default]" || tok.Parent != "" || !tok.Renewable {
		t.Errorf("the login gave %+v", tok.Token)
	}
	if _, err := h.as(r.Token.ID, secrets.Read, "auth/token/lookup-self", ""); err != nil {
		t.Errorf("the token opens nothing: %v", err)
	}
	h.refused(errkind.Denied, "", secrets.Read, "auth/userpass/users/ann", "")
	for body, path := range map[string]string{`{"password":"no"}`: "ann", `{"password":"s3cret"}`: "none", `{}`: "ann"} {
		h.refused(errkind.Invalid, "", secrets.Update, "auth/userpass/login/"+path, body)
	}
	h.ok(secrets.Update, "auth/userpass/users/ann/password", text(t, map[string]string{"password_hash": quick(t)}))
	h.refused(errkind.Invalid, "", secrets.Update, "auth/userpass/login/ann", `{"password":"s3cret"}`)
	if _, err := h.as("", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`); err != nil {
		t.Errorf("by the new password: %v", err)
	}
	h.ok(secrets.Update, "auth/userpass/users/ann/policies", `{"token_policies":["root"]}`)
	h.refused(errkind.Invalid, "", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`) // no method makes root
	h.ok(secrets.Delete, "auth/userpass/users/ann", "")
	h.refused(errkind.Invalid, "", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`)
	h.ok(secrets.Delete, "sys/auth/userpass", "")
	h.refused(errkind.Denied, "", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`)
}

// However many guess at once, five guesses get an answer, and the right password gets none then.
func TestBruteForceIsLockedOut(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	h.ok(secrets.Update, "auth/userpass/users/ann", text(t, map[string]string{"password_hash": quick(t)}))
	var answered, denied atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				name := []string{"ann", "ANN", "Ann"}[i%3]
				_, err := h.Handle(context.Background(), &secrets.Request{Op: secrets.Update, Path: "auth/userpass/login/" + name,
					Body: []byte(`{"password":"guess"}`)})
				switch {
				case errkind.Is(err, errkind.Invalid):
					answered.Add(1)
				case errkind.Is(err, errkind.Denied):
					denied.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if answered.Load() != 5 || denied.Load() != 35 {
		t.Errorf("%d guesses were answered and %d denied, want 5 and 35", answered.Load(), denied.Load())
	}
	h.refused(errkind.Denied, "", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`)
	h.wait(15 * time.Minute)
	if _, err := h.as("", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`); err != nil {
		t.Errorf("when the time is over: %v", err)
	}
}

func (h *house) role(body string) (roleID string) {
	h.t.Helper()
	h.ok(secrets.Update, "auth/approle/role/App", body)
	return fmt.Sprint(field(h.t, h.ok(secrets.Read, "auth/approle/role/app/role-id", ""), "role_id"))
}

func (h *house) login(role, secret string) (*task.Reply, error) {
	return h.Handle(context.Background(), &secrets.Request{Op: secrets.Update, Path: "auth/approle/login",
		Origin: secrets.Origin{Remote: netip.MustParseAddr("10.1.2.3")},
		Body:   []byte(`{"role_id":"` + role + `","secret_id":"` + secret + `"}`)})
}

func TestApprole(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/approle", `{"type":"approle"}`)
	id := h.role(`{"token_policies":"app","token_period":"1h","secret_id_ttl":"2h","secret_id_bound_cidrs":"10.0.0.0/8"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/approle/role/open", `{"bind_secret_id":false}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/approle/role/none/secret-id", `{}`)
	for _, body := range []string{`{"cidr_list":"11.0.0.0/8"}`, `{"ttl":"3h"}`, `{"num_uses":-1}`, `{"metadata":"no"}`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "auth/approle/role/app/secret-id", body)
	}
	made := h.ok(secrets.Update, "auth/approle/role/app/secret-id", `{"metadata":"{\"k\":\"v\"}"}`)
	secret, accessor := fmt.Sprint(field(t, made, "secret_id")), fmt.Sprint(field(t, made, "secret_id_accessor"))
	r, err := h.login(id, secret)
	if err != nil {
		t.Fatal(err)
	}
	if r.Token.Meta["role_name"] != "app" || r.Token.Meta["k"] != "v" || r.Token.Period != time.Hour ||
		fmt.Sprint(r.Token.Policies) != "[app default]" {
		t.Errorf("the login gave %+v", r.Token.Token)
	}
	if _, err := h.login(id, "x"); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("with a wrong secret id: %v", err)
	}
	if _, err := h.login("x", secret); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("with a wrong role id: %v", err)
	}
	if r := h.ok(secrets.List, "auth/approle/role/app/secret-id/", ""); fmt.Sprint(field(t, r,
		"keys")) != "["+accessor+"]" {
		t.Errorf("the accessors are %s", r.Data)
	}
	for path, name := range map[string]string{"secret-id/lookup": "secret_id",
		"secret-id-accessor/lookup": "secret_id_accessor"} {
		value := map[string]string{"secret_id": secret, "secret_id_accessor": accessor}[name]
		if r := h.ok(secrets.Update, "auth/approle/role/app/"+path, text(t, map[string]string{name: value})); field(t, r,
			"secret_id_ttl") != 7200.0 {
			t.Errorf("%s: %s", path, r.Data)
		}
	}
	h.refused(errkind.NotFound, h.root, secrets.Update, "auth/approle/role/app/secret-id-accessor/lookup",
		`{"secret_id_accessor":"x"}`)
	h.ok(secrets.Update, "auth/approle/role/app/secret-id-ttl", `{"secret_id_ttl":"5h"}`)
	if r := h.ok(secrets.Read, "auth/approle/role/app/secret-id-ttl", ""); field(t, r, "secret_id_ttl") != 18000.0 {
		t.Errorf("one parameter: %s", r.Data)
	}
	h.ok(secrets.Update, "auth/approle/role/app/custom-secret-id", `{"secret_id":"mine","ttl":"1m"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/approle/role/app/custom-secret-id", `{"secret_id":"mine"}`)
	h.wait(time.Minute)
	if _, err := h.login(id, "mine"); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("with one that has ended: %v", err)
	}
	if r := h.ok(secrets.Update, "auth/approle/tidy/secret-id", ""); r.Status != 202 || len(r.Warnings) != 1 {
		t.Errorf("tidy: %+v", r)
	}
	h.ok(secrets.Update, "auth/approle/role/app/secret-id-accessor/destroy", text(t,
		map[string]string{"secret_id_accessor": accessor}))
	if _, err := h.login(id, secret); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("with one that was destroyed: %v", err)
	}
	h.ok(secrets.Update, "auth/approle/role/app/custom-secret-id", `{"secret_id":"again"}`)
	h.ok(secrets.Delete, "auth/approle/role/app", "")
	if left := h.keysBelow("auth/"); len(left) != 0 {
		t.Errorf("left behind the role: %q", left)
	}
}

// keysBelow lists what the storage has.
func (h *house) keysBelow(prefix string) (keys []string) {
	h.t.Helper()
	records, err := h.store.Scan(context.Background(), prefix, "", 0)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range records {
		if strings.HasPrefix(r.Key, prefix) {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// A use-limited secret id logs in as often as it says and never once more, whoever tries at once; while it is
// destroyed, too.
func TestSecretIDUsesUnderTraffic(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/approle", `{"type":"approle"}`)
	id := h.role(`{"secret_id_num_uses":7}`)
	for round := range 6 {
		made := h.ok(secrets.Update, "auth/approle/role/app/secret-id", `{}`)
		secret := fmt.Sprint(field(t, made, "secret_id"))
		destroyed := round%2 == 1
		var good atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 3 {
					if _, err := h.login(id, secret); err == nil {
						good.Add(1)
					}
				}
			})
		}
		if destroyed {
			h.ok(secrets.Update, "auth/approle/role/app/secret-id/destroy", `{"secret_id":"`+secret+`"}`)
		}
		wg.Wait()
		if n := good.Load(); n > 7 || (!destroyed && n != 7) {
			t.Errorf("round %d: %d logins by a secret id of 7 uses", round, n)
		}
		if _, err := h.login(id, secret); err == nil {
			t.Errorf("round %d: a secret id without uses logs in", round)
		}
		h.wait(time.Hour) // those failures count against the role's alias
	}
}

// Who is gone renews nothing: a token lives no longer than it would have without the renewal.
func TestRenewalAsksWhoIsStillThere(t *testing.T) {
	h := newHouse(t)
	h.users("ann")
	ann := h.loginAs("ann").ID
	h.ok(secrets.Update, "sys/auth/approle", `{"type":"approle"}`)
	id := h.role(`{"token_ttl":"10m","secret_id_num_uses":1}`)
	r, err := h.login(id, fmt.Sprint(field(t, h.ok(secrets.Update, "auth/approle/role/app/secret-id", ""), "secret_id")))
	if err != nil {
		t.Fatal(err)
	}
	robot := r.Token.ID
	renew := func(token string) error {
		_, err := h.as(token, secrets.Update, "auth/token/renew-self", "")
		return err
	}
	for _, token := range []string{ann, robot} {
		if err := renew(token); err != nil {
			t.Fatal(err)
		}
	}
	h.ok(secrets.Delete, "auth/userpass/users/ann", "")
	h.ok(secrets.Delete, "auth/approle/role/app", "")
	for token, who := range map[string]string{ann: `user "ann" is gone`, robot: `role "app" is gone`} {
		if err := renew(token); !errkind.Is(err, errkind.Invalid) || !strings.Contains(errkind.Text(err), who) {
			t.Errorf("a renewal where %s: %v", who, err)
		}
		if !h.alive(token) {
			t.Errorf("where %s its token ended before its time", who)
		}
	}
}
