package kubesecrets

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tokenreview/reviewtest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/elsewhere"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

type body = map[string]any

func newEngine(dir string) *Engine {
	return &Engine{TTLs: func() (time.Duration, time.Duration) { return time.Hour, 24 * time.Hour }, Local: dir,
		Getenv: func(string) string { return "" }}
}

func newDesk(t *testing.T) (*enginetest.Desk, *reviewtest.APIServer) {
	t.Helper()
	s := reviewtest.New(t)
	d := enginetest.New(t, newEngine(t.TempDir()), "kubernetes/")
	d.OK(secrets.Update, "config", body{"kubernetes_host": s.URL, "kubernetes_ca_cert": s.CA,
		"service_account_jwt": reviewtest.Reviewer})
	return d, s
}

// data is what a login got.
type data struct {
	Name      string `json:"service_account_name"`
	Namespace string `json:"service_account_namespace"`
	Token     string `json:"service_account_token"`
}

func ask(t *testing.T, d *enginetest.Desk, path string, b body) (data, *secrets.Response) {
	t.Helper()
	resp, err := d.Ask(secrets.Update, path, b)
	if err != nil || resp.Lease == nil || resp.Lease.Renewable {
		t.Fatalf("%s: %+v, %v", path, resp, err)
	}
	var got data
	if err := json.Unmarshal(resp.Data, &got); err != nil {
		t.Fatal(err)
	}
	return got, resp
}

func revoke(t *testing.T, d *enginetest.Desk, resp *secrets.Response) error {
	t.Helper()
	_, err := d.Engine.(engine.Leaser).Revoke(t.Context(), d.Store, engine.Lease{Internal: resp.Lease.Internal})
	return err
}

// TestAccountThatIsThere: a token of it, bounded as the role says; nothing is made.
func TestAccountThatIsThere(t *testing.T) {
	d, s := newDesk(t)
	s.Put("shop/serviceaccounts/deployer", map[string]any{"name": "deployer"})
	d.OK(secrets.Update, "roles/deploy", body{"allowed_kubernetes_namespaces": "shop",
		"service_account_name": "deployer", "token_default_ttl": "20m", "token_max_ttl": "2h",
		"token_default_audiences": "https://a"})
	got, resp := ask(t, d, "creds/deploy", body{"kubernetes_namespace": "shop"})
	if got.Name != "deployer" || got.Namespace != "shop" || !strings.HasSuffix(got.Token, "for [https://a]") ||
		resp.Lease.TTL != 20*time.Minute {
		t.Errorf("%+v, %+v", got, resp.Lease)
	}
	got, resp = ask(t, d, "creds/deploy", body{"kubernetes_namespace": "shop", "ttl": "9h", "audiences": "b,c"})
	if !strings.HasSuffix(got.Token, "for [b c]") || resp.Lease.TTL != 2*time.Hour {
		t.Errorf("%+v, %+v", got, resp.Lease)
	}
	s.Longest = 30 * time.Minute
	if _, resp = ask(t, d, "creds/deploy", body{"kubernetes_namespace": "shop", "ttl": "1h"}); resp.Lease.TTL >
		30*time.Minute+time.Second || len(resp.Warnings) != 1 {
		t.Errorf("%+v, %v", resp.Lease, resp.Warnings)
	}
	if err := revoke(t, d, resp); err != nil || len(s.Objects()) != 0 {
		t.Errorf("%v, %v", err, s.Objects())
	}
	for text, b := range map[string]body{"is required": {}, "is not present": {"kubernetes_namespace": "other"},
		"no name of a namespace": {"kubernetes_namespace": "../shop"},
		"nothing is bound":       {"kubernetes_namespace": "shop", "cluster_role_binding": true},
		"less than 10 minutes":   {"kubernetes_namespace": "shop", "ttl": "1m"}} {
		d.Refused(errkind.Invalid, text, secrets.Update, "creds/deploy", b)
	}
	d.Refused(errkind.Invalid, "does not exist", secrets.Update, "creds/none", body{"kubernetes_namespace": "shop"})
	d.OK(secrets.Update, "roles/deploy", body{"service_account_name": "nobody"})
	d.Refused(errkind.Invalid, "not found", secrets.Update, "creds/deploy", body{"kubernetes_namespace": "shop"})
}

