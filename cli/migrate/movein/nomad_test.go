package movein

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/cli/migrate"
	"corbel.dev/corbel/client/nomad"
)

// recorded answers as a Nomad 1.6.5 did that had a little of everything: by path, with the parameters that count.
func recorded(t *testing.T) map[string]string {
	ends := time.Now().Add(2 * time.Hour).UTC().Format(time.RFC3339)
	answers := map[string]string{
		"status/leader":    `"10.0.0.1:4647"`,
		"regions":          `["global","west"]`,
		"node/pools":       `[{"Name":"all","Description":"Node pool with all nodes"},{"Name":"default"},{"Name":"gpu","Description":"d","Meta":{"a":"b"},"SchedulerConfiguration":{"SchedulerAlgorithm":"spread","MemoryOversubscriptionEnabled":null},"CreateIndex":9,"ModifyIndex":9}]`,
		"namespaces":       `[{"Name":"default","Description":"Default shared namespace","CreateIndex":1},{"Name":"team","Description":"ours","Quota":"q1","Meta":{"owner":"ann"},"Hash":"x=","CreateIndex":10}]`,
		"nodes":            `[{"ID":"n1"},{"ID":"n2"}]`,
		"allocations":      `[{"ID":"a1"}]`,
		"volumes?csi":      `[{"ID":"v1"}]`,
		"acl/policies":     `[{"Name":"dev","Description":"d","Hash":"x="},{"Name":"wi","Hash":"y="}]`,
		"acl/policy/dev":   `{"Name":"dev","Description":"d","Rules":"namespace \"team\" { policy = \"read\" }","JobACL":null,"CreateIndex":11}`,
		"acl/policy/wi":    `{"Name":"wi","Rules":"x","JobACL":{"Namespace":"team","JobID":"web","Group":"","Task":""}}`,
		"acl/roles":        `[{"ID":"r-old","Name":"devs","Policies":[{"Name":"dev"}]}]`,
		"acl/role/r-old":   `{"ID":"r-old","Name":"devs","Description":"all","Policies":[{"Name":"dev"}],"CreateIndex":12}`,
		"acl/tokens":       `[{"AccessorID":"t1","Name":"ci"},{"AccessorID":"t2","Name":"short"},{"AccessorID":"t3"},{"AccessorID":"t4"}]`,
		"acl/token/t1":     `{"AccessorID":"t1","SecretID":"s1","Name":"ci","Type":"client","Policies":["dev"],"Roles":[{"ID":"r-old","Name":"devs"}],"Global":false}`,
		"acl/token/t2":     `{"AccessorID":"t2","SecretID":"s2","Name":"short","Type":"client","Policies":["dev"],"ExpirationTime":"` + ends + `"}`,
		"acl/token/t3":     `{"AccessorID":"t3","Name":"","Type":"client","Policies":["dev"]}`,
		"acl/token/t4":     `{"AccessorID":"t4","SecretID":"s4","Type":"management","ExpirationTime":"2099-01-01T00:00:00Z"}`,
		"vars":             `[{"Namespace":"team","Path":"app/db","CreateIndex":13}]`,
		"var/app/db?team":  `{"Namespace":"team","Path":"app/db","Items":{"password":"s3cret"},"CreateIndex":13}`,
		"acl/auth-methods": `[{"Name":"ci","Type":"JWT"},{"Name":"sso","Type":"OIDC"}]`,
		"acl/auth-method/ci": `{"Name":"ci","Type":"JWT","TokenLocality":"local","TokenNameFormat":"${auth_method_type}","MaxTokenTTL":"1h0m0s",` +
			`"Default":false,"Config":{"JWKSURL":"http://k","OIDCScopes":null,"VerboseLogging":true,"BoundAudiences":["me"],"ClockSkewLeeway":"0s"}}`,
		"acl/auth-method/sso": `{"Name":"sso","Type":"OIDC","Config":{}}`,
		"acl/binding-rules":   `[{"ID":"b1"},{"ID":"b2"}]`,
		"acl/binding-rule/b1": `{"ID":"b1","AuthMethod":"ci","Selector":"value.team==dev","BindType":"role","BindName":"devs"}`,
		"acl/binding-rule/b2": `{"ID":"b2","AuthMethod":"sso","BindType":"management","BindName":""}`,
		"operator/scheduler/configuration": `{"SchedulerConfig":{"SchedulerAlgorithm":"spread","PreemptionConfig":` +
			`{"SystemSchedulerEnabled":true},"MemoryOversubscriptionEnabled":true,"ModifyIndex":5},"Index":5}`,
		"jobs": `[{"ID":"web","Namespace":"team","Type":"service","Status":"running"},` +
			`{"ID":"once","Namespace":"team","Type":"batch","Status":"dead"},` +
			`{"ID":"off","Namespace":"team","Type":"service","Status":"dead","Stop":true},` +
			`{"ID":"cron/periodic-1","ParentID":"cron","Namespace":"team","Type":"batch","Status":"running"}]`,
		"job/web?team": `{"ID":"web","Name":"web","Namespace":"team","Type":"service","Version":3,"Stable":true,"Status":"running",` +
			`"ModifyIndex":77,"ConsulToken":"","TaskGroups":[{"Name":"g","Count":2,"Schedule":{"Cron":"x"},"Tasks":[{"Name":"t","Driver":"raw_exec"}]}]}`,
		"job/web/submission?team": `{"Source":"job \"web\" {}","Format":"hcl2","JobVersion":3,"Variables":"","VariableFlags":{"a":"b"}}`,
	}
	for path, text := range answers {
		if !json.Valid([]byte(text)) {
			t.Fatalf("%s: %s", path, text)
		}
	}
	return answers
}

