package secretresolver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/resources/resourcestest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// rig is a Resolver over a configuration, with a clock of its own.
type rig struct {
	*Resolver
	t   *testing.T
	r   *resources.Resources
	own atomic.Pointer[string]
	now atomic.Int64
}

func newRig(t *testing.T) *rig {
	config, _ := resourcestest.New()
	g := &rig{t: t, r: config}
	g.put("namespaces", "", "default", &monitor.Namespace{Name: "default"})
	env := map[string]string{"TOKEN": "s3cret", "EMPTY": "", "CORBEL_TOKEN": "own"}
	g.Resolver = New(Config{View: g.r.View, Now: func() time.Time { return time.Unix(g.now.Load(), 0) },
		Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Own: func() string {
			if own := g.own.Load(); own != nil {
				return *own
			}
			return ""
		}})
	t.Cleanup(g.Close)
	return g
}

func (g *rig) put(typ, namespace, name string, o monitor.Object) {
	g.t.Helper()
	if err := o.Validate(); err != nil {
		g.t.Fatal(err)
	}
	if err := g.r.Write(g.t.Context(), objects.Op{Verb: objects.Put, Type: typ, Namespace: namespace, Name: name,
		Encoded: tagproto.Append(nil, o)}); err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) secret(name, provider, id string) {
	g.t.Helper()
	g.put("secrets", "default", name, &monitor.SecretSource{Meta: monitor.Meta{Name: name, Namespace: "default"},
		Provider: provider, ID: id})
}

func (g *rig) provider(name, kind, spec string) {
	g.t.Helper()
	g.put("providers", "", name, &monitor.Provider{Meta: monitor.Meta{Name: name}, Kind: kind, Spec: []byte(spec)})
}

func (g *rig) env(names ...string) (string, error) {
	var list []*monitor.Secret
	for i, n := range names {
		list = append(list, &monitor.Secret{Name: fmt.Sprintf("V%d", i), Secret: n})
	}
	out, err := g.Env(g.t.Context(), "default", list)
	return strings.Join(out, " "), err
}

func TestEnvironment(t *testing.T) {
	g := newRig(t)
	g.secret("a", "env", "TOKEN")
	g.secret("b", "mine", "EMPTY")
	g.secret("none", "env", "NOBODY")
	g.secret("own", "env", "CORBEL_TOKEN")
	g.secret("other", "elsewhere", "x")
	g.provider("mine", "Env", `{}`)
	if out, err := g.env("a", "b"); err != nil || out != "V0=s3cret V1=" {
		t.Errorf("%q, %v", out, err)
	}
	for name, want := range map[string]string{"none": "no variable NOBODY", "own": "own",
		"other": `provider "elsewhere" does not exist`, "unknown": "does not exist"} {
		if _, err := g.env("a", name); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), `"`+name+`"`) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out, err := g.Env(t.Context(), "default", nil); err != nil || len(out) != 0 {
		t.Error(out, err)
	}
}

