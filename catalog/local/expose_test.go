package local

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog/definition"
)

const exposing = `{"Name":"web","Port":8080,"Checks":[
	{"CheckID":"health","HTTP":"http://127.0.0.1:8080/health","Interval":"1h"},
	{"CheckID":"ready","GRPC":"127.0.0.1:8081","Interval":"1h"},
	{"CheckID":"alive","TCP":"127.0.0.1:8080","Interval":"1h"}],
	"Connect":{"SidecarService":{"Checks":[{"Name":"a","AliasService":"web"}],"Proxy":{"Expose":{"Checks":true}}}}}`

// TestChecksGoThroughTheProxy: a proxy that exposes checks is given listeners for those that can go through it, and
// the checks' ports are told to the catalog; without it they go straight again.
func TestChecksGoThroughTheProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f, ExposeMinPort: 21500, ExposeMaxPort: 21501, SidecarMinPort: 21000,
			SidecarMaxPort: 21001})
		defer stop()
		register := func(body string) {
			t.Helper()
			if err := l.RegisterService(t.Context(), mustService(t, body), RegisterOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		ports := func(health, ready, alive int) {
			t.Helper()
			for id, want := range map[string]int{"health": health, "ready": ready, "alive": alive} {
				if c := f.check(id); c == nil || c.ExposedPort != want || l.Check(id).Check.ExposedPort != want {
					t.Errorf("%s: %+v, want port %d", id, c, want)
				}
			}
		}
		proxied := func(want ...string) {
			t.Helper()
			text := string(l.Service("web-sidecar-proxy").ForProxy().Proxy)
			for _, part := range want {
				if !strings.Contains(text, part) {
					t.Errorf("the proxy is made of %s, without %s", text, part)
				}
			}
			if strings.Contains(text, "ExposedChecks") != (len(want) > 0) {
				t.Errorf("the proxy is made of %s", text)
			}
			if p := f.service("web-sidecar-proxy"); strings.Contains(string(p.Proxy), "ExposedChecks") {
				t.Errorf("the catalog is told %s", p.Proxy)
			}
		}
		for range 2 {
			register(exposing)
			ports(21500, 21501, 0)
			proxied(`"ListenerPort":21500,"Path":"/health","LocalPathPort":8080,"Protocol":"http","ParsedFromCheck":true`,
				`"ListenerPort":21501,"Path":"/grpc.health.v1.Health/Check","LocalPathPort":8081,"Protocol":"http2"`,
				`"127.0.0.0/8"`)
		}
		version, expose := l.View().Version, Exposer(l)
		register(strings.Replace(exposing, `"Checks":true`, `"Checks":false`, 1))
		ports(0, 0, 0)
		proxied()
		if l.View().Version == version {
			t.Error("nobody who waits for changes is told")
		}
		expose("web-sidecar-proxy", true) // by a config entry
		expose("nobody", true)
		synctest.Wait()
		ports(21500, 21501, 0)
		proxied("21501")
		expose("web-sidecar-proxy", false)
		synctest.Wait()
		ports(0, 0, 0)
		register(exposing)
		if err := l.DeregisterCheck(t.Context(), "ready"); err != nil {
			t.Fatal(err)
		}
		proxied("21500")
		if err := l.RegisterCheck(t.Context(), &definition.Check{ID: "more", Name: "more", ServiceID: "web",
			Probe: definition.Probe{HTTP: "http://127.0.0.1:8080/more"}, Interval: time.Hour}, RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		if c := f.check("more"); c.ExposedPort != 21501 {
			t.Errorf("the port of a check that is gone: %d", c.ExposedPort)
		}
		if err := l.DeregisterService(t.Context(), "web-sidecar-proxy"); err != nil {
			t.Fatal(err)
		}
		if c := f.check("health"); c.ExposedPort != 0 {
			t.Errorf("without the proxy: %d", c.ExposedPort)
		}
	})
}