func source(t *testing.T, answers map[string]string) *nomad.Client {
	return nomadEnd(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s at the source", r.Method, r.URL)
		}
		path := strings.TrimPrefix(r.URL.Path, "/v1/")
		for _, query := range []string{r.URL.Query().Get("namespace"), r.URL.Query().Get("type")} {
			if text, ok := answers[path+"?"+query]; ok {
				_, _ = io.WriteString(w, text)
				return
			}
		}
		text, ok := answers[path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, text)
	}))
}

func nomadEnd(t *testing.T, h http.Handler) *nomad.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	cl, err := nomad.New(nomad.Config{Address: server.URL, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// cluster is a target: what is put at a path is there, and the paths that work otherwise do so.
type cluster map[string]object

// ServeHTTP implements http.Handler.
func (c cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	if r.Method == http.MethodGet {
		c.get(w, path)
		return
	}
	var body object
	raw, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(raw, &body)
	job, _ := body["Job"].(object)
	switch {
	case path == "jobs":
		for _, g := range job["TaskGroups"].([]any) { // it does not know the field
			delete(g.(object), "Schedule")
		}
		c["job/"+text(job, "ID")] = job
		c["submission/"+text(job, "ID")], _ = body["Submission"].(object)
	case strings.HasSuffix(path, "/plan"):
		for _, g := range job["TaskGroups"].([]any) {
			delete(g.(object), "Schedule")
		}
		kind := "Edited"
		if reflect.DeepEqual(c[strings.TrimSuffix(path, "/plan")], job) {
			kind = "None"
		}
		_, _ = fmt.Fprintf(w, `{"Diff":{"Type":%q}}`, kind)
	case path == "validate/job":
		_, _ = io.WriteString(w, `{"ValidationErrors":null}`)
	case path == "acl/role":
		body["ID"] = "r-new"
		c["acl/role/name/"+text(body, "Name")] = body
	case path == "acl/token":
		c["acl/token/"+text(body, "AccessorID")] = body
	case path == "acl/auth-method":
		c["acl/auth-method/"+text(body, "Name")] = body
	case path == "acl/binding-rule":
		c["acl/binding-rule/"+fmt.Sprint(len(c))] = body
	case path == "operator/scheduler/configuration":
		body["ModifyIndex"] = 1
		c[path] = object{"SchedulerConfig": body}
	default:
		c[path] = body
	}
}

func (c cluster) get(w http.ResponseWriter, path string) {
	switch {
	case path == "status/leader":
		_, _ = io.WriteString(w, `"x"`)
	case path == "acl/binding-rules":
		all := []object{}
		for name, o := range c {
			if strings.HasPrefix(name, "acl/binding-rule/") {
				all = append(all, o)
			}
		}
		_ = json.NewEncoder(w).Encode(all)
	case path == "operator/scheduler/configuration" && c[path] == nil:
		_, _ = io.WriteString(w, `{"SchedulerConfig":{"SchedulerAlgorithm":"binpack"}}`)
	case c[path] == nil:
		w.WriteHeader(http.StatusNotFound)
	default:
		_ = json.NewEncoder(w).Encode(c[path])
	}
}

// TestNomad: all that can come comes, what cannot is named with its reason, and a second run finds it there.
func TestNomad(t *testing.T) {
	from, to := source(t, recorded(t)), cluster{}
	target := nomadEnd(t, to)
	run := func(o NomadOptions) *migrate.Report {
		t.Helper()
		r, err := Nomad(t.Context(), from, target, "a", "b", o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := run(NomadOptions{Options: Options{DryRun: true}})
	if len(to) > 0 || r.Counts["jobs"][migrate.Created] != 1 {
		t.Errorf("a dry run: %v %v", to, r.Counts)
	}
	created := map[string]int{"pools": 1, "namespaces": 2, "scheduler": 1, "policies": 1, "roles": 1, "auth-methods": 1,
		"binding-rules": 1, "tokens": 2, "variables": 1, "jobs": 1}
	for _, result := range []migrate.Result{migrate.Created, migrate.Unchanged} {
		r = run(NomadOptions{})
		for _, kind := range NomadKinds {
			if r.Counts[kind][result] != created[kind] || r.Counts[kind][migrate.Failed]+r.Counts[kind][migrate.Differs] > 0 {
				t.Errorf("%s %s: %v %+v", result, kind, r.Counts[kind], r.Items)
			}
		}
	}
	var skipped []string
	for _, it := range r.Items {
		skipped = append(skipped, it.Kind+" "+it.Name+": "+it.Why)
	}
	for _, want := range []string{"policies wi: is for workload identities", "auth-methods sso: is of type OIDC",
		"binding-rules sso to management", "tokens t3: the source does not show its secret", "tokens t4: ends at 2099",
		"jobs team/once: has ended there", "jobs team/off: is stopped there"} {
		if !slices.ContainsFunc(skipped, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("not told: %s\n%s", want, strings.Join(skipped, "\n"))
		}
	}
	notes := strings.Join(r.Notes, "\n")
	for _, want := range []string{"quota q1 of namespace team", "1 jobs that periodic", "2 nodes", "1 allocations",
		"1 CSI volumes", "1 other regions", "job team/web: TaskGroups[0].Schedule"} {
		if !strings.Contains(notes, want) {
			t.Errorf("not noted: %s\n%s", want, notes)
		}
	}
	if text(to["acl/token/t1"], "SecretID") != "s1" || text(to["submission/web"], "Source") == "" ||
		text(to["job/web"], "Status") != "" || to["acl/auth-method/ci"]["Config"].(object)["VerboseLogging"] != nil {
		t.Errorf("%v", to)
	}
	// What was changed here meanwhile stays, unless it is to be overwritten.
	to["acl/policy/dev"]["Rules"], to["job/web"]["Name"] = "mine", "mine"
	if r = run(NomadOptions{Kinds: []string{"policies", "jobs"}}); r.Counts["policies"][migrate.Differs] != 1 ||
		r.Counts["jobs"][migrate.Differs] != 1 || len(r.Counts) != 2 || text(to["job/web"], "Name") != "mine" {
		t.Errorf("%v", r.Counts)
	}
	r = run(NomadOptions{Options: Options{Overwrite: true}, Kinds: []string{"policies", "jobs"}, Stopped: true})
	if r.Counts["policies"][migrate.Updated] != 1 || r.Counts["jobs"][migrate.Updated] != 1 ||
		to["job/web"]["Stop"] != true {
		t.Errorf("%v %v", r.Counts, to["job/web"])
	}
	if _, err := Nomad(t.Context(), from, target, "a", "b", NomadOptions{Kinds: []string{"nodes"}}); err == nil {
		t.Error("a kind that there is not was taken")
	}
}

// TestNomadWithoutACL: a source without access control has none to bring, and what cannot be read is told.
func TestNomadWithoutACL(t *testing.T) {
	answers := maps.Clone(recorded(t))
	maps.DeleteFunc(answers, func(path, _ string) bool { return strings.HasPrefix(path, "acl/") || path == "vars" })
	from := nomadEnd(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/v1/")
		switch text, ok := answers[path]; {
		case strings.HasPrefix(path, "acl/"):
			http.Error(w, "ACL support disabled", http.StatusBadRequest)
		case path == "vars":
			http.Error(w, "Permission denied", http.StatusForbidden)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = io.WriteString(w, text)
		}
	}))
	r, err := Nomad(t.Context(), from, nomadEnd(t, cluster{}), "a", "b", NomadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Counts["tokens"])+len(r.Counts["policies"]) > 0 || r.Counts["variables"][migrate.Failed] != 1 ||
		r.Complete() {
		t.Errorf("%v", r.Counts)
	}
}
