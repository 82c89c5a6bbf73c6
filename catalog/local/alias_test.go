package local

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/errkind"
)

// readers are the services that each token may read; "" among them is the node.
type readers struct {
	mu  sync.Mutex
	may map[string][]string
}

func (r *readers) mayRead(_ context.Context, token, service string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.may[token] {
		if s == service {
			return nil
		}
	}
	return errkind.New(errkind.Denied, "Permission denied")
}

func (r *readers) set(token string, services ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.may[token] = services
}

// TestAliasSeesWhatItsTokenMayRead: an alias shows the output of what it looks at, so it looks with the rights of who
// registered it.
func TestAliasSeesWhatItsTokenMayRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rights := &readers{may: map[string][]string{"friend": {"theirs", ""}}}
		l, stop := running(t, Config{Servers: newFake(), MayRead: rights.mayRead,
			Tokens: func() Tokens { return Tokens{Agent: "agent"} }})
		defer stop()
		register := func(token, body string) {
			t.Helper()
			if err := l.RegisterService(t.Context(), mustService(t, body), RegisterOptions{Token: token}); err != nil {
				t.Fatal(err)
			}
		}
		register("theirs", `{"Name":"theirs","Check":{"CheckID":"theirs-ttl","TTL":"1h"}}`)
		if err := l.UpdateTTL("theirs-ttl", "warning", "the secret output"); err != nil {
			t.Fatal(err)
		}
		if err := l.RegisterCheck(t.Context(), mustCheck(t, `{"Name":"disk","TTL":"1h","Status":"passing"}`),
			RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		register("stranger", `{"Name":"nosy","Checks":[{"CheckID":"nosy","Name":"n","AliasService":"theirs"},{`+
			`"CheckID":"nosy-node","Name":"n","AliasNode":"host"}]}`)
		register("friend", `{"Name":"near","Checks":[{"CheckID":"near","Name":"n","AliasService":"theirs"},{`+
			`"CheckID":"near-node","Name":"n","AliasNode":"host"}]}`)
		register("theirs", `{"Name":"theirs-too","Check":{"CheckID":"own","Name":"n","AliasService":"theirs"}}`)
		register("", `{"Name":"nobody","Check":{"CheckID":"nobody","Name":"n","AliasService":"theirs"}}`)
		synctest.Wait()
		want := func(when string, states map[string]catalog.Health) {
			t.Helper()
			for id, status := range states {
				c := l.Check(id).Check
				if c.Status != status || status == catalog.Critical && strings.Contains(c.Output, "secret") {
					t.Errorf("%s: %s is %s: %s", when, id, c.Status, c.Output)
				}
			}
		}
		want("at first", map[string]catalog.Health{"nosy": catalog.Critical, "nosy-node": catalog.Critical,
			"near": catalog.Warning, "near-node": catalog.Passing,
			"own": catalog.Warning, "nobody": catalog.Critical})
		rights.set("friend")
		rights.set("stranger", "theirs")
		time.Sleep(2 * aliasInterval)
		synctest.Wait()
		want("after the rights changed", map[string]catalog.Health{"nosy": catalog.Warning, "near": catalog.Critical,
			"near-node": catalog.Critical, "own": catalog.Warning})
	})
}

// TestRemoteAliasReadsWithItsToken: what its token does not show is not there.
func TestRemoteAliasReadsWithItsToken(t *testing.T) {
	read := func(_ context.Context, token, node string) (*Seen, error) {
		if token != "friend" || node != "far" {
			return nil, nil
		}
		return &Seen{Services: map[string]bool{"web": true},
			Checks: []*catalog.Check{{ID: "a", Name: "a", ServiceID: "web", Status: catalog.Warning, Output: "hot"}}}, nil
	}
	l, err := New(Config{Node: catalog.Node{Name: "host"}, Servers: newFake(), ReadNode: read,
		Tokens: func() Tokens { return Tokens{Agent: "friend"} }})
	if err != nil {
		t.Fatal(err)
	}
	far := definition.Probe{Alias: definition.Alias{AliasNode: "far", AliasService: "web"}}
	for token, want := range map[string]catalog.Health{"friend": catalog.Warning, "stranger": catalog.Critical,
		"": catalog.Critical} {
		r := l.rights.remote(&definition.Check{Token: token, Probe: far})(t.Context())
		if r.Status != want {
			t.Errorf("with token %q: %+v", token, r)
		}
	}
	if r := l.rights.remote(&definition.Check{FromFile: true, Probe: far})(t.Context()); r.Status != catalog.Warning {
		t.Errorf("of a file: %+v", r)
	}
}