// TestBinding: an account and a binding of a role that is there, which go with the lease.
func TestBinding(t *testing.T) {
	d, s := newDesk(t)
	d.OK(secrets.Update, "roles/view", body{"allowed_kubernetes_namespaces": "*", "kubernetes_role_name": "view",
		"kubernetes_role_type": "clusterrole", "extra_labels": body{"team": "shop"},
		"extra_annotations": body{"why": "tests"}})
	if got := d.OK(secrets.Read, "roles/view", nil); got.Text("kubernetes_role_type") != "ClusterRole" ||
		got.Text("name") != "view" {
		t.Errorf("%v", got)
	}
	got, resp := ask(t, d, "creds/view", body{"kubernetes_namespace": "shop"})
	if !regexp.MustCompile(`^v--view-[0-9]+-[a-z0-9]{24}$`).MatchString(got.Name) || resp.Lease.TTL != time.Hour {
		t.Errorf("%+v, %+v", got, resp.Lease)
	}
	binding := rbac + "namespaces/shop/rolebindings/" + got.Name
	if want := []string{"/api/v1/namespaces/shop/serviceaccounts/" + got.Name, binding}; !slices.Equal(s.Objects(),
		want) {
		t.Errorf("%q, want %q", s.Objects(), want)
	}
	raw, err := json.Marshal(s.Object(binding))
	want := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"annotations":` +
		`{"why":"tests"},"labels":{"app.kubernetes.io/managed-by":"corbel-secrets","team":"shop"},"name":"` + got.Name +
		`","namespace":"shop"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},` +
		`"subjects":[{"kind":"ServiceAccount","name":"` + got.Name + `","namespace":"shop"}]}`
	if err != nil || string(raw) != want {
		t.Errorf("got %s, %v\nwant %s", raw, err, want)
	}
	// What cannot be deleted keeps its lease; then it goes, and once more is no error.
	s.Fail("serviceaccounts/"+got.Name, http.StatusInternalServerError)
	if err := revoke(t, d, resp); !errkind.Is(err, errkind.Unavailable) || slices.Contains(s.Objects(), binding) {
		t.Errorf("%v, %q", err, s.Objects())
	}
	s.Fail("serviceaccounts/"+got.Name, 0)
	for range 2 {
		if err := revoke(t, d, resp); err != nil || len(s.Objects()) != 0 {
			t.Errorf("%v, %q", err, s.Objects())
		}
	}
	got, resp = ask(t, d, "creds/view", body{"kubernetes_namespace": "shop", "cluster_role_binding": true})
	if !slices.Contains(s.Objects(), rbac+"clusterrolebindings/"+got.Name) {
		t.Errorf("%q", s.Objects())
	}
	if err := revoke(t, d, resp); err != nil || len(s.Objects()) != 0 {
		t.Errorf("%v, %q", err, s.Objects())
	}
	if left, err := d.Store.List(t.Context(), walPrefix, "", 0); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestRules: a role is made too, of the namespace or of the cluster.
func TestRules(t *testing.T) {
	d, s := newDesk(t)
	for kind, plural := range map[string]string{"Role": "namespaces/shop/roles/", "ClusterRole": "clusterroles/"} {
		d.OK(secrets.Update, "roles/gen", body{"allowed_kubernetes_namespaces": "shop", "kubernetes_role_type": kind,
			"generated_role_rules": "rules:\n- apiGroups: [\"\"]\n  resources: [pods]\n  verbs: [list]\n",
			"name_template":        `gen-{{.RoleName}}-{{random 8 | lowercase}}`})
		got, resp := ask(t, d, "creds/gen", body{"kubernetes_namespace": "shop"})
		made := s.Object(rbac + plural + got.Name)
		if fmt.Sprint(made["rules"]) != "[map[apiGroups:[] resources:[pods] verbs:[list]]]" || len(s.Objects()) != 3 ||
			!strings.HasPrefix(got.Name, "gen-gen-") {
			t.Errorf("%s: %v, %q", kind, made, s.Objects())
		}
		if err := revoke(t, d, resp); err != nil || len(s.Objects()) != 0 {
			t.Errorf("%v, %q", err, s.Objects())
		}
	}
	d.Refused(errkind.Invalid, "cannot ref a Role", secrets.Update, "creds/gen", body{"kubernetes_namespace": "shop",
		"cluster_role_binding": d.OK(secrets.Update, "roles/gen", body{"kubernetes_role_type": "Role"}) != nil})
}

// TestCrashLeavesNoObjects: what was made before its lease was stored, or half of it, goes.
func TestCrashLeavesNoObjects(t *testing.T) {
	d, s := newDesk(t)
	d.OK(secrets.Update, "roles/view", body{"allowed_kubernetes_namespaces": "shop", "kubernetes_role_name": "view"})
	r := &secrets.Request{Op: secrets.Update, Rest: "creds/view", Now: d.Now(),
		Body: []byte(`{"kubernetes_namespace":"shop"}`)}
	resp, err := d.Engine.Handle(t.Context(), d.Store, r)
	if err == nil && len(s.Objects()) > 0 {
		t.Error("it was made before it was written down")
	}
	if err == nil {
		err = d.Store.Commit(t.Context(), 0, resp.Ops)
	}
	if err == nil {
		_, err = d.Engine.(engine.Stepper).Step(t.Context(), resp.Then)
	}
	if err != nil || len(s.Objects()) != 2 {
		t.Fatalf("%v, %q", err, s.Objects())
	}
	d.Engine = newEngine(t.TempDir())
	d.Tend()
	if len(s.Objects()) != 2 {
		t.Error("a request under way was taken for one of a crash")
	}
	d.Wait(elsewhere.Wait + time.Second)
	s.Fail("", http.StatusServiceUnavailable)
	d.Tend()
	s.Fail("", 0)
	if len(s.Objects()) != 2 {
		t.Errorf("%q", s.Objects())
	}
	d.Wait(3 * time.Minute)
	d.Tend()
	if len(s.Objects()) != 0 {
		t.Errorf("%q are left", s.Objects())
	}
	s.Fail("rolebindings", http.StatusForbidden)
	d.Refused(errkind.Invalid, "403", secrets.Update, "creds/view", body{"kubernetes_namespace": "shop"})
	if len(s.Objects()) != 1 {
		t.Errorf("%q", s.Objects())
	}
	d.Wait(elsewhere.Wait + time.Second)
	d.Tend()
	if len(s.Objects()) != 0 {
		t.Errorf("%q are left", s.Objects())
	}
}

// TestNamespaces: by name or by labels.
func TestNamespaces(t *testing.T) {
	d, s := newDesk(t)
	s.Put("shop/serviceaccounts/a", map[string]any{"name": "a"})
	s.Put("test/serviceaccounts/a", map[string]any{"name": "a"})
	s.Put("shop", map[string]any{"name": "shop", "labels": map[string]string{"env": "prod"}})
	s.Put("test", map[string]any{"name": "test", "labels": map[string]string{"env": "test"}})
	d.OK(secrets.Update, "roles/a", body{"service_account_name": "a",
		"allowed_kubernetes_namespace_selector": "matchLabels:\n  env: prod\n"})
	ask(t, d, "creds/a", body{"kubernetes_namespace": "shop"})
	for _, ns := range []string{"test", "none"} {
		d.Refused(errkind.Invalid, "does not match role's label selector", secrets.Update, "creds/a",
			body{"kubernetes_namespace": ns})
	}
	d.OK(secrets.Update, "roles/a", body{"allowed_kubernetes_namespaces": "test"})
	ask(t, d, "creds/a", body{"kubernetes_namespace": "test"})
	ask(t, d, "creds/a", body{"kubernetes_namespace": "shop"})
	if got := d.OK(secrets.List, "roles/", nil); fmt.Sprint(got["keys"]) != "[a]" {
		t.Errorf("%v", got)
	}
	d.OK(secrets.Delete, "roles/a", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "roles/a", nil)
}

// TestConfig: what cannot be is refused by its name; a pod needs none; the token goes to no other cluster.
func TestConfig(t *testing.T) {
	d, s := newDesk(t)
	if got := fmt.Sprint(d.OK(secrets.Read, "config", nil)); strings.Contains(got, reviewtest.Reviewer) {
		t.Error(got)
	}
	for field, value := range map[string]any{"kubernetes_host": "x", "kubernetes_ca_cert": "none"} {
		d.Refused(errkind.Invalid, field, secrets.Update, "config", body{field: value, "service_account_jwt": "x"})
	}
	d.Refused(errkind.Invalid, "service_account_jwt", secrets.Update, "config", body{"kubernetes_host": "https://evil"})
	for text, b := range map[string]body{"at least": {"service_account_name": "a"},
		"only one": {"allowed_kubernetes_namespaces": "a", "service_account_name": "a", "kubernetes_role_name": "b"},
		"allowed_kubernetes_namespace_selector": {"service_account_name": "a",
			"allowed_kubernetes_namespace_selector": "{}"},
		"generated_role_rules": {"allowed_kubernetes_namespaces": "a", "generated_role_rules": "rules: []"},
		"kubernetes_role_type": {"allowed_kubernetes_namespaces": "a", "kubernetes_role_name": "b",
			"kubernetes_role_type": "x"},
		"name_template": {"allowed_kubernetes_namespaces": "a", "kubernetes_role_name": "b",
			"name_template": "UPPER"},
		"service_account_name": {"allowed_kubernetes_namespaces": "a", "service_account_name": "a/token"},
		"token_default_ttl": {"allowed_kubernetes_namespaces": "a", "service_account_name": "a",
			"token_default_ttl": "2h", "token_max_ttl": "1h"}} {
		d.Refused(errkind.Invalid, text, secrets.Update, "roles/bad", b)
	}
	d.OK(secrets.Delete, "config", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "config", nil)
	d.Refused(errkind.Invalid, "KUBERNETES_SERVICE_HOST", secrets.Read, "check", nil)
	d.OK(secrets.Update, "roles/a", body{"allowed_kubernetes_namespaces": "shop", "service_account_name": "a"})
	d.Refused(errkind.Invalid, "runs in no pod", secrets.Update, "creds/a", body{"kubernetes_namespace": "shop"})

	dir := t.TempDir()
	for name, text := range map[string]string{"token": reviewtest.Reviewer + "\n", "ca.crt": s.CA} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "https://"), ":")
	pod := newEngine(dir)
	pod.Getenv = func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT_HTTPS": port}[name]
	}
	d.Engine = pod
	d.OK(secrets.Read, "check", nil)
	s.Put("shop/serviceaccounts/a", map[string]any{"name": "a"})
	ask(t, d, "creds/a", body{"kubernetes_namespace": "shop"})
	d.Refused(errkind.Invalid, "service_account_jwt", secrets.Update, "config", body{"disable_local_ca_jwt": true})
	d.Refused(errkind.NotFound, "unsupported path", secrets.Update, "wal/1/x", nil)
}
