package users

import (
	"errors"
	"log/slog"
	"sync"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func seeded(t *testing.T) *resources.Resources {
	t.Helper()
	ops, err := Seed("admin", "correct horse", "key-1", bcrypt.MinCost, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := resources.New(slog.New(slog.DiscardHandler))
	if out := r.ApplyBatch([][]byte{objects.AppendCommand(nil, ops)}); out[0] != nil {
		t.Fatal(out[0])
	}
	for _, typ := range monitor.Types {
		r.View().List(typ.Name, "", "", "", func(i *objects.Item) bool {
			if err := i.Object().Validate(); err != nil {
				t.Errorf("%s %s: %v", typ.Name, i.Name, err)
			}
			return true
		})
	}
	return r
}

func TestLogin(t *testing.T) {
	r := seeded(t)
	u := New(Config{Resources: r, Cost: bcrypt.MinCost})
	for _, c := range []struct {
		name, password string
		ok             bool
	}{
		{"admin", "correct horse", true}, {"admin", "correct horse ", false}, {"admin", "", false},
		{"agent", AgentPassword, true},
		{"nobody", "correct horse", false}, {"", "", false}, {"Admin", "correct horse", false},
	} {
		for range 2 { // the second time it is remembered
			who, err := u.Login(t.Context(), "test", c.name, c.password)
			if (err == nil) != c.ok || c.ok && who.User != c.name || !c.ok && (!errors.Is(err, ErrWrong) || who.User != "") {
				t.Errorf("%q %q: %+v, %v", c.name, c.password, who, err)
			}
		}
	}
	if len(u.good) != 2 {
		t.Errorf("%d logins are remembered", len(u.good))
	}
	who, _ := u.Login(t.Context(), "test", "agent", AgentPassword)
	access := r.View().Access()
	if !access.Allows(who, "create", "events", "default", "web-1") ||
		access.Allows(who, "create", "checks", "default", "x") {
		t.Error("what agents may do")
	}
}

// What is remembered does not outlive the password, nor the user.
func TestLoginAfterAChange(t *testing.T) {
	r := seeded(t)
	u := New(Config{Resources: r, Cost: bcrypt.MinCost})
	if _, err := u.Login(t.Context(), "test", "agent", AgentPassword); err != nil {
		t.Fatal(err)
	}
	change := func(f func(*monitor.User)) {
		old := *r.View().Get("users", "", "agent").Object().(*monitor.User)
		f(&old)
		op := objects.Op{Verb: objects.Put, Type: "users", Name: "agent", Encoded: tagproto.Append(nil, &old)}
		if out := r.ApplyBatch([][]byte{objects.AppendCommand(nil, []objects.Op{op})}); out[0] != nil {
			t.Fatal(out[0])
		}
	}
	change(func(x *monitor.User) { x.Disabled = true })
	if _, err := u.Login(t.Context(), "test", "agent", AgentPassword); !errors.Is(err, ErrWrong) {
		t.Error("a disabled user:", err)
	}
	change(func(x *monitor.User) { x.Disabled = false; x.PasswordHash = string(nobody) })
	if _, err := u.Login(t.Context(), "test", "agent", AgentPassword); !errors.Is(err, ErrWrong) {
		t.Error("another password:", err)
	}
}

// Thousands who share a password cost one hash.
func TestAFleetLogsInAtOnce(t *testing.T) {
	u := New(Config{Resources: seeded(t), Cost: bcrypt.MinCost})
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			if _, err := u.Login(t.Context(), "test", "agent", AgentPassword); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// New passwords and those of the first start are hashed at Sensu's cost, and who has no name here is compared with a
// hash of the same.
func TestCost(t *testing.T) {
	u := New(Config{Resources: resources.New(slog.New(slog.DiscardHandler))})
	hash, err := u.Hash(t.Context(), "test", "new one")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{hash, string(u.nobody)} {
		if cost, err := bcrypt.Cost([]byte(h)); cost != 10 || err != nil {
			t.Errorf("%s: cost %d, %v", h, cost, err)
		}
	}
	ops, err := Seed("admin", "x", "", 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	hashes := 0
	for _, op := range ops {
		if op.Type != "users" {
			continue
		}
		var user monitor.User
		if err := tagproto.Unmarshal(op.Encoded, &user); err != nil {
			t.Fatal(err)
		}
		if cost, err := bcrypt.Cost([]byte(user.PasswordHash)); cost != 10 || err != nil {
			t.Errorf("%s: cost %d, %v", user.Username, cost, err)
		}
		hashes++
	}
	if hashes != 2 {
		t.Errorf("%d users", hashes)
	}
}

// The password that everybody knows opens nothing to other hosts, whoever has it, once or again.
func TestPublishedPassword(t *testing.T) {
	r := seeded(t)
	u := New(Config{Resources: r, Cost: bcrypt.MinCost, PublishedFromHostOnly: true})
	for range 2 {
		for from, ok := range map[string]bool{"127.0.0.1": true, "127.0.0.1:4711": true, "::1": true, "[::1]:4711": true,
			"::ffff:127.0.0.1": true,
			"10.0.0.9":         false, "10.0.0.9:4711": false, "fe80::1": false, "": false, "somewhere": false} {
			if _, err := u.Login(t.Context(), from, AgentUser, AgentPassword); (err == nil) != ok ||
				err != nil && !errors.Is(err, ErrWrong) {
				t.Errorf("from %q: %v, taken is %v", from, err, ok)
			}
		}
	}
	if _, err := u.Login(t.Context(), "10.0.0.9", "admin", "correct horse"); err != nil {
		t.Error("another password is refused", err)
	}
}
