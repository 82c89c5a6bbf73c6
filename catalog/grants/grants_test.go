package grants

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

func TestRevocationCountsAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	p := w.policy("readers", `key_prefix "app/" { policy = "read" }`)
	tok := w.token(acl.Token{Grants: acl.Grants{Policies: links("readers")}})
	g := w.grant(tok.SecretID)
	if !g.Allow(acl.Key, "app/x", acl.Read) || g.Allow(acl.Key, "app/x", acl.Write) || g.Accessor != tok.AccessorID {
		t.Fatal("the policy does not hold")
	}
	if w.grant(tok.SecretID) != g {
		t.Error("nothing changed, and the grant is another")
	}
	w.policy("other", `operator = "read"`)
	if w.grant(tok.SecretID) != g {
		t.Error("a policy of others changed, and the grant is another")
	}
	p.Rules = `key_prefix "app/" { policy = "write" }`
	if _, err := w.keeper.SetPolicy(t.Context(), *p); err != nil {
		t.Fatal(err)
	}
	if !w.grant(tok.SecretID).Allow(acl.Key, "app/x", acl.Write) {
		t.Error("the changed policy does not count")
	}
	w.must(w.keeper.DeletePolicy(t.Context(), p.ID))
	if w.grant(tok.SecretID).Allow(acl.Key, "app/x", acl.Read) {
		t.Error("the deleted policy counts")
	}
	w.must(w.keeper.DeleteToken(t.Context(), tok.AccessorID))
	w.refused(tok.SecretID)
	w.refused(tok.AccessorID)
	w.refused("never was")
}

func TestExpiredTokensAreRefusedThenRemoved(t *testing.T) {
	w := newWorld(t, nil)
	tok, err := w.keeper.CreateToken(t.Context(), TokenRequest{TTL: 2 * time.Minute})
	w.must(err)
	stays := w.token(acl.Token{})
	w.grant(tok.SecretID)
	next, err := w.keeper.Sweep(t.Context())
	if err != nil || !next.Equal(*tok.ExpirationTime) {
		t.Fatal(next, err)
	}
	w.clock.Advance(2 * time.Minute)
	w.refused(tok.SecretID)
	if TokenByAccessor(w.store.State(), tok.AccessorID) == nil {
		t.Fatal("it is refused before it is removed")
	}
	if _, err := w.keeper.Sweep(t.Context()); err != nil || TokenByAccessor(w.store.State(), tok.AccessorID) != nil {
		t.Fatal("not removed", err)
	}
	w.grant(stays.SecretID)
}

func TestARestoreForgetsWhatWasKnown(t *testing.T) {
	w := newWorld(t, nil)
	old := w.store.st
	tok := w.token(acl.Token{})
	w.grant(tok.SecretID)
	other := newStore()
	other.st = old
	other2 := NewKeeper(KeeperConfig{Store: other, Clock: w.clock})
	if _, err := other2.CreateToken(t.Context(), TokenRequest{}); err != nil { // the same indexes, another token
		t.Fatal(err)
	}
	w.store.st, w.store.generation = other.st, 1
	w.refused(tok.SecretID)
}

func TestTokensShareAuthorizers(t *testing.T) {
	w := newWorld(t, nil)
	w.policy("a", `key_prefix "a/" { policy = "read" }`)
	w.policy("b", `key_prefix "b/" { policy = "read" }`)
	_, err := w.keeper.SetRole(t.Context(), acl.Role{Name: "both", Grants: acl.Grants{Policies: links("a", "b")}})
	w.must(err)
	one := w.token(acl.Token{Grants: acl.Grants{Policies: links("a", "b")}})
	two := w.token(acl.Token{Roles: links("both"), Grants: acl.Grants{Policies: links("b")}})
	if w.grant(one.SecretID).Authorizer != w.grant(two.SecretID).Authorizer {
		t.Error("the same policies are compiled twice")
	}
	three := w.token(acl.Token{Grants: acl.Grants{ServiceIdentities: []acl.ServiceIdentity{{ServiceName: "web"}},
		NodeIdentities: []acl.NodeIdentity{{NodeName: "n9", Datacenter: "dc2"}}}})
	g := w.grant(three.SecretID)
	if !g.Allow(acl.Service, "web", acl.Write) || !g.Allow(acl.Service, "web-sidecar-proxy", acl.Write) ||
		g.Allow(acl.Service, "api", acl.Write) || !g.Allow(acl.Node, "x", acl.Read) {
		t.Error("service identity")
	}
	if g.Allow(acl.Node, "n9", acl.Write) {
		t.Error("an identity for another datacenter holds here")
	}
}

