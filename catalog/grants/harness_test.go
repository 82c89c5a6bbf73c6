package grants

import (
	"context"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/clock"
)

// store is a State without replication.
type store struct {
	mu         sync.Mutex
	st         *statestore.State
	generation uint64
	writes     int
	// before runs ahead of the next write, once: another writer that comes first.
	before func()
}

func newStore() *store { return &store{st: statestore.Empty()} }

func (s *store) now() (uint64, *statestore.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation, s.st
}

// State implements Store.
func (s *store) State() *statestore.State {
	_, st := s.now()
	return st
}

// SetRecords implements Store.
func (s *store) SetRecords(_ context.Context, ops ...catalog.RecordOp) (catalog.Result, bool, error) {
	s.mu.Lock()
	before := s.before
	s.before = nil
	s.mu.Unlock()
	if before != nil {
		before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	next, results, _ := s.st.Apply([]catalog.Command{&catalog.Records{Ops: ops}})
	s.st = next
	return results[0], results[0].OK && results[0].Err == nil, results[0].Err
}

// world is a keeper and a resolver over one store.
type world struct {
	*testing.T
	store    *store
	clock    *clock.Fake
	keeper   *Keeper
	resolver *Resolver
	verifier *verifier
	reset    uint64 // what the reset file holds
}

func newWorld(t *testing.T, change func(*KeeperConfig, *Config)) *world {
	t.Helper()
	w := &world{T: t, store: newStore(), clock: clock.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		verifier: &verifier{}}
	kc := KeeperConfig{Store: w.store, Datacenter: "dc1", Clock: w.clock, Verifier: w.verifier,
		ResetIndex: func(done bool) uint64 {
			if done {
				w.reset = 0
			}
			return w.reset
		}}
	rc := Config{Now: w.store.now, Datacenter: "dc1", NodeName: "n1", Clock: w.clock}
	if change != nil {
		change(&kc, &rc)
	}
	w.keeper, w.resolver = NewKeeper(kc), NewResolver(rc)
	w.must(w.keeper.EnsureBuiltins(t.Context()))
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) policy(name, rules string) *acl.Policy {
	w.Helper()
	p, err := w.keeper.SetPolicy(w.Context(), acl.Policy{Name: name, Rules: rules})
	w.must(err)
	return p
}

func (w *world) token(in acl.Token) *acl.Token {
	w.Helper()
	t, err := w.keeper.CreateToken(w.Context(), TokenRequest{Token: in})
	w.must(err)
	return t
}

func (w *world) grant(secret string) *acl.Grant {
	w.Helper()
	g, err := w.resolver.Grant(w.Context(), secret)
	w.must(err)
	return g
}

// refused fails unless the secret is unknown.
func (w *world) refused(secret string) {
	w.Helper()
	if g, err := w.resolver.Grant(w.Context(), secret); err == nil || err.Error() != "ACL not found" {
		w.Errorf("%q: %v, %v", secret, g, err)
	}
}

func links(names ...string) (all []acl.Link) {
	for _, n := range names {
		all = append(all, acl.Link{Name: n})
	}
	return all
}

// verifier lets in whose credential is "good:team".
type verifier struct{}

func (*verifier) Check(*acl.AuthMethod) error { return nil }
func (*verifier) Begin(context.Context, *acl.AuthMethod, *Visit) (string, error) {
	return "https://id.example/authorize", nil
}

func (v *verifier) End(ctx context.Context, m *acl.AuthMethod, b *Back) (Claims, map[string]string, error) {
	c, err := v.Login(ctx, m, b.Code)
	return c, map[string]string{"begun": "here"}, err
}

func (*verifier) Fields(*acl.AuthMethod) Claims {
	return Claims{Vars: map[string]string{"value.team": "team"},
		Selectable: map[string]any{"value": map[string]any{"team": "team"}, "list": map[string]any{"groups": []string{}}}}
}
func (*verifier) Login(_ context.Context, _ *acl.AuthMethod, credential string) (Claims, error) {
	if len(credential) < 6 || credential[:5] != "good:" {
		return Claims{}, errUnknown
	}
	team := credential[5:]
	return Claims{Vars: map[string]string{"value.team": team},
		Selectable: map[string]any{"value": map[string]any{"team": team},
			"list": map[string]any{"groups": []string{"all", team}}}}, nil
}
