package local

import (
	"strings"
	"testing"
	"testing/synctest"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

const withSidecar = `{"Name":"web","ID":"web-1","Port":8080,"Tags":["v1"],"Meta":{"a":"b"},"Connect":{"SidecarService":{
	"Proxy":{"Upstreams":[{"DestinationName":"db","LocalBindPort":9191}],"Config":{"protocol":"http"}}}}}`

func TestSidecarStandsBesideItsService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		disk := vfs.NewMem()
		l, stop := running(t, Config{Servers: f, FS: disk, DataDir: "/d", SidecarMinPort: 21000, SidecarMaxPort: 21001})
		register := func(body string) error {
			return l.RegisterService(t.Context(), mustService(t, body), RegisterOptions{Persist: true, Token: "secret"})
		}
		for range 2 { // again changes nothing
			if err := register(withSidecar); err != nil {
				t.Fatal(err)
			}
		}
		p := f.service("web-1-sidecar-proxy")
		want := `{"Config":{"protocol":"http"},"DestinationServiceID":"web-1","DestinationServiceName":"web",` +
			`"LocalServiceAddress":"127.0.0.1","LocalServicePort":8080,"Upstreams":[{"DestinationName":"db",` +
			`"LocalBindPort":9191}]}`
		if p == nil || p.Name != "web-sidecar-proxy" || p.Kind != catalog.KindConnectProxy || p.Port != 21000 ||
			p.ProxyDestination != "web" || p.Tags[0] != "v1" || p.Meta["a"] != "b" || string(p.Proxy) != want {
			t.Fatalf("sidecar %+v\nproxy %s", p, p.Proxy)
		}
		if f.tokens["s:web-1-sidecar-proxy"] != "secret" {
			t.Errorf("its token is %q", f.tokens["s:web-1-sidecar-proxy"])
		}
		listening, aliasing := f.check("service:web-1-sidecar-proxy:1"), f.check("service:web-1-sidecar-proxy:2")
		if listening == nil || listening.Name != "Connect Sidecar Listening" ||
			len(listening.Definition) > 0 || listening.Type != "tcp" ||
			aliasing == nil || aliasing.Name != "Connect Sidecar Aliasing web-1" || aliasing.Status != catalog.Passing {
			t.Errorf("checks %+v %+v", listening, aliasing)
		}
		if err := register(strings.ReplaceAll(withSidecar, "web", "api")); err != nil ||
			f.service("api-1-sidecar-proxy").Port != 21001 {
			t.Errorf("the second: %v", err)
		}
		if err := register(strings.ReplaceAll(withSidecar, "web", "third")); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("a range without a free port: %v", err)
		}
		stop()
		l, stop = running(t, Config{Servers: f, FS: disk, DataDir: "/d"})
		defer stop()
		if err := l.DeregisterService(t.Context(), "web-1"); err != nil {
			t.Fatal(err)
		}
		if f.service("web-1") != nil || f.service("web-1-sidecar-proxy") != nil || f.service("api-1-sidecar-proxy") == nil {
			t.Error("the sidecar did not go with its service, after a restart")
		}
		if err := l.SetFileDefinitions([]*definition.Service{mustService(t, strings.ReplaceAll(withSidecar, "web", "file"))},
			nil); err != nil {
			t.Fatal(err)
		}
		if s := l.Service("file-1-sidecar-proxy"); s == nil || s.Service.Port != 21000 {
			t.Errorf("a definition file's sidecar: %+v", s)
		}
		if err := l.SetFileDefinitions(nil, nil); err != nil || l.Service("file-1-sidecar-proxy") != nil {
			t.Errorf("it stays when the file goes: %v", err)
		}
	})
}
