package local

import (
	"testing"
	"testing/synctest"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// only is a caller who may write the services of these names, and "" for the node.
func only(names ...string) func(string) error {
	return func(service string) error {
		for _, name := range names {
			if name == service {
				return nil
			}
		}
		return errkind.New(errkind.Denied, "Permission denied: "+service)
	}
}

// TestRightOnOneServiceIsNoneOnAnother: what a registration results in is judged, with everything that is derived.
func TestRightOnOneServiceIsNoneOnAnother(t *testing.T) {
	for name, body := range map[string]string{
		"a check's id":               `{"Name":"mine","Checks":[{"CheckID":"theirs-ttl","TTL":"1h","Status":"passing"}]}`,
		"a check's derived id":       `{"Name":"mine","ID":"theirs","Check":{"TTL":"1h"}}`,
		"a derived id with a number": `{"Name":"mine","ID":"two","Checks":[{"TTL":"1h"},{"TTL":"1h"}]}`,
		"a sidecar's check": `{"Name":"mine","Connect":{"SidecarService":{"Checks":[{"CheckID":"theirs-ttl",` +
			`"TTL":"1h","Status":"passing"}]}}}`,
		"a sidecar's derived check": `{"Name":"mine","Connect":{"SidecarService":{"Checks":[{"TTL":"1h"},{"TTL":"1h"}]}}}`,
		"a sidecar's id":            `{"Name":"mine","ID":"other","Connect":{"SidecarService":{}}}`,
		"a sidecar's name":          `{"Name":"their","Connect":{"SidecarService":{"Name":"mine"}}}`,
		"a check's id on the node":  `{"Name":"mine","Checks":[{"CheckID":"disk","TTL":"1h","Status":"passing"}]}`,
		"another service's mark":    `{"Name":"mine","Checks":[{"CheckID":"_service_maintenance:theirs","TTL":"1h"}]}`,
		"the node's mark":           `{"Name":"mine","Checks":[{"CheckID":"_node_maintenance","TTL":"1h"}]}`,
		"a proxy of another service": `{"Name":"mine","Kind":"connect-proxy","Port":1,"Proxy":{` +
			`"DestinationServiceName":"theirs"}}`,
		"another one under its own id": `{"Name":"mine","ID":"theirs"}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, disk := newFake(), vfs.NewMem()
				l, stop := running(t, Config{Servers: f, FS: disk, DataDir: "/d"})
				defer stop()
				for _, theirs := range []string{`{"Name":"theirs","Check":{"CheckID":"theirs-ttl","TTL":"1h"}}`,
					`{"Name":"theirs","ID":"other-sidecar-proxy"}`,
					`{"Name":"theirs","ID":"apart","Checks":[{"CheckID":"service:two:2","TTL":"1h"}]}`,
					`{"Name":"theirs","ID":"near","Checks":[{"CheckID":"service:mine-sidecar-proxy:2","TTL":"1h"}]}`} {
					if err := l.RegisterService(t.Context(), mustService(t, theirs), RegisterOptions{Persist: true}); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.RegisterCheck(t.Context(), mustCheck(t, `{"CheckID":"disk","Name":"disk","TTL":"1h"}`),
					RegisterOptions{}); err != nil {
					t.Fatal(err)
				}
				before := l.View().Version
				o := RegisterOptions{Persist: true, May: only("mine", "mine-sidecar-proxy")}
				if err := l.RegisterService(t.Context(), mustService(t, body), o); !errkind.Is(err, errkind.Denied) {
					t.Errorf("answer %v", err)
				}
				if err := l.RegisterServices(t.Context(), []*definition.Service{mustService(t, `{"Name":"mine","ID":"first"}`),
					mustService(t, body)}, o); !errkind.Is(err, errkind.Denied) {
					t.Errorf("as one of a list: %v", err)
				}
				if l.View().Version != before {
					t.Error("something changed")
				}
				if services, _ := l.store.Load(); len(services) != 4 {
					t.Errorf("%d services are on disk", len(services))
				}
			})
		})
	}
}

func TestCheckOfItsOwnIsJudgedByWhatItBelongsTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := running(t, Config{Servers: newFake()})
		defer stop()
		for _, body := range []string{`{"Name":"theirs","Check":{"CheckID":"theirs-ttl","TTL":"1h"}}`, `{"Name":"mine"}`} {
			if err := l.RegisterService(t.Context(), mustService(t, body), RegisterOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for body, want := range map[string]bool{
			`{"Name":"a","TTL":"1h","ServiceID":"mine"}`:                                       true,
			`{"Name":"a","TTL":"1h","ServiceID":"theirs"}`:                                     false,
			`{"Name":"a","TTL":"1h"}`:                                                          false,
			`{"CheckID":"theirs-ttl","Name":"a","TTL":"1h","ServiceID":"mine"}`:                false,
			`{"CheckID":"_service_drain:theirs","Name":"a","TTL":"1h","ServiceID":"mine"}`:     false,
			`{"CheckID":"_service_maintenance:mine","Name":"a","TTL":"1h","ServiceID":"mine"}`: true,
		} {
			err := l.RegisterCheck(t.Context(), mustCheck(t, body), RegisterOptions{May: only("mine")})
			if (err == nil) != want || err != nil && !errkind.Is(err, errkind.Denied) {
				t.Errorf("%s: %v", body, err)
			}
		}
	})
}

// TestRefusedWhileItIsWritten: what comes between the first look and the change is judged too, and nothing of it
// stays on disk.
func TestRefusedWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := running(t, Config{Servers: newFake(), FS: vfs.NewMem(), DataDir: "/d"})
		defer stop()
		if err := l.RegisterService(t.Context(), mustService(t, `{"Name":"mine","Tags":["first"]}`),
			RegisterOptions{Persist: true}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"mine", "new"} {
			asked := 0
			may := func(string) error {
				if asked++; asked > 1 {
					return errkind.New(errkind.Denied, "Permission denied")
				}
				return nil
			}
			err := l.RegisterService(t.Context(), mustService(t, `{"Name":"mine","ID":"`+id+`","Tags":["second"]}`),
				RegisterOptions{Persist: true, May: may})
			if !errkind.Is(err, errkind.Denied) || asked != 2 {
				t.Errorf("%s: asked %d times: %v", id, asked, err)
			}
		}
		if services, _ := l.store.Load(); len(services) != 1 || services[0].Tags[0] != "first" {
			t.Errorf("on disk: %+v", services)
		}
	})
}

// TestDisplacedGoesWithItsOwnToken: the token of what takes an id need not allow the removal of what had it.
func TestDisplacedGoesWithItsOwnToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f})
		defer stop()
		register := func(body string) {
			t.Helper()
			if err := l.RegisterService(t.Context(), mustService(t, body), RegisterOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		register(`{"Name":"old","ID":"x","Token":"of-old","Check":{"CheckID":"stays","TTL":"1h"}}`)
		register(`{"Name":"first","Token":"of-first","Check":{"CheckID":"moves","TTL":"1h"}}`)
		register(`{"Name":"new","ID":"x","Token":"of-new"}`)
		register(`{"Name":"second","Token":"of-second","Check":{"CheckID":"moves","TTL":"1h"}}`)
		f.mu.Lock()
		defer f.mu.Unlock()
		for what, want := range map[string]string{"-s:x": "of-old", "-c:moves": "of-first", "s:x": "of-new",
			"c:moves": "of-second"} {
			if f.tokens[what] != want {
				t.Errorf("%s went with token %q, want %q", what, f.tokens[what], want)
			}
		}
		if s, c := f.services["x"], f.checks["moves"]; s == nil || s.Name != "new" || c == nil || c.ServiceID != "second" ||
			f.checks["stays"] == nil {
			t.Errorf("the catalog has %+v, %+v, %+v", s, c, f.checks["stays"])
		}
		if c := f.checks["stays"]; c != nil && (c.ServiceName != "new" || c.Status != catalog.Critical) {
			t.Errorf("the check that stays: %+v", c)
		}
	})
}
