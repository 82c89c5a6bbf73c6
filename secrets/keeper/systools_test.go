package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/telemetry"
)

func object(t *testing.T, r *task.Reply) map[string]any {
	t.Helper()
	raw := r.Data
	if r.Raw != nil {
		raw = r.Raw.Body
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return m
}

func TestTools(t *testing.T) {
	h := newHouse(t)
	for path, body := range map[string]string{"sys/tools/random": `{}`, "sys/tools/random/64": `{"format":"hex"}`,
		"sys/tools/random/all/7": ``, "sys/tools/random/seal": `{"bytes":"9"}`} {
		a, b := h.ok(secrets.Update, path, body), h.ok(secrets.Update, path, body)
		if string(a.Data) == string(b.Data) {
			t.Errorf("%s gives %s twice", path, a.Data)
		}
	}
	if got := field(t, h.ok(secrets.Update, "sys/tools/random/64", `{"format":"hex"}`),
		"random_bytes").(string); len(got) != 128 {
		t.Errorf("64 bytes are %s", got)
	}
	for path, body := range map[string]string{"sys/tools/random/0": ``, "sys/tools/random/moon": ``,
		"sys/tools/random": `{"bytes":200000}`, "sys/tools/hash": `{"input":"%"}`,
		"sys/tools/hash/md5": `{"input":""}`, "sys/tools/hash/sha2-256": `{"input":"","format":"x"}`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, path, body)
	}
	for name, want := range map[string]string{ // of "abc", as published with the algorithms
		"sha2-224": "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
		"sha2-256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		"sha3-256": "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532",
		"":         "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	} {
		if got := field(t, h.ok(secrets.Update, strings.TrimSuffix("sys/tools/hash/"+name, "/"), `{"input":"YWJj"}`),
			"sum"); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPasswordPolicies(t *testing.T) {
	h := newHouse(t)
	h.refused(errkind.NotFound, h.root, secrets.List, "sys/policies/password/", "")
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/policies/password/p", `{"policy":"length = 2"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/policies/password/a/b",
		`{"policy":"length = 20 rule \"charset\" { charset = \"ab\" }"}`)
	h.ok(secrets.Update, "sys/policies/password/p", `{"policy":"length = 20 rule \"charset\" { charset = \"ab\" }"}`)
	if got := field(t, h.ok(secrets.Read, "sys/policies/password/p/generate", ""), "password").(string); len(got) != 20 ||
		strings.Trim(got, "ab") != "" {
		t.Errorf("a password: %q", got)
	}
	if got := fmt.Sprint(field(t, h.ok(secrets.List, "sys/policies/password/", ""), "keys"), field(t, h.ok(secrets.Read,
		"sys/policies/password/p", ""), "policy")); got != `[p]length = 20 rule "charset" { charset = "ab" }` {
		t.Errorf("the policy reads %s", got)
	}
	h.ok(secrets.Delete, "sys/policies/password/p", "")
	h.refused(errkind.NotFound, h.root, secrets.Read, "sys/policies/password/p", "")
}

func TestLockedUsers(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	h.ok(secrets.Update, "auth/userpass/users/ann", text(t, map[string]string{"password_hash": quick(t)}))
	for range 5 {
		_, _ = h.as("", secrets.Update, "auth/userpass/login/Ann", `{"password":"guess"}`)
	}
	h.refused(errkind.Denied, "", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`)
	r := string(h.ok(secrets.Read, "sys/locked-users", "").Data)
	accessor := h.gate.Load().Mounts.Get("auth/userpass/").Accessor
	if !strings.Contains(r, `"total":1`) || !strings.Contains(r,
		`{"mount_accessor":"`+accessor+`","counts":1,"alias_identifiers":["ann"]}`) {
		t.Errorf("locked out are %s", r)
	}
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/locked-users/none/unlock/ann", "")
	h.ok(secrets.Update, "sys/locked-users/"+accessor+"/unlock/ann", "")
	if _, err := h.as("", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`); err != nil {
		t.Errorf("after unlocking: %v", err)
	}
}

func TestRemount(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "secret/a", `{"x":"1"}`)
	for _, body := range []string{`{"from":"none","to":"x"}`, `{"from":"secret","to":"kv2"}`, `{"from":"sys","to":"x"}`,
		`{"from":"secret","to":"auth/x"}`, `{"from":"secret","to":"kv2/below"}`, `{"from":"secret","to":""}`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "sys/remount", body)
	}
	id := field(t, h.ok(secrets.Update, "sys/remount", `{"from":"secret","to":"/secret/moved/"}`), "migration_id").(string)
	if got := string(h.ok(secrets.Read, "sys/remount/status/"+id, "").Data); !strings.Contains(got,
		`"source_mount":"secret/","status":"success","target_mount":"secret/moved/"`) {
		t.Errorf("the move: %s", got)
	}
	for range 2 {
		if got := string(h.ok(secrets.Read, "secret/moved/a", "").Data); got != `{"x":"1"}` {
			t.Errorf("after the move: %s", got)
		}
		h.refused(errkind.NotFound, h.root, secrets.Read, "secret/a", "")
		h.Seal()
		h.unseal()
	}
}

