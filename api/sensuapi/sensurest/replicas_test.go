package sensurest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/mirror"
)

// copying runs a mirror of g's objects in a plane of its own, and returns that and the mirror.
func (g *rig) copying(cluster string) (*rig, *mirror.Mirror) {
	g.t.Helper()
	here := newRig(g.t)
	m := mirror.New(mirror.Config{Resources: here.resources, Leads: func() bool { return true },
		Cluster: func() string { return cluster }, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	g.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			g.t.Error(err)
		}
	})
	return here, m
}

// replicate makes a replicator of g's objects at here.
func (g *rig) replicate(here *rig, name, version, kind, more string) {
	g.t.Helper()
	file := filepath.Join(g.t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(adminKey+"\n"), 0o600); err != nil {
		g.t.Fatal(err)
	}
	body := fmt.Sprintf(`{"type":"EtcdReplicator","api_version":"federation/v1","metadata":{"name":%q},"spec":{`+
		`"url":%q,"insecure":true,"api_key_file":%q,"api_version":%q,"resource":%q,"replication_interval_seconds":1%s}}`,
		name, g.url, file, version, kind, more)
	here.want(201, "PUT", "/api/enterprise/federation/v1/etcd-replicators/"+name, body)
}

// status waits for a replicator's status that holds.
func status(t *testing.T, m *mirror.Mirror, name, what string, holds func(mirror.Status) bool) (out mirror.Status) {
	t.Helper()
	polltest.Until(t, func() bool {
		for _, s := range m.Status() {
			if s.Name == name {
				out = s
			}
		}
		return out.Rounds > 0 && holds(out)
	}, "%s of %s", what, name)
	return out
}

const (
	roles = "/api/core/v2/clusterroles"
	rule  = `{"metadata":{"name":%q},"rules":[{"verbs":["get"],"resources":["checks"],"resource_names":[]}]}`
)