func TestVault(t *testing.T) {
	var asked atomic.Int64
	var answer atomic.Pointer[func(http.ResponseWriter, *http.Request)]
	serve := func(f func(http.ResponseWriter, *http.Request)) { answer.Store(&f) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		(*answer.Load())(w, r)
	}))
	defer server.Close()
	serve(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Vault-Token") != "tok" {
			w.WriteHeader(403)
			return
		}
		switch r.URL.Path {
		case "/v1/secret/data/db":
			_, _ = w.Write([]byte(`{"data":{"data":{"password":"pw","port":5432,"value":"plain"},"metadata":{}}}`))
		case "/v1/old/db":
			_, _ = w.Write([]byte(`{"data":{"password":"former"}}`))
		case "/v1/secret/data/gone":
			_, _ = w.Write([]byte(`{"data":{"data":null,"metadata":{}}}`))
		default:
			w.WriteHeader(404)
		}
	})
	g := newRig(t)
	g.provider("vault", "VaultProvider", `{"client":{"address":"`+server.URL+
		`","token":"tok","version":"v2","timeout":"20s","max_retries":2,"rate_limiter":{"limit":10,"burst":100}}}`)
	g.provider("v1", "VaultProvider", `{"client":{"address":"`+server.URL+`","token":"tok","version":"v1"}}`)
	g.provider("stranger", "VaultProvider", `{"client":{"address":"`+server.URL+`","token":"wrong"}}`)
	for name, id := range map[string]string{"pw": "secret/db#password", "port": "secret/data/db#port",
		"plain": "secret/db", "gone": "secret/gone#x", "nothing": "secret/nothing#x", "field": "secret/db#nope",
		"bad": "secret#x", "up": "secret/../sys#x"} {
		g.secret(name, "vault", id)
	}
	g.secret("former", "v1", "old/db#password")
	g.secret("denied", "stranger", "secret/db#password")
	if out, err := g.env("pw", "port", "plain", "former"); err != nil || out != "V0=pw V1=5432 V2=plain V3=former" {
		t.Fatalf("%q, %v", out, err)
	}
	for name, want := range map[string]struct {
		kind errkind.Kind
		text string
	}{"gone": {errkind.NotFound, "no version"}, "nothing": {errkind.NotFound, "has nothing at"},
		"field": {errkind.NotFound, `no field "nope"`}, "bad": {errkind.Invalid, "mount/path#field"},
		"up": {errkind.Invalid, "mount/path#field"}, "denied": {errkind.Denied, "does not let"}} {
		if _, err := g.env(name); !errkind.Is(err, want.kind) || !strings.Contains(err.Error(), want.text) ||
			strings.Contains(err.Error(), "tok") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A value holds for a minute, a failure for seconds; a change of the secret or of its provider counts at once.
	before := asked.Load()
	if _, err := g.env("pw"); err != nil || asked.Load() != before {
		t.Errorf("%v after %d calls", err, asked.Load()-before)
	}
	g.secret("pw", "vault", "secret/db#port")
	if out, err := g.env("pw"); err != nil || out != "V0=5432" {
		t.Error(out, err)
	}
	g.now.Add(61)
	tries := asked.Load()
	serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	if _, err := g.env("pw"); !errkind.Is(err, errkind.Unavailable) || asked.Load()-tries != 3 {
		t.Errorf("%v after %d calls", err, asked.Load()-tries)
	}
	if _, err := g.env("pw"); err == nil || asked.Load()-tries != 3 {
		t.Error("what failed is asked for at once again")
	}
	serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"data":"pw-is-here`)) })
	g.now.Add(6)
	if _, err := g.env("pw"); err == nil || strings.Contains(err.Error(), "pw-is-here") {
		t.Error("an error quotes what may be a secret:", err)
	}
}

// Who asks at once shares one call, and one that gives up does not fail the others.
func TestOneCall(t *testing.T) {
	var asked atomic.Int64
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			select {
			case <-r.Context().Done():
			case <-release:
			}
		}
		_, _ = w.Write([]byte(`{"data":{"data":{"value":"pw"}}}`))
	}))
	defer server.Close()
	g := newRig(t)
	g.own.Store(&server.URL)
	g.provider("own", "VaultProvider", `{"client":{"token":"tok"}}`)
	g.secret("a", "own", "secret/a")
	first, cancel := context.WithCancel(t.Context())
	list := []*monitor.Secret{{Name: "A", Secret: "a"}}
	var all sync.WaitGroup
	all.Go(func() { _, _ = g.Env(first, "default", list) })
	polltest.Until(t, func() bool { return asked.Load() > 0 }, "the first call is under way")
	for range 20 {
		all.Go(func() {
			if out, err := g.Env(t.Context(), "default", list); err != nil || out[0] != "A=pw" {
				t.Error(out, err)
			}
		})
	}
	cancel()
	all.Wait()
	close(release)
	if n := asked.Load(); n > 3 {
		t.Errorf("%d calls for one value", n)
	}
}

func TestHide(t *testing.T) {
	if got := Hide("login with s3cret failed: abc",
		[]string{"A=s3cret", "B=abc", "C="}); got != "login with REDACTED failed: abc" {
		t.Error(got)
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("secret/db#password")
	f.Add("a/../b#")
	f.Fuzz(func(t *testing.T, id string) {
		for _, version := range []string{"v1", "v2"} {
			path, field, err := place(version, id)
			if err == nil && (field == "" || !strings.HasPrefix(path, "/v1/") || strings.Contains(path, "/../") ||
				strings.ContainsAny(path, "?# ")) {
				t.Errorf("%q: %q, %q", id, path, field)
			}
		}
	})
}
