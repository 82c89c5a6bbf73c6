package snapcache

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/errkind"
)

// tokens is an Access whose rights a test changes.
type tokens struct {
	mu     sync.Mutex
	grants map[string]*acl.Grant
	asked  int
}

func (a *tokens) Grant(_ context.Context, token string) (*acl.Grant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if g := a.grants[token]; g != nil {
		return g, nil
	}
	return nil, errkind.New(errkind.Denied, "ACL not found")
}

func (a *tokens) set(t testing.TB, token, rules string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if rules == "" {
		delete(a.grants, token)
		return
	}
	parsed, err := acl.Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	a.grants[token] = &acl.Grant{Accessor: token, Authorizer: acl.Compile(acl.Deny, parsed)}
}

const mine = `service "web" { policy = "write" } service_prefix "" { policy = "read" }`

func TestWhoMayFollow(t *testing.T) {
	access := &tokens{grants: map[string]*acl.Grant{}}
	access.set(t, "web", mine)
	access.set(t, "reader", `service "api" { policy = "read" }`)
	access.set(t, "nodes", `node_prefix "" { policy = "read" }`)
	h := newHarness(t, Config{Access: access})
	for _, c := range []struct {
		token, subject string
		may            bool
	}{
		{"web", "service/web", true}, {"web", "service/api", false}, {"web", "endpoints/dc1/api/", true},
		{"web", "upstream/dc1/api///", true}, {"web", "roots", true},
		{"web", "rules/web", true}, {"web", "rules/api", false}, {"web", "rules/", true}, {"reader", "rules/", false},
		{"nodes", "rules/", false}, {"unknown", "rules/", false},
		{"reader", "service/api", false}, {"reader", "endpoints/dc1/api/v1", true}, {"reader", "endpoints/dc2/api/", true},
		{"reader", "endpoints/dc1/web/", false}, {"reader", "upstream/dc1/web///", false},
		{"nodes", "endpoints/dc1/api/", false}, {"nodes", "roots", true},
		{"unknown", "endpoints/dc1/api/", false}, {"unknown", "roots", true},
	} {
		stop, err := h.Follow(feed.Identity{Token: c.token}, c.subject, func(feed.Value) {},
			func(error) { t.Error("its right ends") })
		if c.may != (err == nil) || err != nil && errkind.Of(err) != errkind.Denied {
			t.Errorf("%s follows %s: %v", c.token, c.subject, err)
		}
		if err == nil {
			stop()
		}
	}
	if s := h.Stats(); s.Subjects != 0 || s.Followers != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// Rights are looked at where they stand: only who loses one hears of it, once, and
// at the latest when tokens are looked at without a reason.
func TestRightsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		access := &tokens{grants: map[string]*acl.Grant{}}
		access.set(t, "web", mine)
		access.set(t, "api", `service "api" { policy = "write" }`)
		h := newHarness(t, Config{Access: access, Recheck: time.Minute})
		defer h.stop()
		own, other, roots, api := h.follow("service/web", "web"), h.follow("endpoints/dc1/db/", "web"),
			h.follow("roots", "web"), h.follow("service/api", "api")
		refused := func(want ...int) {
			t.Helper()
			synctest.Wait()
			for i, s := range []*seen{own, other, roots, api} {
				if s.refusals() != want[i] {
					t.Errorf("%s: refused %d times, want %d", s.subject, s.refusals(), want[i])
				}
			}
		}
		changes := 0
		changed := func() {
			changes++
			h.do(record(catalog.RecordACLPolicy, "p", strconv.Itoa(changes)))
		}
		changed() // to the same rights
		refused(0, 0, 0, 0)
		<-time.After(time.Second)
		access.set(t, "web", `service "web" { policy = "write" }`)
		changed()
		refused(0, 1, 0, 0)
		access.set(t, "web", "") // at once after: it waits for the window
		changed()
		<-time.After(time.Second)
		refused(1, 1, 0, 0)
		access.set(t, "api", "") // it ran out, and no record says so
		<-time.After(2 * time.Minute)
		refused(1, 1, 0, 1)
		// Who was refused is told nothing any more; the others are.
		h.do(proxy("n1", "db", 1), configEntry(t, `{"Kind":"service-defaults","Name":"web","Protocol":"http"}`),
			record(catalog.RecordCA, "root/x", "{}"))
		synctest.Wait()
		if own.count() != 1 || other.count() != 1 || h.Stats().Subjects != 1 {
			t.Errorf("told %d and %d times, %d subjects", own.count(), other.count(), h.Stats().Subjects)
		}
		own.stop() // changes nothing
	})
}

// A right that ends while a follower is being let in does not let it in.
func TestRightsThatEndOnTheWay(t *testing.T) {
	access := &tokens{grants: map[string]*acl.Grant{}}
	access.set(t, "web", mine)
	h := newHarness(t, Config{Access: turning{access, func(h *harness) {
		access.set(t, "web", "")
		h.do(record(catalog.RecordACLToken, "web", "gone"))
	}, new(sync.Once), nil}})
	turn := h.Cache.cfg.Access.(turning)
	turn.h = h
	h.Cache.cfg.Access = turn
	if _, err := h.Follow(feed.Identity{Token: "web"}, "service/web", func(feed.Value) {},
		func(error) {}); errkind.Of(err) != errkind.Denied {
		t.Error(err)
	}
}

// turning changes what is right just after the first answer was found.
type turning struct {
	*tokens
	turn func(*harness)
	once *sync.Once
	h    *harness
}

func (a turning) Grant(ctx context.Context, token string) (*acl.Grant, error) {
	g, err := a.tokens.Grant(ctx, token)
	if a.h != nil {
		a.once.Do(func() { a.turn(a.h) })
	}
	return g, err
}
