package keeper

import (
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/kit/tokenreview/reviewtest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/task"
)

// TestKubernetes logs pods in through an API server that takes requests of the documented form alone.
func TestKubernetes(t *testing.T) {
	h, api, i := newHouse(t), reviewtest.New(t), jwkstest.New(t, "RS256")
	h.ok(secrets.Update, "sys/auth/kubernetes", `{"type":"kubernetes"}`)
	configure := func(more map[string]any) {
		t.Helper()
		body := map[string]any{"kubernetes_host": api.URL, "kubernetes_ca_cert": api.CA,
			"token_reviewer_jwt": reviewtest.Reviewer, "disable_local_ca_jwt": true}
		for k, v := range more {
			body[k] = v
		}
		h.ok(secrets.Update, "auth/kubernetes/config", text(t, body))
	}
	account := func(ns, name, uid string, more map[string]any) string {
		c := map[string]any{"iss": "https://kubernetes.default.svc", "aud": []string{"https://kubernetes.default.svc"},
			"exp": h.now.Add(time.Hour).Unix(), "nbf": h.now.Unix(),
			"sub": "system:serviceaccount:" + ns + ":" + name, "kubernetes.io": map[string]any{"namespace": ns,
				"serviceaccount": map[string]any{"name": name, "uid": uid}}}
		for k, v := range more {
			c[k] = v
		}
		return i.Sign(c)
	}
	login := func(role, token string) (*task.Reply, error) {
		return h.as("", secrets.Update, "auth/kubernetes/login", text(t, map[string]string{"role": role, "jwt": token}))
	}
	denied := func(what, role, token string) {
		t.Helper()
		before := api.Asked.Load()
		if _, err := login(role, token); !errkind.Is(err, errkind.Denied) {
			t.Errorf("%s: %v", what, err)
		}
		if strings.HasPrefix(what, "here: ") && api.Asked.Load() != before {
			t.Errorf("%s: the cluster was asked about a token that cannot log in", what)
		}
	}
	good := account("shop", "web-1", "uid-1", nil)
	configure(nil)
	h.ok(secrets.Update, "auth/kubernetes/role/web",
		`{"bound_service_account_names":"web-*","bound_service_account_namespaces":["shop"],"token_policies":"app"}`)
	denied("unknown to the cluster", "web", good)
	api.Vouch(good, "shop", "web-1", "uid-1")
	r, err := login("web", good)
	if err != nil {
		t.Fatal(err)
	}
	if m := r.Token.Meta; m["service_account_name"] != "web-1" || m["service_account_namespace"] != "shop" ||
		m["service_account_uid"] != "uid-1" || m["role"] != "web" || r.Token.Entity == "" {
		t.Errorf("the login gave %+v", r.Token.Token)
	}
	if e := h.ok(secrets.Read, "identity/entity/id/"+r.Token.Entity, ""); !strings.Contains(string(e.Data),
		`"name":"uid-1"`) {
		t.Errorf("the entity is %s", e.Data)
	}
	h.ok(secrets.Update, "auth/kubernetes/role/named",
		`{"bound_service_account_names":"web-1","bound_service_account_namespaces":"*",`+
			`"alias_name_source":"serviceaccount_name","audience":"vault"}`)
	denied("here: without the audience", "named", good)
	projected := account("shop", "web-1", "uid-1", map[string]any{"aud": []string{"vault"}})
	denied("not vouched for", "named", projected)
	api.Vouch(projected, "shop", "web-1", "uid-1", "vault")
	if r, err = login("named", projected); err != nil {
		t.Fatal(err)
	}
	if e := h.ok(secrets.Read, "identity/entity/id/"+r.Token.Entity, ""); !strings.Contains(string(e.Data),
		`"name":"shop/web-1"`) {
		t.Errorf("the entity is %s", e.Data)
	}
	denied("here: expired", "web", account("shop", "web-1", "uid-1", map[string]any{"exp": h.now.Add(-time.Hour).Unix()}))
	denied("here: another name", "web", account("shop", "db", "uid-1", nil))
	denied("here: another namespace", "web", account("other", "web-1", "uid-1", nil))
	denied("here: no account", "web", account("shop", "web-1", "uid-1", map[string]any{"sub": "ann"}))
	denied("here: no uid", "web", account("shop", "web-1", "", nil))
	denied("here: no token", "web", "x")
	lying := account("shop", "web-1", "uid-9", nil)
	api.Vouch(lying, "shop", "web-1", "uid-1")
	denied("another uid than the cluster's", "web", lying)
	api.Forget(good)
	denied("deleted", "web", good)
	api.Vouch(good, "shop", "web-1", "uid-1")
	configure(map[string]any{"disable_iss_validation": false})
	denied("here: another issuer", "web", good)
	configure(map[string]any{"pem_keys": jwkstest.New(t, "ES256").PublicKey()})
	denied("here: another key", "web", good)
	configure(map[string]any{"pem_keys": i.PublicKey(), "disable_iss_validation": false,
		"issuer": "https://kubernetes.default.svc"})
	if _, err := login("web", good); err != nil {
		t.Errorf("with keys and issuer: %v", err)
	}
	configure(map[string]any{"token_reviewer_jwt": reviewtest.Nobody})
	if _, err := login("web", good); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("with a reviewer that may not ask: %v", err)
	}
	configure(map[string]any{"token_reviewer_jwt": ""})
	if _, err := login("web", good); err != nil {
		t.Errorf("by the token itself: %v", err)
	}
}

