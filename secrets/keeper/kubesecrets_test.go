package keeper

import (
	"strings"
	"testing"

	"corbel.dev/corbel/kit/tokenreview/reviewtest"
	"corbel.dev/corbel/secrets"
)

// TestKubernetesLeases: the end of a lease deletes what was made for it, and a policy of the creds is enough to ask.
func TestKubernetesLeases(t *testing.T) {
	h, api := newHouse(t), reviewtest.New(t)
	h.ok(secrets.Update, "sys/mounts/kubernetes", `{"type":"kubernetes"}`)
	h.ok(secrets.Update, "sys/auth/kubernetes", `{"type":"kubernetes"}`) // an engine and a method of one name
	h.ok(secrets.Update, "kubernetes/config", text(t, map[string]any{"kubernetes_host": api.URL,
		"kubernetes_ca_cert": api.CA, "service_account_jwt": reviewtest.Reviewer}))
	h.ok(secrets.Update, "kubernetes/roles/view",
		`{"allowed_kubernetes_namespaces":"shop","kubernetes_role_name":"view"}`)
	h.policy("app", `path "kubernetes/creds/view" { capabilities = ["update"] }`)
	app := h.ok(secrets.Update, "auth/token/create", `{"policies":["app"],"ttl":"1h"}`).Token.ID
	r, err := h.as(app, secrets.Update, "kubernetes/creds/view", `{"kubernetes_namespace":"shop"}`)
	if err != nil || r.Lease == nil || !strings.HasPrefix(r.Lease.ID, "kubernetes/creds/view/") ||
		len(api.Objects()) != 2 {
		t.Fatalf("%+v, %v, %q", r, err, api.Objects())
	}
	h.ok(secrets.Update, "sys/leases/revoke", `{"lease_id":"`+r.Lease.ID+`","sync":true}`)
	if len(api.Objects()) != 0 {
		t.Errorf("%q are left", api.Objects())
	}
}