func TestSmallRows(t *testing.T) {
	h := newHouse(t)
	for _, path := range []string{"status", "dr/status", "performance/status"} {
		if r, err := h.as("", secrets.Read, "sys/replication/"+path, ""); err != nil || !strings.Contains(string(r.Data),
			`"mode":"disabled"`) {
			t.Errorf("replication/%s: %v", path, err)
		}
	}
	h.refused(errkind.NotFound, h.root, secrets.Read, "sys/replication/recover", "")
	if r := h.ok(secrets.Update, "sys/leases/tidy", ""); r.Status != 202 || len(r.Warnings) != 1 {
		t.Errorf("tidy: %+v", r)
	}
	if r := h.ok(secrets.Update, "auth/token/tidy", ""); r.Status != 202 || len(r.Warnings) != 1 {
		t.Errorf("tidy of tokens: %+v", r)
	}
	catalog := object(t, h.ok(secrets.Read, "sys/plugins/catalog", ""))
	if got := catalog["secret"].([]any); !slices.Contains(got, any("kv")) || slices.Contains(got, any("system")) {
		t.Errorf("the catalog lists %v", got)
	}
	if got := field(t, h.ok(secrets.Read, "sys/plugins/catalog/auth/approle", ""), "builtin"); got != true {
		t.Errorf("approle: %v", got)
	}
	h.refused(errkind.NotFound, h.root, secrets.Read, "sys/plugins/catalog/auth/none", "")
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/plugins/catalog/secret/own", `{"command":"x"}`)
	app := h.token(`{"policies":["default"]}`)
	r, err := h.as(app, secrets.Read, "sys/internal/ui/resultant-acl", "")
	if err != nil || !strings.Contains(string(r.Data), `"auth/token/lookup-self":{"capabilities":["read"]}`) ||
		!strings.Contains(string(r.Data), `"cubbyhole/":{"capabilities":["create","delete","list","read","update"]}`) ||
		!strings.Contains(string(r.Data), `"root":false`) {
		t.Errorf("resultant-acl: %v, %s", err, r.Data)
	}
	if r := object(t, h.ok(secrets.Read, "sys/host-info", "")); r["memory"] == nil || r["host"] == nil {
		t.Errorf("host-info: %v", r)
	}
	if r := object(t, h.ok(secrets.Read, "sys/in-flight-req", "")); len(r) != 1 {
		t.Errorf("under way are %v", r)
	}
	doc := object(t, h.ok(secrets.Read, "sys/internal/specs/openapi", ""))
	if doc["openapi"] != "3.0.2" || inside(doc, "paths", "/sys/mounts/{path}", "post", "operationId") == nil {
		t.Errorf("openapi: %v", doc)
	}
}

func TestCORSSettings(t *testing.T) {
	h := newHouse(t)
	for _, body := range []string{`{}`, `{"allowed_origins":"*,http://a"}`, `{"allowed_origins":"example.org"}`,
		`{"allowed_origins":"http://a/path"}`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "sys/config/cors", body)
	}
	h.ok(secrets.Update, "sys/config/cors", `{"allowed_origins":"https://a.example","allowed_headers":"X-Mine"}`)
	h.Seal()
	if c := h.CORS(); c.Allows("https://a.example") {
		t.Error("allowed while sealed")
	}
	h.unseal()
	if c := h.CORS(); !c.Allows("https://a.example") || c.Allows("https://b.example") || !slices.Contains(c.Headers,
		"X-Mine") {
		t.Errorf("the settings are %+v", c)
	}
	h.ok(secrets.Delete, "sys/config/cors", "")
	if got := string(h.ok(secrets.Read, "sys/config/cors", "").Data); got != `{"enabled":false}` {
		t.Errorf("switched off: %s", got)
	}
}