// A role may pick namespaces by their labels, and accounts tell metadata of their aliases by annotations.
func TestKubernetesAsksTheCluster(t *testing.T) {
	h, api, i := newHouse(t), reviewtest.New(t), jwkstest.New(t, "RS256")
	h.ok(secrets.Update, "sys/auth/kubernetes", `{"type":"kubernetes"}`)
	h.ok(secrets.Update, "auth/kubernetes/config", text(t, map[string]any{"kubernetes_host": api.URL,
		"kubernetes_ca_cert": api.CA, "token_reviewer_jwt": reviewtest.Reviewer, "use_annotations_as_alias_metadata": true}))
	login := func(role, ns, name, uid string) (*task.Reply, error) {
		token := i.Sign(map[string]any{"exp": h.now.Add(time.Hour).Unix(), "sub": "system:serviceaccount:" + ns + ":" + name,
			"kubernetes.io": map[string]any{"namespace": ns, "serviceaccount": map[string]any{"name": name, "uid": uid}}})
		api.Vouch(token, ns, name, uid)
		return h.as("", secrets.Update, "auth/kubernetes/login", text(t, map[string]string{"role": role, "jwt": token}))
	}
	picks := `{"matchLabels":{"team":"web"},"matchExpressions":[{"key":"stage","operator":"In","values":["prod",` +
		`"test"]},{"key":"frozen","operator":"DoesNotExist"}]}`
	h.ok(secrets.Update, "auth/kubernetes/role/r", text(t, map[string]any{"bound_service_account_names": "app",
		"bound_service_account_namespaces": "named", "bound_service_account_namespace_selector": picks, "token_ttl": "1h"}))
	for ns, labels := range map[string]map[string]string{"named": nil, "good": {"team": "web", "stage": "prod"},
		"other": {"team": "db", "stage": "prod"}, "early": {"team": "web", "stage": "dev"}, "frozen": {"team": "web",
			"stage": "prod", "frozen": ""}} {
		api.Put(ns, map[string]any{"name": ns, "labels": labels})
		api.Put(ns+"/serviceaccounts/app", map[string]any{"uid": "u-" + ns,
			"annotations": map[string]string{"vault.hashicorp.com/alias-metadata-env": ns, "other": "x"}})
		_, err := login("r", ns, "app", "u-"+ns)
		if good := ns == "named" || ns == "good"; (err == nil) != good || (err != nil && !errkind.Is(err, errkind.Denied)) {
			t.Errorf("namespace %s: %v", ns, err)
		}
	}
	if _, err := login("r", "absent", "app", "u"); !errkind.Is(err, errkind.Denied) {
		t.Errorf("a namespace that is not there: %v", err)
	}
	r, err := login("r", "good", "app", "u-good")
	if err != nil {
		t.Fatal(err)
	}
	if e := string(h.ok(secrets.Read, "identity/entity/id/"+r.Token.Entity, "").Data); !strings.Contains(e,
		`"env":"good"`) || strings.Contains(e, `"other"`) {
		t.Errorf("the alias' metadata: %s", e)
	}
	api.Put("good/serviceaccounts/app", map[string]any{"uid": "u-good",
		"annotations": map[string]string{"vault.hashicorp.com/alias-metadata-service_account_uid": "root"}})
	if _, err := login("r", "good", "app", "u-good"); !errkind.Is(err, errkind.Denied) {
		t.Errorf("an annotation that would replace what the method says: %v", err)
	}
	for _, bad := range []string{"{}", "x", `{"matchLabels":{}}`, `{"matchExpressions":[{"key":"a","operator":"In"}]}`,
		`{"matchExpressions":[{"key":"a","operator":"Like","values":["x"]}]}`, `{"labels":{"a":"b"}}`} {
		body := text(t, map[string]any{"bound_service_account_names": "app", "bound_service_account_namespace_selector": bad})
		if _, err := h.as(h.root, secrets.Update, "auth/kubernetes/role/bad", body); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), "selector") {
			t.Errorf("selector %s: %v", bad, err)
		}
	}
}