func TestSpecialSecrets(t *testing.T) {
	w := newWorld(t, func(_ *KeeperConfig, c *Config) { c.Recovery = func() string { return "rescue" } })
	g := w.grant("")
	if g.Accessor != acl.AnonymousAccessor || g != w.grant(acl.AnonymousSecret) || g.Allow(acl.Key, "a", acl.Read) {
		t.Error("anonymous")
	}
	if err := g.Check(acl.Key, "a", acl.Read); !errkind.Is(err, errkind.Denied) ||
		err.Error() != `Permission denied: token with AccessorID '00000000-0000-0000-0000-000000000002' lacks permission `+
			`'key:read' on "a"` {
		t.Error(err)
	}
	if err := g.Check(acl.Operator, "", acl.Write); err == nil ||
		!strings.HasSuffix(err.Error(), "lacks permission 'operator:write'") {
		t.Error(err)
	}
	anonymous := TokenByAccessor(w.store.State(), acl.AnonymousAccessor)
	w.policy("public", `key_prefix "public/" { policy = "read" }`)
	anonymous.Policies = links("public")
	_, err := w.keeper.UpdateToken(t.Context(), TokenRequest{Token: *anonymous})
	w.must(err)
	if !w.grant("").Allow(acl.Key, "public/x", acl.Read) {
		t.Error("the anonymous token takes policies")
	}
	g = w.grant("rescue")
	if !g.Allow(acl.Agent, "n1", acl.Write) || g.Allow(acl.Agent, "n2", acl.Read) || g.Allow(acl.Key, "a", acl.Read) {
		t.Error("recovery")
	}
}

func TestInitialManagement(t *testing.T) {
	w := newWorld(t, func(k *KeeperConfig, c *Config) { k.InitialManagement, c.InitialManagement = "root", "root" })
	g := w.grant("root")
	if !g.Allow(acl.ACL, "", acl.Write) || g.Token == nil {
		t.Fatal("the token is not stored")
	}
	w.must(w.keeper.EnsureBuiltins(t.Context())) // the next leader
	if again := w.grant("root"); again.Accessor != g.Accessor {
		t.Error("a leader stored another token of the same secret")
	}
	w.must(w.keeper.DeleteToken(t.Context(), g.Accessor))
	w.refused("root")
	w.must(w.keeper.EnsureBuiltins(t.Context()))
	w.refused("root") // a revocation outlives the term in which it happened
	early := NewResolver(Config{Now: newStore().now, InitialManagement: "root"})
	if g, err := early.Grant(t.Context(), "root"); err != nil || !g.Allow(acl.ACL, "", acl.Write) {
		t.Error("before the leader stored it", err)
	}
	if _, err := early.Grant(t.Context(), "roo"); err == nil {
		t.Error("something like it")
	}
}

func TestGrantCostsNothingTwice(t *testing.T) {
	w := newWorld(t, nil)
	w.policy("readers", `key_prefix "app/" { policy = "read" }`)
	tok := w.token(acl.Token{Grants: acl.Grants{Policies: links("readers")}})
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if g, err := w.resolver.Grant(ctx, tok.SecretID); err != nil || !g.Allow(acl.Key, "app/x", acl.Read) {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for range 2 * keptTokens {
		if w.resolver.known.len() > keptTokens {
			t.Fatal("the cache has no bound")
		}
		w.resolver.known.put(uuid.NewString(), &known{})
		if w.resolver.known.len() == keptTokens {
			return
		}
	}
}

func BenchmarkGrant(b *testing.B) {
	s := newStore()
	k := NewKeeper(KeeperConfig{Store: s})
	tok, err := k.CreateToken(b.Context(), TokenRequest{})
	if err != nil {
		b.Fatal(err)
	}
	gen, st := s.now()
	r := NewResolver(Config{Now: func() (uint64, *statestore.State) { return gen, st }})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Grant(ctx, tok.SecretID); err != nil {
			b.Fatal(err)
		}
	}
}
