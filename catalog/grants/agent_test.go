package grants

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// remote is a server as an agent sees it.
type remote struct {
	mu    sync.Mutex
	known map[string]Resolution
	down  bool
	asked int
}

func (r *remote) fetch(_ context.Context, secret string) (Resolution, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.down {
		return Resolution{}, errkind.New(errkind.Unavailable, "No known Consul servers")
	}
	res, ok := r.known[secret]
	if !ok {
		return Resolution{}, errUnknown
	}
	wire, err := ReadResolution(res.AppendPack(nil)) // as it comes over the wire
	return wire, err
}

func (r *remote) set(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

func (r *remote) forget(secret string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, secret)
}

func (r *remote) times() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func newAgent(policy string) (*Agent, *remote, *clock.Fake) {
	c := clock.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := &remote{known: map[string]Resolution{
		"reader": {Accessor: "a-reader", Rules: []string{`key_prefix "" { policy = "read" }`}},
		"ends": {Accessor: "a-ends", Expires: c.Now().Add(40 * time.Second),
			Rules: []string{`key_prefix "" { policy = "read" }`}},
	}}
	return NewAgent(AgentConfig{Fetch: r.fetch, NodeName: "n1", DownPolicy: policy, TTL: 30 * time.Second, Clock: c,
		Recovery: func() string { return "rescue" }}), r, c
}

func TestAgentKeepsWhatServersSaid(t *testing.T) {
	a, r, c := newAgent(DownExtendCache)
	for range 3 {
		g, err := a.Grant(t.Context(), "reader")
		if err != nil || !g.Allow(acl.Key, "x", acl.Read) || g.Allow(acl.Key, "x", acl.Write) || g.Accessor != "a-reader" {
			t.Fatal(g, err)
		}
		if _, err := a.Grant(t.Context(), "stranger"); !errors.Is(err, errUnknown) {
			t.Fatal(err)
		}
	}
	if r.times() != 2 {
		t.Errorf("asked %d times within the TTL", r.times())
	}
	r.forget("reader")
	c.Advance(30 * time.Second)
	if _, err := a.Grant(t.Context(), "reader"); !errors.Is(err, errUnknown) {
		t.Error("revoked, and accepted after the TTL", err)
	}
	if _, err := a.Grant(t.Context(), "ends"); err != nil {
		t.Fatal(err)
	}
	c.Advance(10 * time.Second)
	if _, err := a.Grant(t.Context(), "ends"); !errors.Is(err, errUnknown) {
		t.Error("expired, and accepted within the TTL", err)
	}
}

func TestAgentWhileNoServerAnswers(t *testing.T) {
	for policy, want := range map[string]struct{ known, other bool }{
		DownExtendCache: {true, false}, DownAsyncCache: {true, false}, DownDeny: {false, false}, DownAllow: {true, true},
	} {
		a, r, c := newAgent(policy)
		if _, err := a.Grant(t.Context(), "reader"); err != nil {
			t.Fatal(err)
		}
		r.set(true)
		c.Advance(time.Minute)
		for secret, allowed := range map[string]bool{"reader": want.known, "stranger": want.other} {
			g, err := a.Grant(t.Context(), secret)
			if err != nil || g.Allow(acl.Key, "x", acl.Read) != allowed {
				t.Errorf("%s, %s: %v, %v", policy, secret, g, err)
			}
		}
		if g, err := a.Grant(t.Context(), "rescue"); err != nil || !g.Allow(acl.Agent, "n1", acl.Write) {
			t.Errorf("%s: the recovery token asks nobody: %v", policy, err)
		}
	}
}

func TestAsyncCacheLooksUpLater(t *testing.T) {
	a, r, c := newAgent(DownAsyncCache)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if _, err := a.Grant(t.Context(), "reader"); err != nil {
		t.Fatal(err)
	}
	r.forget("reader")
	c.Advance(time.Minute)
	if _, err := a.Grant(t.Context(), "reader"); err != nil {
		t.Error("the first use after the TTL waits for nobody", err)
	}
	polltest.Until(t, func() bool {
		_, err := a.Grant(t.Context(), "reader")
		return errors.Is(err, errUnknown)
	}, "the revocation to be seen")
}
