package keeper

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mounting"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/tools"
)

// openRoutes need no token. A path that joins them has to be written down here, and defended.
var openRoutes = []string{
	"sys/mfa/validate", // with a code, for the login whose first factor was good
	"sys/wrapping/unwrap", "sys/wrapping/rewrap", "sys/wrapping/lookup", "sys/replication/status",
	"auth/userpass/login/status", "auth/ldap/login/status", "auth/approle/login", "auth/jwt/login", "auth/oidc/login",
	"auth/kubernetes/login", "auth/azure/login", "auth/gcp/login", "auth/aws/login", "auth/github/login",
	"auth/radius/login", "auth/radius/login/status", "auth/okta/login/status",
	"auth/cert/login",
	"ssh/public_key", "ssh/verify", // hosts ask: what to trust, and, once, whom a password that they were shown lets in
	"auth/jwt/oidc/auth_url", "auth/jwt/oidc/callback", "auth/oidc/oidc/auth_url", "auth/oidc/oidc/callback",
	"identity/oidc/provider/status/.well-known/openid-configuration", "identity/oidc/provider/status/.well-known/keys",
	"identity/oidc/provider/status/token",    // with the secret of a client, and a code
	"identity/oidc/provider/status/userinfo", // with an access token that the provider sealed
	"identity/oidc/.well-known/openid-configuration", "identity/oidc/.well-known/keys",
	"pki/ca", "pki/ca/pem", "pki/ca_chain", "pki/cert/status", "pki/cert/status/raw", "pki/cert/status/raw/pem", "pki/crl",
	"pki/crl/pem", "pki/crl/delta", "pki/crl/delta/pem",
	"pki/issuers/", "pki/ocsp", "pki/ocsp/status", "pki/issuer/status/json", "pki/issuer/status/pem",
	"pki/issuer/status/der", "pki/issuer/status/crl", "pki/issuer/status/crl/pem",
	"pki/unified-crl", "pki/unified-crl/pem", "pki/unified-crl/delta", "pki/unified-crl/delta/pem", "pki/unified-ocsp",
	"pki/unified-ocsp/status", "pki/issuer/status/unified-crl",
	"pki/issuer/status/unified-crl/pem", "pki/issuer/status/unified-crl/der", "pki/issuer/status/unified-crl/delta",
	"pki/issuer/status/unified-crl/delta/pem", "pki/issuer/status/unified-crl/delta/der",
	"pki/issuer/status/crl/der", "pki/issuer/status/crl/delta", "pki/issuer/status/crl/delta/pem",
	"pki/issuer/status/crl/delta/der",
}

// acmeRoutes are open below each directory of pki's: what they do needs the signature of an account's key.
var acmeRoutes = []string{"directory", "new-nonce", "new-account", "new-order", "revoke-cert", "key-change",
	"account/status", "account/status/orders", "order/status", "order/status/finalize", "order/status/cert",
	"authorization/status", "challenge/status/status"}

// knownOpen reports whether a path was written down as one that needs no token.
func knownOpen(path string) bool {
	for _, of := range []string{"pki/", "pki/roles/status/", "pki/issuer/status/", "pki/issuer/status/roles/status/"} {
		if rest, is := strings.CutPrefix(path, of+"acme/"); is && slices.Contains(acmeRoutes, rest) {
			return true
		}
	}
	return slices.Contains(openRoutes, path)
}

// ownRoutes need a token and no policy: what they tell depends on the token's rights.
var ownRoutes = []string{"sys/internal/ui/mounts", "sys/internal/ui/mounts/status",
	"sys/internal/ui/namespaces"}

// cell is one request of the matrix.
type cell struct {
	op   secrets.Operation
	path string
}

// cells are all requests that the mounts' engines know. A type of mounts without a list of paths fails.
func cells(t *testing.T, h *house) (list []cell) {
	for name, k := range h.owners.mounts.Kinds {
		if name == "issuer" { // there in other tests alone
			continue
		}
		switch k.Side {
		case mounting.Secret:
			if name != "kv" { // mounted by the house
				h.ok(secrets.Update, "sys/mounts/"+name, `{"type":"`+name+`"}`)
			}
		case mounting.Login:
			h.ok(secrets.Update, "sys/"+name, `{"type":"`+strings.TrimPrefix(name, "auth/")+`"}`)
		}
	}
	st := h.gate.Load()
	for _, e := range st.Mounts.All() {
		routes, ok := tools.RoutesOf(e, st.Engines[e.Accessor])
		if !ok {
			t.Errorf("mounts of type %s list no paths: see engineRoutes", e.Type)
		}
		for _, r := range routes {
			path := e.Path + r.Path
			for {
				from, to := strings.IndexByte(path, '{'), strings.IndexByte(path, '}')
				if from < 0 {
					break
				}
				path = path[:from] + "status" + path[to+1:] // a name that paths with a fixed choice have too
			}
			for _, op := range r.Ops {
				c := cell{op, path}
				if op == secrets.List {
					c.path += "/"
				}
				list = append(list, c)
			}
		}
	}
	return list
}

