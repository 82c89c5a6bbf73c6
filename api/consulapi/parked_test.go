package consulapi

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// changing is an Authorizer whose grants a test replaces.
type changing struct {
	mu    sync.Mutex
	known tokens
}

func (c *changing) Grant(ctx context.Context, secret string) (*acl.Grant, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.Grant(ctx, secret)
}

func (c *changing) GrantWithin(ctx context.Context, secret string, _ time.Duration) (*acl.Grant, error) {
	return c.Grant(ctx, secret)
}

func (c *changing) set(secret string, g *acl.Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[secret] = g
}

const seeWeb = `service "web" { policy = "read" } node_prefix "" { policy = "read" } key_prefix "app/" { policy = ` +
	`"read" }`

// TestParkedQueriesAreJudgedWhenTheyWake parks queries on both paths, changes what their tokens allow,
// and looks at what the wake-up gives.
func TestParkedQueriesAreJudgedWhenTheyWake(t *testing.T) {
	auth := &changing{known: tokens{}}
	s := newStage(t, func(c *Config) { c.Authorizer, c.DefaultACLPolicy = auth, "deny" })
	s.service("node01", "passing")
	put(t, s.store, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "app/x", Value: []byte("1")}})
	same := rules(seeWeb)
	auth.set("stays", same)
	auth.set("revoked", rules(seeWeb))
	auth.set("less", rules(seeWeb))
	auth.set("other", rules(seeWeb))
	waiting := map[string]*client{}
	paths := []string{"/v1/health/service/web?wait=1m&index=", "/v1/catalog/service/web?wait=1m&index=",
		"/v1/kv/app/x?wait=1m&index="}
	for _, addr := range []string{s.addr, s.slow} {
		for _, path := range paths {
			for _, secret := range []string{"stays", "revoked", "less", "other"} {
				c := dialTo(t, addr)
				c.send(requestText("GET", path+"1000", "X-Consul-Token: "+secret+"\r\n", ""))
				waiting[addr+" "+path+" "+secret] = c
			}
		}
	}
	until(t, "all queries to be parked", func() bool { return s.api.Blocking() == len(waiting) })
	auth.set("revoked", nil)
	auth.set("less", rules(`key_prefix "other/" { policy = "read" }`))
	auth.set("other", rules(seeWeb+` operator = "read"`)) // the same is seen
	// Everybody is woken as a restore does it: whatever the index.
	s.store.restore(s.store.State())
	put(t, s.store, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "app/x", Value: []byte("2")}})
	for name, c := range waiting {
		a := c.read()
		kv, secret := strings.Contains(name, "/kv/"), name[strings.LastIndexByte(name, ' ')+1:]
		switch {
		case secret == "revoked":
			if a.status != 403 || a.body != "ACL not found" {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		case secret == "less" && kv:
			if a.status != 403 || !strings.HasPrefix(a.body, "Permission denied") {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		case secret == "less":
			if a.status != 200 || a.body != "[]" || a.header.Get("X-Consul-Results-Filtered-By-Acls") != "true" {
				t.Errorf("%s: %d %v %s", name, a.status, a.header, a.body)
			}
		case a.status != 200 || len(a.body) < 10 || a.header.Get("X-Consul-Results-Filtered-By-Acls") != "":
			t.Errorf("%s: %d %v %s", name, a.status, a.header, a.body)
		}
	}
}

// TestFilteredAnswersSaySo compares what callers see of one list, also from the cache of answers.
func TestFilteredAnswersSaySo(t *testing.T) {
	s := newStage(t, func(c *Config) {
		anonymous := rules("")
		anonymous.Accessor = acl.AnonymousAccessor
		c.Authorizer, c.DefaultACLPolicy = tokens{"all": rules(acl.GlobalReadOnlyRules),
			"some": rules(`service_prefix "" { policy = "read" } node "node01" { policy = "read" }`), "": anonymous}, "deny"
	})
	s.service("node01", "passing")
	s.service("node02", "passing")
	for range 2 {
		for _, addr := range []string{s.addr, s.slow} {
			for _, path := range []string{"/v1/health/service/web", "/v1/catalog/service/web", "/v1/catalog/nodes",
				"/v1/health/state/any", "/v1/catalog/services", "/v1/health/service/WEB"} {
				for _, c := range []struct{ secret, filtered string }{{"all", ""}, {"some", "true"}, {"", ""}} {
					header := ""
					if c.secret != "" {
						header = "X-Consul-Token: " + c.secret + "\r\n"
					}
					want := c.filtered
					if path == "/v1/catalog/services" {
						want = ""
					}
					a := dialTo(t, addr).ask("GET", path, header, "")
					if a.status != 200 || a.header.Get("X-Consul-Results-Filtered-By-Acls") != want {
						t.Errorf("%s as %q: %d %v", path, c.secret, a.status, a.header)
					}
					if c.secret != "all" && strings.Contains(a.body, "node02") || c.secret == "" && len(a.body) > 2 {
						t.Errorf("%s as %q: %s", path, c.secret, a.body)
					}
				}
			}
		}
	}
}

// TestAFollowersRefusalIsTheLeadersToGive: a server that lags may not know a token or a right yet.
func TestAFollowersRefusalIsTheLeadersToGive(t *testing.T) {
	f := &follower{}
	r := newRig(t, func(c *Config) {
		c.Forward, c.DefaultACLPolicy = f, "deny"
		c.Authorizer = tokens{"app": rules(`key_prefix "app/" { policy = "read" }`), "": rules("")}
	})
	const unknown, denied = "ACL not found",
		`Permission denied: token with AccessorID 'the-accessor' lacks permission 'key:read' on "other"`
	r.run([]step{
		{"GET", "/v1/kv/other?token=app", "", 403, denied},
		{"GET", "/v1/kv/app/x?token=new", "", 403, unknown},
	})
	if f.leader != 0 {
		t.Error("the leader passed a refusal on")
	}
	r.store.set(registry.Contact{KnownLeader: true}, errkind.New(errkind.NotLeader, "not the leader"))
	r.run([]step{
		{"GET", "/v1/kv/other?token=app", "", 200, "forwarded:"},
		{"PUT", "/v1/kv/app/x?token=app", "body", 200, "forwarded:body"},
		{"GET", "/v1/kv/app/x?token=new", "", 200, "forwarded:"},
		{"PUT", "/v1/txn?token=app", `[{"KV":{"Verb":"set","Key":"a"}}]`, 200, `forwarded:[{"KV":{"Verb":"set","Key":"a"}}]`},
		{"PUT", "/v1/acl/token?token=new", `{}`, 200, "forwarded:{}"},
		{"GET", "/v1/kv/other?stale&token=app", "", 403, denied},
		{"GET", "/v1/kv/app/x?stale&token=new", "", 403, unknown},
		{"GET", "/v1/agent/services?token=new", "", 403, unknown},
	})
	if f.leader != 5 {
		t.Errorf("forwarded %d", f.leader)
	}
}

// BenchmarkGetWithACL reads one key through the hot path's front door, in turns with ACLs off and on (a token whose
// rights come from the records), and reports the throughput with ACLs as a share of that without.
func BenchmarkGetWithACL(b *testing.B) {
	open := newStage(b, nil)
	secret := ""
	guarded := newStage(b, func(c *Config) {
		st := c.Registry.(*store)
		k := grants.NewKeeper(grants.KeeperConfig{Store: st})
		p,
			err := k.SetPolicy(b.Context(),
			acl.Policy{Name: "app", Rules: `key_prefix "app/" { policy = "read" } key_prefix "app/other/" { policy = "write" }`})
		if err != nil {
			b.Fatal(err)
		}
		tok,
			err := k.CreateToken(b.Context(),
			grants.TokenRequest{Token: acl.Token{Grants: acl.Grants{Policies: []acl.Link{{ID: p.ID}}}}})
		if err != nil {
			b.Fatal(err)
		}
		secret = tok.SecretID
		c.ACL.Keeper, c.DefaultACLPolicy = k, "deny"
		c.Authorizer = grants.NewResolver(grants.Config{Now: func() (uint64, *statestore.State) {
			gen := st.Generation()
			return gen, st.State()
		}})
	})
	var conns [2]*client
	var texts [2]string
	for i, s := range []*stage{open, guarded} {
		put(b, s.store, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "app/x", Value: make([]byte, 256)}})
		conns[i] = dialTo(b, s.addr)
		texts[i] = requestText("GET", "/v1/kv/app/x", "X-Consul-Token: "+secret+"\r\n", "")
	}
	var spent [2]time.Duration
	const turn = 64 // requests that are sent at once: the server's work counts, not the way
	var batch [2]string
	for i := range batch {
		batch[i] = strings.Repeat(texts[i], turn)
	}
	for n := 0; b.Loop(); n++ {
		for k := range 2 {
			i := (n + k) % 2
			_ = conns[i].SetDeadline(time.Now().Add(30 * time.Second))
			begun := time.Now()
			conns[i].send(batch[i])
			for range turn {
				if a := conns[i].read(); a.status != 200 {
					b.Fatal(a.status, a.body)
				}
			}
			spent[i] += time.Since(begun)
		}
	}
	b.ReportMetric(float64(spent[0])/float64(spent[1]), "acl/open")
}
