package migrate

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fake keeps what a server keeps of ACLs, with ids of its own making for all but tokens.
type fake struct {
	mu      sync.Mutex
	prefix  string
	next    int
	objects map[string]map[string]object // kind, id
	writes  int
	refuse  string // writes to this path fail
}

func newFake(t *testing.T, prefix string) (*fake, *client.Client) {
	t.Helper()
	f := &fake{prefix: prefix, objects: map[string]map[string]object{"policy": {}, "role": {}, "token": {},
		"auth-method": {}, "binding-rule": {}}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	cl, err := client.New(client.Config{Address: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return f, cl
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/v1/acl/")
	if r.URL.Path == "/v1/status/leader" {
		io.WriteString(w, `"here"`)
		return
	}
	if r.Method == http.MethodPut {
		f.put(w, r, path)
		return
	}
	for kind, plural := range map[string]string{"policy": "policies", "role": "roles", "token": "tokens",
		"auth-method": "auth-methods", "binding-rule": "binding-rules"} {
		if path == plural {
			all := []object{}
			for _, o := range f.objects[kind] {
				o = copyOf(o)
				delete(o, "Rules")
				all = append(all, o)
			}
			_ = json.NewEncoder(w).Encode(all)
			return
		}
		if rest, ok := strings.CutPrefix(path, kind+"/"); ok {
			name, byName := strings.CutPrefix(rest, "name/")
			for id, o := range f.objects[kind] {
				if byName && text(o, "Name") == name || !byName && (id == rest || text(o, "Name") == rest) {
					_ = json.NewEncoder(w).Encode(o)
					return
				}
			}
			if kind == "token" {
				http.Error(w, "ACL not found", http.StatusForbidden)
				return
			}
		}
	}
	http.Error(w, "nothing here", http.StatusNotFound)
}

func (f *fake) put(w http.ResponseWriter, r *http.Request, path string) {
	kind, id, _ := strings.Cut(path, "/")
	var o object
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || f.objects[kind] == nil || f.refuse == path {
		http.Error(w, "cannot", http.StatusBadRequest)
		return
	}
	f.writes++
	for _, l := range linksOf(o) { // as a server does: names become ids
		for other, p := range f.objects["policy"] {
			if text(p, "Name") == text(l, "Name") {
				l["ID"] = other
			}
		}
		if l["ID"] == nil {
			http.Error(w, "no such policy "+text(l, "Name"), http.StatusBadRequest)
			return
		}
	}
	switch {
	case kind == "token":
		id = text(o, "AccessorID")
	case kind == "auth-method":
		id = text(o, "Name")
	case id == "":
		if o["ID"] != nil {
			http.Error(w, "an id is given by the server", http.StatusBadRequest)
			return
		}
		f.next++
		id = fmt.Sprintf("%s-%d", f.prefix, f.next)
		o["ID"] = id
	}
	o["ModifyIndex"] = f.writes
	f.objects[kind][id] = o
	_ = json.NewEncoder(w).Encode(o)
}

func linksOf(o object) []object {
	var out []object
	list, _ := o["Policies"].([]any)
	for _, l := range list {
		out = append(out, l.(object))
	}
	return out
}

// TestACL: names hold the pieces together where ids are given anew, secrets stay, and a second run does nothing.
func TestACL(t *testing.T) {
	source, from := newFake(t, "old")
	target, to := newFake(t, "new")
	link := []any{object{"ID": "old-p", "Name": "reader"}}
	source.objects["policy"]["00000000-0000-0000-0000-000000000001"] = object{"ID": "00000000-0000-0000-0000-000000000001",
		"Name": "global-management"}
	source.objects["policy"]["old-p"] = object{"ID": "old-p", "Name": "reader", "Rules": "x", "CreateIndex": 7.0}
	source.objects["role"]["old-r"] = object{"ID": "old-r", "Name": "ops", "Policies": link}
	source.objects["auth-method"]["m"] = object{"Name": "m", "Type": "jwt", "Config": object{"A": "b"}}
	source.objects["binding-rule"]["old-b"] = object{"ID": "old-b", "AuthMethod": "m", "BindType": "service",
		"BindName": "web"}
	source.objects["token"]["t1"] = object{"AccessorID": "t1", "SecretID": "s1", "Policies": link}
	source.objects["token"]["t2"] = object{"AccessorID": "t2", "SecretID": "s2", "AuthMethod": "m"}
	source.objects["token"][anonymous] = object{"AccessorID": anonymous, "SecretID": "anonymous",
		"Description": "Anonymous Token"}
	cfg := Config{From: from, To: to, Kinds: Kinds[:5]}
	expect := func(step string, want map[string]map[Result]int) *Report {
		t.Helper()
		report, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		for kind, counts := range want {
			for result, n := range counts {
				if report.Counts[kind][result] != n {
					t.Errorf("%s: %s %s: %d, want %d; %v", step, kind, result, report.Counts[kind][result], n, report.Items)
				}
			}
		}
		return report
	}
	first := map[string]map[Result]int{"policies": {Created: 1, Skipped: 1}, "roles": {Created: 1},
		"auth-methods": {Created: 1}, "binding-rules": {Created: 1}, "tokens": {Created: 1, Skipped: 2}}
	cfg.DryRun = true
	expect("dry run", first)
	if target.writes > 0 {
		t.Fatalf("a dry run wrote %d times", target.writes)
	}
	cfg.DryRun = false
	target.refuse = "role"
	if report := expect("role refused", map[string]map[Result]int{"roles": {Failed: 1},
		"tokens": {Created: 1}}); report.Complete() {
		t.Error("a failure counts as complete")
	}
	target.refuse = ""
	expect("resumed", map[string]map[Result]int{"policies": {Unchanged: 1}, "roles": {Created: 1},
		"auth-methods": {Unchanged: 1}, "binding-rules": {Unchanged: 1}, "tokens": {Unchanged: 1}})
	if got := text(target.objects["token"]["t1"], "SecretID"); got != "s1" {
		t.Errorf("the secret became %q", got)
	}
	before := target.writes
	expect("again", map[string]map[Result]int{"roles": {Unchanged: 1}})
	if target.writes != before {
		t.Error("a second run wrote")
	}
	source.objects["policy"]["old-p"]["Rules"] = "y"
	expect("changed", map[string]map[Result]int{"policies": {Differs: 1}})
	cfg.Overwrite = true
	expect("overwritten", map[string]map[Result]int{"policies": {Updated: 1}})
	expect("in the end", map[string]map[Result]int{"policies": {Unchanged: 1}})
	source.objects["token"]["t3"] = object{"AccessorID": "t3", "SecretID": "<hidden>", "Policies": link}
	expect("hidden secret", map[string]map[Result]int{"tokens": {Failed: 1}})
}
