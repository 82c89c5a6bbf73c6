package cloud

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

type body = map[string]any

// with is a copy of a document with other members.
func with(of body, change body) body {
	out := maps.Clone(of)
	maps.Copy(out, change)
	return out
}

func login(t *testing.T, d *enginetest.Desk, role, token string) *secrets.Auth {
	t.Helper()
	resp, err := d.Ask(secrets.Update, "login", body{"role": role, "jwt": token})
	if err != nil || resp.Auth == nil {
		t.Fatalf("%s: %v", role, err)
	}
	return resp.Auth
}

// TestAzure judges tokens of the form that the metadata service of a virtual machine was recorded to give.
func TestAzure(t *testing.T) {
	i := jwkstest.New(t, "RS256")
	d := enginetest.New(t, Azure(jwks.New(time.Now)), "auth/azure/")
	recorded := body{"aud": "https://management.azure.com", "iss": i.URL, "iat": d.Now().Unix(), "nbf": d.Now().Unix(),
		"exp": d.Now().Add(time.Hour).Unix(), "aio": "E2RgYPh", "appid": "d2b6a7a0-0000-4000-8000-000000000001",
		"appidacr": "2", "idp": i.URL, "idtyp": "app", "oid": "1c0b3a4e-0000-4000-8000-00000000000a",
		"sub": "1c0b3a4e-0000-4000-8000-00000000000a", "tid": "72f988bf-0000-4000-8000-000000000047", "ver": "1.0",
		"xms_mirid": "/subscriptions/aaaa-bbbb/resourcegroups/shop/providers/Microsoft.Compute/virtualMachines/web-1"}
	d.OK(secrets.Update, "role/web", body{"bound_subscription_ids": "AAAA-BBBB", "bound_resource_groups": "Shop",
		"token_policies": "app", "token_ttl": "20m"})
	good := i.Sign(recorded)
	d.Refused(errkind.Invalid, "not configured", secrets.Update, "login", body{"role": "web", "jwt": good})
	d.OK(secrets.Update, "config", body{"tenant_id": recorded["tid"], "resource": "https://management.azure.com/",
		"oidc_discovery_url": i.URL, "oidc_discovery_ca_pem": i.CA, "client_secret": "hidden-word"})
	if got := fmt.Sprint(d.OK(secrets.Read, "config", nil)); strings.Contains(got, "hidden-word") {
		t.Error(got)
	}
	a := login(t, d, "web", good)
	if a.Alias != recorded["oid"] || !slices.Equal(a.Policies, []string{"app"}) || a.TTL != 20*time.Minute ||
		a.Metadata["vm_name"] != "web-1" || a.Metadata["subscription_id"] != "aaaa-bbbb" || a.Metadata["role"] != "web" {
		t.Errorf("%+v", a)
	}
	no := func(what, role string, change body) {
		t.Helper()
		d.Refused(errkind.Invalid, what, secrets.Update, "login", body{"role": role, "jwt": i.Sign(with(recorded, change))})
	}
	no("issuer or tenant", "web", body{"tid": "other"})
	no("issuer or tenant", "web", body{"iss": "https://sts.windows.net/other/"})
	no("not for the resource", "web", body{"aud": "https://vault.azure.net"})
	no("names no object", "web", body{"oid": nil})
	no("expired", "web", body{"exp": d.Now().Add(-time.Hour).Unix()})
	no("subscription", "web", body{"xms_mirid": strings.Replace(recorded["xms_mirid"].(string), "aaaa", "cccc", 1)})
	no("subscription", "web", body{"xms_mirid": nil})
	no("resource group", "web", body{"xms_mirid": "/subscriptions/aaaa-bbbb/resourcegroups/x/providers/a/b/c"})
	no("invalid role name", "none", nil)
	other := jwkstest.New(t, "RS256")
	d.Refused(errkind.Invalid, "none of the keys", secrets.Update, "login", body{"role": "web",
		"jwt": other.Sign(recorded)})
	d.Refused(errkind.Invalid, "no JWT", secrets.Update, "login", body{"role": "web", "jwt": "a.b.c"})
	d.Refused(errkind.Invalid, "\"jwt\"", secrets.Update, "login", body{"role": "web"})

	d.OK(secrets.Update, "role/people", body{"bound_service_principal_ids": recorded["oid"], "bound_group_ids": "g1"})
	no("groups", "people", nil)
	no("groups", "people", body{"groups": []string{"g2"}})
	if a := login(t, d, "people", i.Sign(with(recorded, body{"groups": []string{"g2", "g1"}}))); !slices.Equal(a.Groups,
		[]string{"g2", "g1"}) {
		t.Errorf("%+v", a)
	}
	no("service principal", "people", body{"oid": "other", "groups": []string{"g1"}})
	d.OK(secrets.Update, "role/set", body{"bound_scale_sets": "pool"})
	no("scale set", "set", nil)
	login(t, d, "set", i.Sign(with(recorded, body{"xms_mirid": "/subscriptions/a/resourcegroups/b/providers/" +
		"Microsoft.Compute/virtualMachineScaleSets/pool"})))

	for field, b := range map[string]body{"bound_locations": {"bound_scale_sets": "x", "bound_locations": "westeurope"},
		"at least one": {}, "token_ttl": {"bound_scale_sets": "x", "token_ttl": "-1s"}} {
		d.Refused(errkind.Invalid, field, secrets.Update, "role/bad", b)
	}
	for field, value := range map[string]any{"tenant_id": "a/b", "resource": "", "environment": "Moon",
		"oidc_discovery_url": "x", "oidc_discovery_ca_pem": "x"} {
		d.Refused(errkind.Invalid, field, secrets.Update, "config", body{field: value})
	}
	// A renewal goes by the role of now, and not without it.
	renewer := d.Engine.(engine.Renewer)
	if terms, err := renewer.Renewable(t.Context(), d.Store, nil, engine.Login{Data: a.Login}); err != nil ||
		terms.TTL != 20*time.Minute {
		t.Errorf("%+v, %v", terms, err)
	}
	d.OK(secrets.Delete, "role/web", nil)
	if _, err := renewer.Renewable(t.Context(), d.Store, nil, engine.Login{Data: a.Login}); err == nil {
		t.Error("a role that is gone renews")
	}
	d.OK(secrets.Delete, "config", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "config", nil)
}