func TestProfilesAndLog(t *testing.T) {
	h := newHouse(t)
	for _, path := range []string{"sys/pprof/", "sys/pprof/goroutine", "sys/pprof/heap", "sys/pprof/allocs",
		"sys/pprof/block", "sys/pprof/mutex", "sys/pprof/threadcreate", "sys/pprof/cmdline", "sys/pprof/symbol"} {
		if r := h.ok(secrets.Read, path, ""); len(r.Raw.Body) == 0 {
			t.Errorf("%s is empty", path)
		}
	}
	h.refused(errkind.NotFound, h.root, secrets.Read, "sys/pprof/none", "")
	h.refused(errkind.NotFound, h.root, secrets.Read, "sys/monitor", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a client that leaves ends a profile
	q := &secrets.Request{Op: secrets.Read, Path: "sys/pprof/trace", Caller: secrets.Caller{Token: h.root},
		Query: secrets.FieldsOf(map[string]any{"seconds": "50"})}
	if r, err := h.Handle(ctx, q); err != nil || len(r.Raw.Body) == 0 {
		t.Errorf("a trace: %v", err)
	}
	h.owners.tools.Local.Follow = func(_ context.Context, level slog.Level, json bool, w io.Writer, flush func()) error {
		defer flush()
		_, err := fmt.Fprint(w, level, json)
		return errors.Join(err, io.EOF)
	}
	q = &secrets.Request{Op: secrets.Read, Path: "sys/monitor", Caller: secrets.Caller{Token: h.root},
		Query: secrets.FieldsOf(map[string]any{"log_level": "warn", "log_format": "json"})}
	r, err := h.Handle(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.Raw.Stream(&out, func() {}); !errors.Is(err, io.EOF) || out.String() != "WARN true" {
		t.Errorf("the log streams %q, %v", out.String(), err)
	}
	q = &secrets.Request{Op: secrets.Read, Path: "sys/monitor", Caller: secrets.Caller{Token: h.root},
		Query: secrets.FieldsOf(map[string]any{"log_level": "loud"})}
	if _, err := h.Handle(t.Context(), q); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a wrong level: %v", err)
	}
}

// level is that of a log that nobody writes.
type level struct{ slog.LevelVar }

// SetLevel implements tools.Level.
func (l *level) SetLevel(to slog.Level) { l.Set(to) }

func TestLoggers(t *testing.T) {
	h := newHouse(t)
	h.refused(errkind.NotFound, h.root, secrets.Read, "sys/loggers", "")
	log := &level{}
	h.owners.tools.Local.Level, h.owners.tools.Local.LevelAtStart = log, slog.LevelWarn
	shows := func(want string) {
		t.Helper()
		for _, path := range []string{"sys/loggers", "sys/loggers/core"} {
			if got := string(h.ok(secrets.Read, path, "").Data); got != `{"core":"`+want+`"}` {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
	}
	shows("info")
	h.ok(secrets.Update, "sys/loggers", `{"level":"TRACE"}`)
	shows("trace")
	h.ok(secrets.Update, "sys/loggers/core", `{"level":"error"}`)
	shows("error")
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/loggers", `{"level":"loud"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/loggers/audit", `{"level":"debug"}`)
	h.ok(secrets.Delete, "sys/loggers", "")
	shows("warn")
}

func TestPoliciesWithTheirText(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/policies/acl/app", `{"policy":"path \"a\" { capabilities = [\"read\"] }"}`)
	list := object(t, h.ok(secrets.List, "sys/policies/detailed/acl", ""))
	if got := fmt.Sprint(list["keys"]); got != "[app default root]" {
		t.Error(got)
	}
	info := list["key_info"].(map[string]any)
	if app := info["app"].(map[string]any); app["name"] != "app" || !strings.Contains(fmt.Sprint(app["policy"]), "path") {
		t.Errorf("%v", app)
	}
}

func TestVersionHistory(t *testing.T) {
	h := newHouse(t)
	for i, name := range []string{"1.0.0", "1.0.0", "1.1.0"} {
		h.now = h.now.Add(time.Hour)
		h.owners.tools.Local.Version = name
		if _, err := h.owners.tools.NoteVersion(t.Context()); err != nil {
			t.Fatal(i, err)
		}
	}
	r := h.ok(secrets.List, "sys/version-history/", "")
	if fmt.Sprint(field(t, r, "keys")) != "[1.0.0 1.1.0]" || inside(field(t, r, "key_info"), "1.1.0",
		"previous_version") != "1.0.0" {
		t.Errorf("the history is %s", r.Data)
	}
}

// The names that operators watch count what they say.
func TestMeters(t *testing.T) {
	h := newHouse(t)
	reg := telemetry.New(telemetry.Config{Settings: telemetry.Settings{MetricsPrefix: "vault"}})
	k, err := newKeeper(Config{Storage: h.store, Now: func() time.Time { return h.now }, Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	h.Keeper = k
	h.unseal()
	h.ok(secrets.Update, "secret/a", `{"x":"1"}`)
	h.ok(secrets.Read, "secret/a", "")
	h.ok(secrets.Read, "sys/policy/default", "")
	h.ok(secrets.Update, "auth/token/create", `{"ttl":"1h"}`)
	for name, want := range map[string]uint64{"route.create.secret-": 1, "route.read.secret-": 1, "core.handle_request": 4,
		"policy.get_policy": 1, "token.create": 1, "inmem.put": 2, "barrier.put": 2} {
		if got := reg.Timing(name).Count(); got != want {
			t.Errorf("%s counts %d, want %d", name, got, want)
		}
	}
	if got := reg.Counter("token.creation", "cluster", k.Cluster().Name, "namespace", "root", "auth_method", "token",
		"mount_point", "auth/token/", "creation_ttl", "1h", "token_type", "service").Value(); got != 1 {
		t.Errorf("%d tokens were created", got)
	}
	if reg.Counter("cache.hit").Value() == 0 || reg.Counter("cache.miss").Value() == 0 {
		t.Error("the cache counts nothing")
	}
}

// What is written to a mount's settings is read back under the same names.
func TestTuneReadsWhatItWrote(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	const written = `{"default_lease_ttl":3600,"max_lease_ttl":7200,"description":"d","listing_visibility":"unauth",` +
		`"token_type":"batch","audit_non_hmac_request_keys":["a","b"],` +
		`"audit_non_hmac_response_keys":["c"],"passthrough_request_headers":["X-One"],"allowed_response_headers":["X-Two"]}`
	h.ok(secrets.Update, "sys/auth/userpass/tune", written)
	got := object(t, h.ok(secrets.Read, "sys/auth/userpass/tune", ""))
	var want map[string]any
	if err := json.Unmarshal([]byte(written), &want); err != nil {
		t.Fatal(err)
	}
	for name, v := range want {
		if fmt.Sprint(got[name]) != fmt.Sprint(v) {
			t.Errorf("%s reads %v, was written %v", name, got[name], v)
		}
	}
	if shown := fmt.Sprint(inside(object(t, h.ok(secrets.Read, "sys/auth", "")), "userpass/", "config",
		"audit_non_hmac_request_keys")); shown != "[a b]" {
		t.Errorf("the list of methods shows %s", shown)
	}
	// Who has no token, and who has no right there, sees that much of it.
	app := h.token(`{"policies":["default"]}`)
	for _, id := range []string{"", app} {
		r, err := h.as(id, secrets.Read, "sys/internal/ui/mounts", "")
		if err != nil || !strings.Contains(string(r.Data), `"auth":{`) || !strings.Contains(string(r.Data),
			`"userpass/":{"description":"d","options":null,"type":"userpass"}`) || strings.Contains(string(r.Data), "kv") {
			t.Errorf("with the token %q: %v, %v", id, r, err)
		}
	}
	h.refused(errkind.Denied, "", secrets.Read, "sys/internal/ui/mounts/auth/userpass/login/ann", "")
	h.refused(errkind.Denied, "hvs.wrong", secrets.Read, "sys/internal/ui/mounts", "")
}
