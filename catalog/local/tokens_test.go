package local

import (
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
)

// TestEachCallCarriesItsToken: a registration's own token, else that of its origin, else the default one.
func TestEachCallCarriesItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.services["stray"] = &catalog.Service{ID: "stray", Name: "stray"}
		tokens := Tokens{Agent: "agent", Default: "default", ConfigFile: "files"}
		l, stop := running(t, Config{Servers: f, Tokens: func() Tokens { return tokens }})
		defer stop()
		register := func(body string, o RegisterOptions) {
			t.Helper()
			if err := l.RegisterService(t.Context(), mustService(t, body), o); err != nil {
				t.Fatal(err)
			}
		}
		register(`{"Name":"plain"}`, RegisterOptions{})
		register(`{"Name":"own","Token":"mine","Check":{"CheckID":"own-ttl","TTL":"1h"},"Checks":[{"CheckID":"apart",`+
			`"TTL":"1h","Token":"other"}]}`, RegisterOptions{})
		register(`{"Name":"header","Check":{"CheckID":"header-ttl","TTL":"1h"}}`, RegisterOptions{Token: "presented"})
		if err := l.RegisterCheck(t.Context(), mustCheck(t, `{"Name":"host-check","TTL":"1h"}`),
			RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := l.SetFileDefinitions([]*definition.Service{mustService(t, `{"Name":"filed","Check":{`+
			`"CheckID":"filed-ttl","TTL":"1h"}}`),
			mustService(t, `{"Name":"filed-own","Token":"written"}`)}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := l.DeregisterService(t.Context(), "own"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(syncInterval * 3)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		for what, want := range map[string]string{
			"node": "agent", "s:plain": "default", "s:own": "mine", "c:own-ttl": "mine", "c:apart": "other",
			"s:header": "presented", "c:header-ttl": "presented", "c:host-check": "agent",
			"s:filed": "files", "c:filed-ttl": "files", "s:filed-own": "written", "-s:own": "mine", "-s:stray": "agent",
		} {
			if got, there := f.tokens[what]; got != want || !there {
				t.Errorf("%s went with token %q (%v), want %q", what, got, there, want)
			}
		}
	})
}
