package keeper

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/task"
)

// methodsOfLogins are roles of four methods, each with a login by it, and what writes it.
func (h *house) methodsOfLogins(t *testing.T) map[string]struct {
	role, body string
	login      func() (*task.Reply, error)
} {
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	h.ok(secrets.Update, "sys/auth/approle", `{"type":"approle"}`)
	h.ok(secrets.Update, "sys/auth/jwt", `{"type":"jwt"}`)
	h.ok(secrets.Update, "sys/auth/cert", `{"type":"cert"}`)
	i, ca := jwkstest.New(t, "ES256"), newSigner(t, h.now)
	leaf := ca.leaf(nil)
	h.ok(secrets.Update, "auth/jwt/config", text(t, map[string]any{"jwt_validation_pubkeys": i.PublicKey()}))
	h.ok(secrets.Update, "auth/cert/config", `{"disable_binding":true}`)
	const policies = `,"token_policies":"app","token_ttl":"10m"}`
	type method = struct {
		role, body string
		login      func() (*task.Reply, error)
	}
	all := map[string]method{
		"userpass": {"auth/userpass/users/ann", `{"password_hash":"` + quick(t) + `"` + policies,
			func() (*task.Reply, error) {
				return h.as("", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`)
			}},
		"approle": {"auth/approle/role/app", `{"role_id":"id","bind_secret_id":false,"secret_id_bound_cidrs":"10.0.0.0/8"` +
			policies, func() (*task.Reply, error) { return h.login("id", "") }},
		"jwt": {"auth/jwt/role/r", `{"role_type":"jwt","user_claim":"sub","bound_audiences":"vault"` + policies,
			func() (*task.Reply, error) { return h.jwt("r", i.Sign(h.claims(nil))) }},
		"cert": {"auth/cert/certs/web", strings.TrimSuffix(text(t, map[string]any{"certificate": pemOf(ca.cert.Raw)}), "}") +
			policies, func() (*task.Reply, error) { return h.shows("", leaf, "auth/cert/login", "") }},
	}
	for _, m := range all {
		h.ok(secrets.Update, m.role, m.body)
	}
	return all
}

func (h *house) renewed(token, body string) (time.Duration, error) {
	r, err := h.as(token, secrets.Update, "auth/token/renew-self", body)
	if err != nil {
		return 0, err
	}
	return r.Token.Left, nil
}

// A renewal goes by the lifetimes that the role has then, and the mount; userpass and cert refuse it where the role's
// policies are others than at the login, the other methods do not ask.
func TestRenewalGoesByTheRoleOfNow(t *testing.T) {
	h := newHouse(t)
	for name, m := range h.methodsOfLogins(t) {
		made, err := m.login()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tok := made.Token.ID
		is := func(what, increment string, want time.Duration) {
			t.Helper()
			if got, err := h.renewed(tok, increment); err != nil || got != want {
				t.Errorf("%s: %s: %v, %v, want %v", name, what, got, err, want)
			}
		}
		role := func(body string) {
			t.Helper()
			h.ok(secrets.Update, m.role, strings.TrimSuffix(m.body, "}")+","+body+"}")
		}
		is("as at the login", "", 10*time.Minute)
		role(`"token_ttl":"30m"`)
		is("another token_ttl", "", 30*time.Minute)
		role(`"token_ttl":"5m"`)
		is("a lesser token_ttl", "", 5*time.Minute)
		is("by an increment", `{"increment":"2h"}`, 2*time.Hour)
		role(`"token_max_ttl":"40m"`)
		is("a token_max_ttl", `{"increment":"2h"}`, 40*time.Minute)
		role(`"token_max_ttl":"0","token_period":"3h"`)
		is("a token_period", `{"increment":"1m"}`, 3*time.Hour)
		role(`"token_period":"0"`)
		is("no token_period any more", "", 10*time.Minute)
		h.ok(secrets.Update, "sys/auth/"+name+"/tune", `{"max_lease_ttl":"20m"}`)
		is("the mount's maximum", `{"increment":"2h"}`, 20*time.Minute)
		h.ok(secrets.Update, "sys/auth/"+name+"/tune", `{"max_lease_ttl":"0"}`)
		h.wait(8 * time.Minute)
		role(`"token_ttl":"1m","token_max_ttl":"2m"`)
		if _, err := h.renewed(tok, ""); !errkind.Is(err, errkind.Invalid) ||
			errkind.Text(err) != "past the max TTL, cannot renew" {
			t.Errorf("%s: past its maximum: %v", name, err)
		}
		role(`"token_max_ttl":"0","token_policies":"other"`)
		asks := name == "userpass" || name == "cert"
		if _, err := h.renewed(tok, ""); asks != errkind.Is(err, errkind.Invalid) ||
			(asks && errkind.Text(err) != "policies have changed, not renewing") || (!asks && err != nil) {
			t.Errorf("%s: other policies: %v", name, err)
		}
		role(`"token_max_ttl":"0","token_policies":"APP,default"`)
		is("the same policies, in other words", "", 10*time.Minute)
		h.ok(secrets.Delete, m.role, "")
		if _, err := h.renewed(tok, ""); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(errkind.Text(err), "is gone") {
			t.Errorf("%s: without its role: %v", name, err)
		}
	}
}

// A mount that moved is asked about its tokens as before, and another at its old path is not.
func TestRenewalFollowsAMoveOfTheMount(t *testing.T) {
	h := newHouse(t)
	h.users("ann")
	tok := h.loginAs("ann").ID
	h.ok(secrets.Update, "sys/remount", `{"from":"auth/userpass","to":"auth/people"}`)
	h.users("ann")
	if _, err := h.renewed(tok, ""); err != nil {
		t.Error(err)
	}
	h.ok(secrets.Delete, "auth/people/users/ann", "")
	if _, err := h.renewed(tok, ""); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("its user is gone, one of the same name is at the old path: %v", err)
	}
}

// meeting holds commits back until two are under way, where it is asked to.
type meeting struct {
	*memstore.Store
	mu   sync.Mutex
	both chan struct{} // nil: commits pass
	here int
}

func (m *meeting) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	m.mu.Lock()
	both := m.both
	if m.here++; both != nil && m.here == 2 {
		close(both)
	}
	m.mu.Unlock()
	if both != nil {
		select {
		case <-both:
		case <-time.After(30 * time.Second):
			return fmt.Errorf("no other commit is under way")
		}
	}
	return m.Store.Commit(ctx, epoch, ops)
}

// Logins by one secret id without a limit do not wait for each other's commits.
func TestLoginsOfOneSecretIDAreCommittedTogether(t *testing.T) {
	store := &meeting{}
	h := newHouseOver(t, func(s *memstore.Store) storage.Backend { store.Store = s; return store })
	h.ok(secrets.Update, "sys/auth/approle", `{"type":"approle"}`)
	id := h.role(`{"token_policies":"app"}`)
	secret := fmt.Sprint(field(t, h.ok(secrets.Update, "auth/approle/role/app/secret-id", ""), "secret_id"))
	if _, err := h.login(id, secret); err != nil { // makes its entity
		t.Fatal(err)
	}
	store.mu.Lock()
	store.both, store.here = make(chan struct{}), 0
	store.mu.Unlock()
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			if _, err := h.login(id, secret); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}