// Roles, users with their passwords, and namespaces are copied; what changes at the source changes here, and what
// goes there goes here, but not what was this cluster's own.
func TestReplicators(t *testing.T) {
	source := newRig(t)
	here, m := source.copying("here")
	source.want(201, "PUT", roles+"/reader", fmt.Sprintf(rule, "reader"))
	source.want(201, "POST", "/api/core/v2/users", `{"username":"ada","password":"lovelace1","groups":["dev"]}`)
	source.want(201, "PUT", "/api/core/v2/namespaces/web", `{"name":"web"}`)
	source.want(201, "PUT", "/api/core/v2/namespaces/web/filters/f",
		`{"metadata":{"name":"f","namespace":"web"},"action":"allow","expressions":["true"]}`)
	here.want(201, "PUT", roles+"/mine", fmt.Sprintf(rule, "mine"))
	source.replicate(here, "roles", "core/v2", "ClusterRole", "")
	source.replicate(here, "users", "core/v2", "User", "")
	source.replicate(here, "filters", "core/v2", "EventFilter", `,"namespace":"web"`)
	status(t, m, "filters", "the namespace is missing", func(s mirror.Status) bool {
		return strings.Contains(s.Error, `"web" does not exist`) && s.Refused > 0
	})
	source.replicate(here, "namespaces", "core/v2", "Namespace", "")
	for _, name := range []string{"roles", "users", "namespaces", "filters"} {
		if s := status(t, m, name, "success", func(s mirror.Status) bool {
			return s.LastGood > 0 && s.Error == ""
		}); s.Objects == 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if a := here.send("GET", "/auth/test", "Basic YWRhOmxvdmVsYWNlMQ==", ""); a.code != 200 {
		t.Errorf("a copied user cannot log in: %d %s", a.code, a.body)
	}
	if body := here.want(200, "GET", "/api/core/v2/namespaces/web/filters/f", "").body; !strings.Contains(body,
		`"expressions":["true"]`) {
		t.Error(body)
	}

	source.want(201, "PUT", roles+"/reader", strings.Replace(fmt.Sprintf(rule, "reader"), "checks", "hooks", 1))
	polltest.Until(t, func() bool { return strings.Contains(here.do("GET", roles+"/reader", "").body, "hooks") },
		"a change follows")
	source.want(204, "DELETE", roles+"/reader", "")
	polltest.Until(t, func() bool { return here.do("GET", roles+"/reader", "").code == 404 }, "a deletion follows")
	here.want(200, "GET", roles+"/mine", "")

	source.want(201, "PUT", roles+"/late", fmt.Sprintf(rule, "late"))
	polltest.Until(t, func() bool { return here.do("GET", roles+"/late", "").code == 200 }, "a new one follows")
	before := here.writes.Load()
	s := status(t, m, "roles", "a round", func(mirror.Status) bool { return true })
	status(t, m, "roles", "another round", func(now mirror.Status) bool { return now.Rounds > s.Rounds+1 })
	if after := here.writes.Load(); after != before {
		t.Errorf("%d writes for what did not change", after-before)
	}
	here.want(204, "DELETE", "/api/enterprise/federation/v1/etcd-replicators/roles", "")
	polltest.Until(t, func() bool {
		return here.resources.View().Get(monitor.CopyType, "", monitor.CopyName("clusterroles", "", "late")) == nil
	}, "what a replicator copied is released")
	here.want(200, "GET", roles+"/late", "")
}

// Copies are not offered to the cluster that they came from, a cluster does not copy itself, and two sources do not
// fight for one object.
func TestReplicatorsOfEachOther(t *testing.T) {
	source := newRig(t)
	here, m := source.copying("here")
	source.want(201, "PUT", roles+"/reader", fmt.Sprintf(rule, "reader"))
	source.replicate(here, "a", "core/v2", "ClusterRole", "")
	status(t, m, "a", "success", func(s mirror.Status) bool { return s.LastGood > 0 })
	back := here.want(200, "GET", "/api/corbel/v1/replicas/clusterroles?for=11111111-2222-3333-4444-555555555555", "").body
	if strings.Contains(back, `"reader"`) {
		t.Error("a copy is offered to where it came from:", back)
	}
	if other := here.want(200, "GET", "/api/corbel/v1/replicas/clusterroles?for=third", "").body; !strings.Contains(other,
		`"reader"`) {
		t.Error("a copy is not offered to others:", other)
	}
	source.replicate(here, "b", "core/v2", "ClusterRole", "")
	status(t, m, "b", "conflict", func(s mirror.Status) bool {
		return strings.Contains(s.Error, "another replicator's") &&
			s.Written == 0
	})
	if s := status(t, m, "a", "success", func(s mirror.Status) bool { return s.Error == "" }); s.Failed > 0 {
		t.Errorf("%+v", s)
	}

	self, itself := source.copying("11111111-2222-3333-4444-555555555555")
	source.replicate(self, "self", "core/v2", "ClusterRole", "")
	status(t, itself, "self", "refusal", func(s mirror.Status) bool {
		return strings.Contains(s.Error, "this cluster itself")
	})
}

// A source that is gone, or that refuses, changes nothing, and is named.
func TestReplicatorsWithoutSource(t *testing.T) {
	source := newRig(t)
	here, m := source.copying("here")
	source.want(201, "POST", "/api/core/v2/users", `{"username":"ada","password":"lovelace1"}`)
	source.want(201, "PUT", roles+"/copier",
		`{"metadata":{"name":"copier"},"rules":[{"verbs":["get","list"],"resources":["*"],"resource_names":[]}]}`)
	source.want(201, "PUT", "/api/core/v2/clusterrolebindings/copier", `{"metadata":{"name":"copier"},"subjects":[{`+
		`"type":"User","name":"ada"}],"role_ref":{"type":"ClusterRole","name":"copier"}}`)
	source.want(201, "PUT", "/api/core/v2/apikeys/2f5d9a1e-6f6c-4a0e-9f0b-0c6a2f6f9a02",
		`{"metadata":{"name":"2f5d9a1e-6f6c-4a0e-9f0b-0c6a2f6f9a02"},"username":"ada"}`)
	a := source.send("GET", "/api/corbel/v1/replicas/users", key("2f5d9a1e-6f6c-4a0e-9f0b-0c6a2f6f9a02"), "")
	if a.code != 403 {
		t.Errorf("who may only read users gets their hashes: %d %s", a.code, a.body)
	}
	for path, want := range map[string]int{"/api/corbel/v1/replicas/logins": 404,
		"/api/corbel/v1/replicas/etcd-replicators": 404, "/api/corbel/v1/replicas/users?namespace=web": 400,
		"/api/corbel/v1/replicas/users?limit=x": 400} {
		source.want(want, "GET", path, "")
	}
	source.want(405, "POST", "/api/corbel/v1/replicas/users", "")
	source.replicate(here, "users", "core/v2", "User", "")
	status(t, m, "users", "success", func(s mirror.Status) bool { return s.LastGood > 0 })
	here.want(201, "PUT", "/api/enterprise/federation/v1/etcd-replicators/gone",
		`{"type":"EtcdReplicator","api_version":"federation/v1","metadata":{"name":"gone"},"spec":{`+
			`"url":"http://127.0.0.1:1","insecure":true,"api_key_file":"/dev/null","api_version":"core/v2","resource":"Role",`+
			`"replication_interval_seconds":1}}`)
	status(t, m, "gone", "error", func(s mirror.Status) bool { return strings.Contains(s.Error, "no API key") })
	source.replicate(here, "gone", "core/v2", "Role", "")
	here.want(200, "PATCH", "/api/enterprise/federation/v1/etcd-replicators/gone", `{"spec":{"url":"http://127.0.0.1:1"}}`)
	s := status(t, m, "gone", "error", func(s mirror.Status) bool { return strings.Contains(s.Error, "refused") })
	if s.Objects != 0 || s.Written != 0 {
		t.Errorf("%+v", s)
	}
	here.want(200, "GET", "/api/core/v2/users/ada", "")
}

// What is wrong with a replicator or a cluster is told by field.
func TestWrongReplicators(t *testing.T) {
	g := newRig(t)
	whole := map[string]string{"url": `"https://other:8080"`, "api_key_file": `"/k"`, "api_version": `"core/v2"`,
		"resource": `"Role"`}
	for _, one := range []struct{ field, value, want string }{
		{"url", `"other:8080"`, "url"}, {"url", `"http://other:8080"`, "insecure"},
		{"url", `"https://a:b@other:8080"`, "url"}, {"api_key_file", `""`, "api_key_file"},
		{"resource", `"Roll"`, `resource "Roll"`}, {"resource", `"EtcdReplicator"`, "resource"},
		{"cert", `"/c"`, "cert and key"}, {"replication_interval_seconds", `-1`, "replication_interval_seconds"},
		{"resource", `"ClusterRole","namespace":"web"`, "no namespace"},
	} {
		spec := ""
		for k, v := range whole {
			if k != one.field {
				spec += fmt.Sprintf(`%q:%s,`, k, v)
			}
		}
		a := g.want(400, "PUT", "/api/enterprise/federation/v1/etcd-replicators/r",
			fmt.Sprintf(`{"type":"EtcdReplicator","api_version":"federation/v1","metadata":{"name":"r"},"spec":{%s%q:%s}}`, spec,
				one.field, one.value))
		if !strings.Contains(a.body, strings.ReplaceAll(one.want, `"`, `\"`)) {
			t.Errorf("%s %s: %s", one.field, one.value, a.body)
		}
	}
	g.want(400, "PUT", "/api/enterprise/federation/v1/clusters/c",
		`{"type":"Cluster","api_version":"federation/v1","metadata":{"name":"c"},"spec":{"api_urls":[]}}`)
	g.want(400, "PUT", "/api/enterprise/federation/v1/clusters/c",
		`{"type":"Cluster","api_version":"federation/v1","metadata":{"name":"c"},"spec":{"api_urls":["ftp://x"]}}`)
	if a := g.want(200, "GET", "/api/corbel/v1/replicators", ""); a.body != "[]" {
		t.Error(a.body)
	}
}
