package movein

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/migrate"
	"corbel.dev/corbel/client/sensu"
	"corbel.dev/corbel/client/vault"
)

// store is a server that gives what was put at a path, and lists what is below one.
type store map[string]object

func (s store) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL
}

// ServeHTTP implements http.Handler.
func (s store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	switch {
	case r.Method != http.MethodGet:
		var body object
		raw, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(raw, &body)
		s[path] = body
	case path == "auth/token/lookup-self":
		_, _ = io.WriteString(w, `{"data":{}}`)
	case path == "sys/mounts" || path == "sys/auth":
		all := object{}
		for name, m := range s {
			if mount, is := strings.CutPrefix(name, path+"/"); is {
				all[mount+"/"] = m
			}
		}
		_ = json.NewEncoder(w).Encode(object{"data": all})
	case r.URL.Query().Get("list") == "true":
		keys := map[string]bool{}
		for name := range s {
			if rest, is := strings.CutPrefix(name, strings.TrimSuffix(path, "/")+"/"); is {
				first, _, deeper := strings.Cut(rest, "/")
				if deeper {
					first += "/"
				}
				keys[first] = true
			}
		}
		if len(keys) == 0 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(object{"data": object{"keys": slices.Sorted(maps.Keys(keys))}})
	case s[path] == nil:
		w.WriteHeader(http.StatusNotFound)
	default:
		_ = json.NewEncoder(w).Encode(object{"data": s[path]})
	}
}

func TestVault(t *testing.T) {
	from := store{
		"sys/policies/acl/app":          {"policy": "path"},
		"sys/mounts/kv":                 {"type": "kv", "options": object{"version": "2"}},
		"sys/mounts/old":                {"type": "kv"},
		"sys/mounts/transit":            {"type": "transit"},
		"transit/keys/k":                {},
		"sys/auth/approle":              {"type": "approle"},
		"auth/approle/role/web":         {"token_policies": []string{"app"}, "token_ttl": 3600},
		"auth/approle/role/web/role-id": {"role_id": "abc"},
		"old/a/b":                       {"x": "1"},
		"kv/metadata/a/b":               {"max_versions": 5},
		"kv/data/a/b":                   {"data": object{"x": "2"}},
		"kv/metadata/gone":              {},
		"identity/entity/name/ann":      {"id": "e1", "name": "ann", "policies": []string{"app"}},
		"identity/group/name/ops":       {"type": "internal", "name": "ops", "member_entity_ids": []string{"e1"}},
	}
	to := store{"old/a/c": {"mine": "1"}, "identity/entity/name/ann": {"id": "t1", "name": "ann",
		"policies": []string{"app"}}}
	source, target := vaultClient(t, from), vaultClient(t, to)
	counts := func(o Options) map[string]map[migrate.Result]int {
		t.Helper()
		r, err := Vault(t.Context(), source, target, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range r.Items {
			if it.Result == migrate.Failed {
				t.Errorf("%+v", it)
			}
		}
		return r.Counts
	}
	before := len(to)
	if got := counts(Options{DryRun: true}); got["secrets"][migrate.Created] != 2 || len(to) != before {
		t.Errorf("a dry run: %v, %v", got, to)
	}
	got := counts(Options{})
	if got["secrets"][migrate.Created] != 2 || got["secrets"][migrate.Skipped] != 1 ||
		got["roles"][migrate.Created] != 2 || got["roles"][migrate.Skipped] != 1 || got["mounts"][migrate.Created] != 3 ||
		got["entities"][migrate.Unchanged] != 1 || got["groups"][migrate.Created] != 1 {
		t.Errorf("%v", got)
	}
	if text(to["old/a/b"], "x") != "1" || to["kv/metadata/a/b"]["max_versions"] != 5.0 ||
		!slices.Equal(strs(to["identity/group/name/ops"]["member_entity_ids"]), []string{"t1"}) ||
		text(to["auth/approle/role/web/role-id"], "role_id") != "abc" {
		t.Errorf("%v", to)
	}
	// Again: all is there. What somebody changed meanwhile stays, unless it is to be overwritten.
	to["old/a/b"] = object{"x": "mine"}
	if got := counts(Options{}); got["secrets"][migrate.Unchanged] != 1 || got["secrets"][migrate.Differs] != 1 ||
		text(to["old/a/b"], "x") != "mine" {
		t.Errorf("%v", got)
	}
	if got := counts(Options{Overwrite: true}); got["secrets"][migrate.Updated] != 1 || text(to["old/a/b"], "x") != "1" {
		t.Errorf("%v", got)
	}
}

func vaultClient(t *testing.T, s store) *vault.Client {
	t.Helper()
	cl, err := vault.New(vault.Config{Address: s.start(t), Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// backend is a Sensu Go with lists at their own paths.
type backend map[string]any

// ServeHTTP implements http.Handler.
func (b backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		var body any
		raw, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(raw, &body)
		b[r.URL.Path] = body
		w.WriteHeader(http.StatusCreated)
		return
	}
	v, ok := b[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(v)
}

func TestSensu(t *testing.T) {
	from := backend{"/api/core/v2/namespaces": []object{{"name": "team"}},
		"/api/core/v2/users": []object{{"username": "bob"}},
		"/api/core/v2/checks": []object{{"metadata": object{"name": "cpu", "namespace": "team", "created_by": "bob"},
			"command": "x", "interval": 5}},
		"/api/core/v2/entities": []object{{"metadata": object{"name": "h", "namespace": "team"}, "entity_class": "agent"},
			{"metadata": object{"name": "r", "namespace": "team"}, "entity_class": "proxy"}}}
	to := backend{}
	var ends [2]*sensu.Client
	for i, b := range []backend{from, to} {
		server := httptest.NewServer(b)
		t.Cleanup(server.Close)
		var err error
		if ends[i], err = sensu.New(sensu.Config{Address: server.URL, APIKey: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []migrate.Result{migrate.Created, migrate.Unchanged} {
		r, err := Sensu(t.Context(), ends[0], ends[1], "a", "b", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Counts["checks"][want] != 1 || r.Counts["namespaces"][want] != 1 || r.Counts["entities"][want] != 1 ||
			r.Counts["entities"][migrate.Skipped] != 1 || r.Counts["users"][migrate.Skipped] != 1 || !r.Complete() {
			t.Errorf("%s: %v", want, r.Counts)
		}
	}
	if to["/api/core/v2/namespaces/team/entities/h"] != nil {
		t.Error("an agent's entity came")
	}
}
