package logins

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/resources/resourcestest"
)

func plane(t *testing.T) (*resources.Resources, *resourcestest.Direct) {
	t.Helper()
	r, d := resourcestest.New()
	resourcestest.Put(t, r, "users", &monitor.User{Username: "ann", PasswordHash: "h1", Groups: []string{"ops"}})
	return r, d
}

// A storm of logins writes one thing, on all servers together: the secret.
func TestStorm(t *testing.T) {
	r, d := plane(t)
	before := d.Writes.Load()
	const servers, each = 3, 200
	all := make([]*Logins, servers)
	var wait sync.WaitGroup
	errs := make(chan error, servers*each)
	for i := range all {
		l, err := New(Config{Resources: r, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		all[i] = l
		for range each {
			wait.Go(func() {
				tokens, err := l.Issue(t.Context(), monitor.Caller{User: "ann"}, "http://x")
				if err == nil {
					_, err = l.Check(tokens.Access)
				}
				errs <- err
			})
		}
	}
	wait.Wait()
	for range servers * each {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.View().State.Snapshot()); n == 0 || r.View().Get("settings", "", "jwt") == nil {
		t.Error("the secret is not kept")
	}
	records := 0
	r.View().List("logins", "", "", "", func(*objects.Item) bool { records++; return true })
	// those who came before the secret was there asked for it together
	if records != 0 || d.Writes.Load()-before > servers*each {
		t.Errorf("%d records, %d writes", records, d.Writes.Load()-before)
	}
	before = d.Writes.Load()
	for i := range each {
		if _, err := all[i%servers].Issue(t.Context(), monitor.Caller{User: "ann"}, "http://x"); err != nil {
			t.Fatal(err)
		}
	}
	if d.Writes.Load() != before {
		t.Errorf("%d logins made %d writes", each, d.Writes.Load()-before)
	}
	tokens, err := all[0].Issue(t.Context(), monitor.Caller{User: "ann"}, "http://x")
	if err != nil {
		t.Fatal(err)
	}
	if who, err := all[2].Check(tokens.Access); err != nil || who.User != "ann" || fmt.Sprint(who.Groups) != "[ops]" {
		t.Errorf("another server: %v, %v", who, err)
	}
}

// TestOneUserLeavesRoomForOthers: the records of one user's sessions are bounded, and do not keep others from theirs.
func TestOneUserLeavesRoomForOthers(t *testing.T) {
	r, _ := plane(t)
	resourcestest.Put(t, r, "users", &monitor.User{Username: "bob", PasswordHash: "h2"})
	l, err := New(Config{Resources: r, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	refresh := func(user string) error {
		tokens, err := l.Issue(t.Context(), monitor.Caller{User: user}, "http://x")
		if err == nil {
			tokens, err = l.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x")
		}
		if err == nil {
			_, err = l.Check(tokens.Access)
		}
		return err
	}
	first, err := l.Issue(t.Context(), monitor.Caller{User: "ann"}, "http://x")
	if err != nil {
		t.Fatal(err)
	}
	if first, err = l.Refresh(t.Context(), first.Access, first.Refresh, "http://x"); err != nil {
		t.Fatal(err)
	}
	for range MaxUserRecords - 1 {
		if err := refresh("ann"); err != nil {
			t.Fatal(err)
		}
	}
	if err := refresh("ann"); !errkind.Is(err, errkind.Overloaded) {
		t.Errorf("one session more: %v", err)
	}
	if err := refresh("bob"); err != nil {
		t.Errorf("another user: %v", err)
	}
	if _, err := l.Refresh(t.Context(), first.Access, first.Refresh, "http://x"); err != nil {
		t.Errorf("a session that is there: %v", err)
	}
}

// Keys of a file take the secret's place; the public one alone checks and signs nothing.
func TestKeys(t *testing.T) {
	r, _ := plane(t)
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	private, public := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub})
	signs, err := New(Config{Resources: r, Now: time.Now, PrivateKey: private, PublicKey: public})
	if err != nil {
		t.Fatal(err)
	}
	checks, err := New(Config{Resources: r, Now: time.Now, PublicKey: public})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := New(Config{Resources: r, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := signs.Issue(t.Context(), monitor.Caller{User: "ann"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checks.Check(tokens.Access); err != nil {
		t.Error("with the public key:", err)
	}
	if _, err := checks.Issue(t.Context(), monitor.Caller{User: "ann"}, ""); err == nil {
		t.Error("the public key signs")
	}
	if _, err := secret.Check(tokens.Access); !errors.Is(err, ErrWrong) {
		t.Error("with a secret:", err)
	}
	if r.View().Get("settings", "", "jwt") != nil {
		t.Error("a secret was made that nobody needs")
	}
	if _, err := New(Config{Resources: r, Now: time.Now, PrivateKey: []byte("x")}); err == nil {
		t.Error("what is no key is accepted")
	}
}

// A session ends with its user, and with its user's password.
func TestEnds(t *testing.T) {
	r, _ := plane(t)
	l, err := New(Config{Resources: r, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	issue := func() Tokens {
		t.Helper()
		tokens, err := l.Issue(t.Context(), monitor.Caller{User: "ann"}, "")
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	for name, u := range map[string]*monitor.User{
		"a new password": {Username: "ann", PasswordHash: "h2"}, "disabled": {Username: "ann", PasswordHash: "h1",
			Disabled: true},
	} {
		resourcestest.Put(t, r, "users", &monitor.User{Username: "ann", PasswordHash: "h1"})
		tokens := issue()
		resourcestest.Put(t, r, "users", u)
		if _, err := l.Check(tokens.Access); !errors.Is(err, ErrWrong) {
			t.Errorf("%s: the access token holds: %v", name, err)
		}
		if _, err := l.Refresh(t.Context(), tokens.Access, tokens.Refresh, ""); !errors.Is(err, ErrWrong) {
			t.Errorf("%s: the refresh token holds: %v", name, err)
		}
	}
	if _, err := l.Issue(t.Context(), monitor.Caller{User: "nobody"}, ""); !errors.Is(err, ErrWrong) {
		t.Error(err)
	}
}