// CVE-2026-115356: tokens of an account were renewed after it was deleted.
func TestCVE_2026_115356_NoRenewalWithoutTheAccount(t *testing.T) {
	h, api, i := newHouse(t), reviewtest.New(t), jwkstest.New(t, "RS256")
	h.ok(secrets.Update, "sys/auth/kubernetes", `{"type":"kubernetes"}`)
	configure := func(reviewer string) {
		h.ok(secrets.Update, "auth/kubernetes/config", text(t, map[string]any{"kubernetes_host": api.URL,
			"kubernetes_ca_cert": api.CA, "token_reviewer_jwt": reviewer, "disable_local_ca_jwt": true}))
	}
	configure(reviewtest.Reviewer)
	h.ok(secrets.Update, "auth/kubernetes/role/r",
		`{"bound_service_account_names":"app","bound_service_account_namespaces":"shop","token_ttl":"1h",`+
			`"token_policies":"default"}`)
	token := i.Sign(map[string]any{"exp": h.now.Add(time.Hour).Unix(), "sub": "system:serviceaccount:shop:app",
		"kubernetes.io": map[string]any{"namespace": "shop", "serviceaccount": map[string]any{"name": "app", "uid": "u-1"}}})
	api.Vouch(token, "shop", "app", "u-1")
	api.Put("shop/serviceaccounts/app", map[string]any{"uid": "u-1"})
	r, err := h.as("", secrets.Update, "auth/kubernetes/login", text(t, map[string]string{"role": "r", "jwt": token}))
	if err != nil {
		t.Fatal(err)
	}
	renew := func() error { _, err := h.as(r.Token.ID, secrets.Update, "auth/token/renew-self", ""); return err }
	if err := renew(); err != nil {
		t.Errorf("with its account: %v", err)
	}
	api.Put("shop/serviceaccounts/app", map[string]any{"uid": "u-2"})
	if err := renew(); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("another account of the same name: %v", err)
	}
	api.Put("shop/serviceaccounts/app", nil)
	if err := renew(); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("without its account: %v", err)
	}
	configure(reviewtest.Nobody)
	if err := renew(); err != nil {
		t.Errorf("a reviewer that may not look must not end what runs: %v", err)
	}
}

func TestKubernetesRefuses(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/kubernetes", `{"type":"kubernetes"}`)
	for body, names := range map[string]string{
		`{}`:                                "kubernetes_host",
		`{"kubernetes_host":"k8s"}`:         "kubernetes_host",
		`{"kubernetes_host":"https://k8s"}`: "kubernetes_ca_cert",
		`{"kubernetes_host":"https://k8s","kubernetes_ca_cert":"x"}`: "kubernetes_ca_cert",
		`{"kubernetes_host":"https://k8s","pem_keys":"x"}`:           "pem_keys[0]",
		`{"kubernetes_host":"https://k8s","disable_local_ca_jwt":7}`: "disable_local_ca_jwt",
	} {
		if _, err := h.as(h.root, secrets.Update, "auth/kubernetes/config", body); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for body, names := range map[string]string{
		`{"bound_service_account_namespaces":"a"}`:                                                                 "bound_service_account_names",
		`{"bound_service_account_names":"a"}`:                                                                      "bound_service_account_namespaces",
		`{"bound_service_account_names":"*","bound_service_account_namespaces":"*"}`:                               "can not both",
		`{"bound_service_account_names":"a","bound_service_account_namespaces":"a","alias_name_source":"ip"}`:      "alias_name_source",
		`{"bound_service_account_names":"a","bound_service_account_namespaces":"a","token_bound_cidrs":"nowhere"}`: "token_bound_cidrs",
		`{"bound_service_account_names":"a","bound_service_account_namespaces":"a",` +
			`"bound_service_account_namespace_selector":"{}"}`: "selector",
	} {
		if _, err := h.as(h.root, secrets.Update, "auth/kubernetes/role/r", body); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{`{"jwt":"x"}`, `{"role":"r"}`, `{"role":"r","jwt":"x"}`} {
		h.refused(errkind.Invalid, "", secrets.Update, "auth/kubernetes/login", body)
	}
	h.refused(errkind.NotFound, h.root, secrets.Read, "auth/kubernetes/config", "")
}