// RELIABILITY C1: every request of every engine, by everybody who may not. The list of paths comes from the
// engines: one that is new is judged without being named here.
func TestDefaultDenyMatrix(t *testing.T) {
	h := newHouse(t)
	list := cells(t, h)
	words := []string{"create", "read", "update", "patch", "delete", "list", "scan", "sudo"}
	for _, word := range words {
		var rules strings.Builder
		for _, c := range list {
			fmt.Fprintf(&rules, "path %q { capabilities = [%q] }\n", c.path, word)
		}
		h.ok(secrets.Update, "sys/policy/only-"+word, text(t, map[string]string{"policy": rules.String()}))
	}
	h.ok(secrets.Update, "sys/policy/unrelated",
		`{"policy":"path \"unrelated/*\" { capabilities = [\"create\", \"read\", \"update\", \"patch\", \"delete\", `+
			`\"list\", \"sudo\"] }"}`)
	token := func(policy string) *task.Issued {
		return h.ok(secrets.Update, "auth/token/create",
			`{"policies":["`+policy+`"],"no_default_policy":true,"ttl":"1h"}`).Token
	}
	expired := h.ok(secrets.Update, "auth/token/create", `{"policies":["root"],"ttl":"1s"}`).Token.ID
	revoked := h.ok(secrets.Update, "auth/token/create", `{"policies":["root"]}`).Token.ID
	h.ok(secrets.Update, "auth/token/revoke", `{"token":"`+revoked+`"}`)
	batch := h.ok(secrets.Update, "auth/token/create",
		`{"policies":["unrelated"],"type":"batch","no_default_policy":true,"ttl":"1h"}`).Token.ID
	wrapping, err := h.Handle(t.Context(), &secrets.Request{Op: secrets.Update, Path: "sys/wrapping/wrap",
		Body: []byte(`{"a":"b"}`), Caller: secrets.Caller{Token: h.root}, Wrap: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	h.wait(2 * time.Second)
	nobodies := map[string]string{"no token": "", "a wrong token": "hvs.wrong",
		"a batch token that nobody made": "hvb.AAAAwrong", "an expired root token": expired, "a revoked root token": revoked,
		"an unrelated policy": token("unrelated").ID, "an unrelated batch token": batch,
		"an accessor": token("root").Accessor, "the root token's id cut short": h.root[:len(h.root)-1],
		"the root token in capitals": strings.ToUpper(h.root), "a wrapping token": wrapping.Wrap.Token,
		"a policy's name": "root", "a space": " "}
	count := 0
	judge := func(who, id string, c cell, want bool) {
		t.Helper()
		count++
		_, err := h.as(id, c.op, c.path, "")
		denied := errkind.Is(err, errkind.Denied) && errkind.Text(err) == "permission denied"
		if denied == want {
			t.Errorf("%s: %v %s: allowed=%v, want %v (%v)", who, c.op, c.path, !denied, want, err)
		}
	}
	seen := map[string]bool{}
	st := h.gate.Load()
	for _, c := range list {
		e, rest := st.Mounts.Route(c.path)
		special := st.Engines[e.Accessor].Special()
		if engine.Matches(special.Open, rest) {
			seen[c.path] = true
			continue
		}
		own := engine.Matches(special.Token, rest)
		if own && !slices.Contains(ownRoutes, c.path) {
			t.Errorf("%s asks for no policy, and is not among ownRoutes", c.path)
		}
		for who, id := range nobodies {
			if id == "" && engine.Matches(special.Visible, rest) {
				if r, err := h.as(id, c.op, c.path, ""); err != nil || string(r.Data) != `{"auth":{},"secret":{}}` {
					t.Errorf("%s: %v %s: %v, %v", who, c.op, c.path, r, err)
				}
				continue
			}
			if live := who == "an unrelated policy" || who == "an unrelated batch token" || who == "a wrapping token"; own &&
				live {
				continue // it may ask; what it is told is judged elsewhere
			}
			if who == "a wrapping token" && c.path == "cubbyhole/response" {
				continue
			}
			judge(who, id, c, false)
		}
		protected := engine.Matches(special.Protected, rest)
		for _, word := range words {
			if own {
				break
			}
			fits := word == c.op.String() || (c.op == secrets.Update && word == "create")
			if !fits {
				judge("only "+word, token("only-"+word).ID, c, false)
			} else if protected {
				judge("only "+word+", without sudo", token("only-"+word).ID, c, false)
			}
		}
	}
	for path := range seen {
		if !knownOpen(path) {
			t.Errorf("%s is open to everybody, and not among openRoutes", path)
		}
	}
	if count < 5000 { // some 7,000 when this was written
		t.Errorf("only %d cells were judged", count)
	}
	t.Logf("%d requests, %d cells", len(list), count)
}

// With the one capability that it asks for, and sudo where that is asked for too, a request reaches its engine.
func TestRightCapabilityIsEnough(t *testing.T) {
	h := newHouse(t)
	list := cells(t, h)
	st := h.gate.Load()
	for _, c := range list {
		e, rest := st.Mounts.Route(c.path)
		special := st.Engines[e.Accessor].Special()
		if engine.Matches(special.Open, rest) || slices.Contains([]string{"sys/seal", "sys/step-down"}, c.path) {
			continue
		}
		acl := policy.Compile([]*policy.Policy{{Name: "p", Paths: []policy.Path{{Pattern: c.path,
			Capabilities: c.op.Need() | policy.Create | policy.Sudo}}}}, nil)
		q := policy.Request{Path: c.path, Need: c.op.Need(), Protected: engine.Matches(special.Protected, rest)}
		if !acl.Allow(&q).Allowed {
			t.Errorf("%v %s is denied to who has the capability", c.op, c.path)
		}
	}
}