func TestAzureIssuers(t *testing.T) {
	for environment, want := range map[string]string{"AzurePublicCloud": "https://sts.windows.net/t1/",
		"AzureChinaCloud": "https://sts.chinacloudapi.cn/t1/"} {
		if got := (&tenant{ID: "t1", Environment: environment}).source().Discovery; got != want {
			t.Errorf("%s: %s", environment, got)
		}
	}
}

// key signs tokens of Google's form.
type key struct {
	id      string
	private []byte
}

func (k key) sign(t *testing.T, claims body) string {
	t.Helper()
	text, err := jwks.SignWith("RS256", k.private, k.id, claims)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// googleKeys is a server that answers as www.googleapis.com was recorded to: keys of accounts, and of its metadata
// servers.
func googleKeys(t *testing.T, byPath map[string]*key) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	for path, k := range byPath {
		private, err := jwks.NewKey("RS256")
		if err != nil {
			t.Fatal(err)
		}
		public, err := jwks.PublicOf(private)
		if err != nil {
			t.Fatal(err)
		}
		*k = key{path, private}
		set, err := jwks.Set([]jwks.Verifier{{ID: path, Alg: "RS256", Public: public}})
		if err != nil {
			t.Fatal(err)
		}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(set) })
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestGoogle judges tokens of the forms that the metadata server and IAM's signJwt were recorded to give.
func TestGoogle(t *testing.T) {
	const email = "ci@shop-1.iam.gserviceaccount.com"
	var account, meta key
	address := googleKeys(t, map[string]*key{"/service_accounts/v1/jwk/" + email: &account, "/oauth2/v3/certs": &meta})
	d := enginetest.New(t, GCP(jwks.New(time.Now)), "auth/gcp/")
	d.OK(secrets.Update, "config", body{"custom_endpoint": body{"api": address}, "credentials": "{}"})
	no := func(what, role, token string) {
		t.Helper()
		d.Refused(errkind.Invalid, what, secrets.Update, "login", body{"role": role, "jwt": token})
	}

	d.OK(secrets.Update, "role/ci", body{"type": "iam", "bound_service_accounts": email, "token_policies": "ci"})
	signed := body{"aud": "vault/ci", "sub": email, "exp": d.Now().Add(10 * time.Minute).Unix()}
	a := login(t, d, "ci", account.sign(t, signed))
	if a.Alias != email || a.Metadata["project_id"] != "shop-1" || !slices.Equal(a.Policies, []string{"ci"}) {
		t.Errorf("%+v", a)
	}
	no("aud must be vault/ci", "ci", account.sign(t, with(signed, body{"aud": "vault/other"})))
	no("must expire within", "ci", account.sign(t, with(signed, body{"exp": d.Now().Add(time.Hour).Unix()})))
	no("expired", "ci", account.sign(t, with(signed, body{"exp": d.Now().Add(-time.Hour).Unix()})))
	no("must expire", "ci", account.sign(t, body{"aud": "vault/ci", "sub": email, "iat": d.Now().Unix()}))
	no("not authorized", "ci", account.sign(t, with(signed, body{"sub": "x@shop-1.iam.gserviceaccount.com"})))
	no("no service account", "ci", account.sign(t, with(signed, body{"sub": "ann@example.com"})))
	no("another account", "ci", account.sign(t, with(signed, body{"iss": "x"})))
	no("none of the keys", "ci", key{account.id, meta.private}.sign(t, signed))
	d.OK(secrets.Update, "role/all", body{"type": "iam", "bound_service_accounts": "*", "bound_projects": "shop-2"})
	no("project", "all", account.sign(t, with(signed, body{"aud": "vault/all"})))

	machine := body{"aud": "http://vault/web", "azp": "104085", "email": "run@shop-1.iam.gserviceaccount.com",
		"email_verified": true, "exp": d.Now().Add(time.Hour).Unix(), "iat": d.Now().Unix(),
		"iss": "https://accounts.google.com", "sub": "104085", "google": body{"compute_engine": body{
			"instance_creation_timestamp": 1700000000, "instance_id": "6789", "instance_name": "web-1",
			"project_id": "shop-1", "project_number": 42, "zone": "europe-west3-b"}}}
	d.OK(secrets.Update, "role/web", body{"type": "gce", "bound_projects": "shop-1", "bound_zones": "europe-west3-b",
		"bound_regions": "europe-west3", "bound_service_accounts": "104085"})
	a = login(t, d, "web", meta.sign(t, machine))
	if a.Alias != "6789" || a.Metadata["zone"] != "europe-west3-b" || a.Metadata["instance_name"] != "web-1" {
		t.Errorf("%+v", a)
	}
	of := func(change body) body {
		return with(machine, body{"google": body{"compute_engine": with(machine["google"].(body)["compute_engine"].(body),
			change)}})
	}
	no("project", "web", meta.sign(t, of(body{"project_id": "other"})))
	no("zone", "web", meta.sign(t, of(body{"zone": "europe-west3-a"})))
	no("names no machine", "web", meta.sign(t, with(machine, body{"google": nil})))
	no("accounts.google.com", "web", meta.sign(t, with(machine, body{"iss": "x"})))
	no("aud must be", "web", meta.sign(t, with(machine, body{"aud": "https://shop"})))
	no("service account", "web", meta.sign(t, with(machine, body{"sub": "1"})))
	no("none of the keys", "web", key{meta.id, account.private}.sign(t, machine))
	d.OK(secrets.Update, "role/web", body{"bound_zones": ""})
	no("region", "web", meta.sign(t, of(body{"zone": "us-east1-b"})))
	d.OK(secrets.Update, "role/web", body{"bound_service_accounts": machine["email"]})
	no("service account", "web", meta.sign(t, with(machine, body{"email_verified": false, "sub": "1"})))
	d.OK(secrets.Update, "config", body{"gce_alias": "role_id", "iam_alias": "role_id"})
	if a := login(t, d, "web", meta.sign(t, machine)); a.Alias != "role:web" {
		t.Errorf("%+v", a)
	}

	for field, b := range map[string]body{"\"type\"": {}, "bound_service_accounts": {"type": "iam"},
		"bound_projects": {"type": "gce"}, "bound_zones": {"type": "iam", "bound_service_accounts": email,
			"bound_zones": "x"}, "any account of Google": {"type": "iam", "bound_service_accounts": "*"},
		"bound_labels": {"type": "gce", "bound_projects": "x", "bound_labels": "a:b"}, "max_jwt_exp": {"type": "iam",
			"bound_service_accounts": email, "max_jwt_exp": "2h"}, "add_group_aliases": {"type": "iam",
			"bound_service_accounts": email, "add_group_aliases": true}} {
		d.Refused(errkind.Invalid, field, secrets.Update, "role/bad", b)
	}
	d.Refused(errkind.Invalid, "delete the role first", secrets.Update, "role/ci", body{"type": "gce"})
	for field, value := range map[string]any{"iam_alias": "x", "gce_alias": "x", "custom_endpoint": body{"api": "x"},
		"custom_endpoint_ca_pem": "x"} {
		d.Refused(errkind.Invalid, field, secrets.Update, "config", body{field: value})
	}
	if got := d.OK(secrets.List, "roles/", nil); fmt.Sprint(got["keys"]) != "[all ci web]" {
		t.Errorf("%v", got)
	}
}
