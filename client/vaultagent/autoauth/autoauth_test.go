package autoauth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/client/vaultagent/agentconfig"
)

// fakeServer answers as a server does, and remembers what it was asked.
type fakeServer struct {
	mu       sync.Mutex
	began    time.Time
	asked    []string // "seconds path"
	logins   int
	answer   func(path, token string, body any) (*vault.Answer, error)
	renewals int
}

type fakeClient struct {
	s           *fakeServer
	token, wrap string
}

func (c *fakeClient) Do(_ context.Context, _, path string, _ url.Values, body any) (*vault.Answer, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.asked = append(c.s.asked, fmt.Sprintf("%d %s", int(time.Since(c.s.began).Seconds()), path))
	if strings.HasSuffix(path, "/login") {
		c.s.logins++
	}
	if path == "auth/token/renew-self" {
		c.s.renewals++
	}
	if c.wrap != "" {
		return &vault.Answer{Wrap: &vault.WrapInfo{Token: "wrapped-" + c.wrap}}, nil
	}
	return c.s.answer(path, c.token, body)
}

func (s *fakeServer) count() (logins, renewals int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins, s.renewals
}

// started makes an Auth by AppRole whose role ID is in a file, and runs it for the test's time.
func started(t *testing.T, s *fakeServer, change func(c *Config)) *Auth {
	t.Helper()
	role := filepath.Join(t.TempDir(), "role")
	if err := os.WriteFile(role, []byte("role-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Auth: agentconfig.AutoAuth{Method: agentconfig.Method{Type: "approle", MountPath: "auth/approle",
		MinBackoff: time.Second, MaxBackoff: time.Minute, Config: map[string]string{"role_id_file_path": role}}},
		connect: func(token, wrap string) (server, error) { return &fakeClient{s, token, wrap}, nil }}
	if change != nil {
		change(&cfg)
	}
	s.began = time.Now()
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return a
}

func given(token string, seconds int64, renewable bool) (*vault.Answer, error) {
	return &vault.Answer{Auth: &vault.Auth{ClientToken: token, LeaseDuration: seconds, Renewable: renewable}}, nil
}

func token(a *Auth) string { now, _ := a.Tokens().Get(); return now }

// A token is renewed in time as long as the server gives more; near its longest there is a new login, before it ends.
func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		longest := time.Now().Add(time.Hour)
		s := &fakeServer{}
		s.answer = func(path, token string, _ any) (*vault.Answer, error) {
			if path == "auth/token/renew-self" {
				left := time.Until(longest)
				if left <= 0 {
					t.Errorf("renewed after its end at %v", time.Since(s.began))
				}
				return given(token, int64(min(left, 10*time.Minute).Seconds()), true)
			}
			longest = time.Now().Add(time.Hour)
			return given(fmt.Sprintf("t%d", s.logins), 600, true)
		}
		a := started(t, s, nil)
		time.Sleep(20 * time.Minute)
		logins, renewals := s.count()
		if logins != 1 || renewals < 2 || renewals > 3 {
			t.Errorf("after 20 minutes of tokens of 10: %d logins, %d renewals", logins, renewals)
		}
		if token(a) != "t1" {
			t.Errorf("token %q", token(a))
		}
		time.Sleep(45 * time.Minute)
		if logins, _ := s.count(); logins != 2 || token(a) != "t2" {
			t.Errorf("after 65 minutes of an hour at most: %d logins, token %q", logins, token(a))
		}
	})
}

// What cannot be renewed is replaced before it ends, and what never ends is left alone.
func TestNotRenewable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		s.answer = func(string, string, any) (*vault.Answer, error) {
			return given(fmt.Sprintf("t%d", s.logins), 100, false)
		}
		a := started(t, s, nil)
		time.Sleep(79 * time.Second)
		if token(a) != "t1" {
			t.Errorf("token %q after 79 of 100 s", token(a))
		}
		time.Sleep(12 * time.Second)
		if logins, renewals := s.count(); token(a) != "t2" || logins != 2 || renewals != 0 {
			t.Errorf("token %q after 91 of 100 s, %d logins, %d renewals", token(a), logins, renewals)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(string, string, any) (*vault.Answer, error) { return given("root", 0, false) }}
		started(t, s, nil)
		time.Sleep(30 * time.Hour)
		if logins, renewals := s.count(); logins != 1 || renewals != 0 {
			t.Errorf("%d logins, %d renewals of a token without an end", logins, renewals)
		}
	})
}

// A refused renewal leads to a login at once; one that got lost is tried again.
func TestFailedRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failure error
		s := &fakeServer{}
		s.answer = func(path, token string, _ any) (*vault.Answer, error) {
			if path == "auth/token/renew-self" {
				if failure != nil {
					return nil, failure
				}
				return given(token, 600, true)
			}
			return given(fmt.Sprintf("t%d", s.logins), 600, true)
		}
		a := started(t, s, nil)
		synctest.Wait()
		s.mu.Lock()
		failure = errors.New("connection refused")
		s.mu.Unlock()
		time.Sleep(500 * time.Second) // renewals begin at 360 to 480 s
		logins, renewals := s.count()
		if logins != 1 || renewals < 2 {
			t.Errorf("%d logins, %d renewals while the server is away", logins, renewals)
		}
		s.mu.Lock()
		failure = &vault.Error{Status: 403}
		s.mu.Unlock()
		time.Sleep(31 * time.Second)
		if token(a) != "t2" {
			t.Errorf("token %q after a refusal", token(a))
		}
	})
}

// Failed logins are tried again with growing pauses, and exit_on_err ends with the first.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(string, string, any) (*vault.Answer, error) { return nil, errors.New("away") }}
		started(t, s, nil)
		time.Sleep(time.Hour)
		if logins, _ := s.count(); logins < 60 || logins > 250 {
			t.Errorf("%d logins in an hour with pauses up to a minute", logins)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(string, string, any) (*vault.Answer, error) { return given("t", 1, false) }}
		started(t, s, nil)
		time.Sleep(time.Minute)
		if logins, _ := s.count(); logins > 80 {
			t.Errorf("%d logins in a minute for tokens of a second", logins)
		}
	})
	cfg := Config{Auth: agentconfig.AutoAuth{Method: agentconfig.Method{Type: "token_file", ExitOnError: true,
		Config: map[string]string{"token_file_path": filepath.Join(t.TempDir(), "none")}}}}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "config.token_file_path") {
		t.Error(err)
	}
}

// Sinks get the token with their rights, plain or wrapped; one that fails is tried again and holds nothing up.
func TestSinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := &fakeServer{answer: func(string, string, any) (*vault.Answer, error) { return given("t1", 0, false) }}
		a := started(t, s, func(c *Config) {
			c.Auth.Sinks = []agentconfig.Sink{{Path: filepath.Join(dir, "plain"), Mode: 0o640},
				{Path: filepath.Join(dir, "wrapped"), Mode: 0o600, WrapTTL: 90 * time.Second},
				{Path: filepath.Join(dir, "later", "plain"), Mode: 0o600}}
		})
		time.Sleep(10 * time.Second)
		for name, want := range map[string]string{"plain": "t1", "wrapped": `{"token":"wrapped-90s"`} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !strings.HasPrefix(string(text), want) {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
		if info, err := os.Stat(filepath.Join(dir, "plain")); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%v, %v", info, err)
		}
		select {
		case <-a.Delivered():
			t.Error("delivered without the third")
		default:
		}
		if err := os.Mkdir(filepath.Join(dir, "later"), 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		<-a.Delivered()
		if list, err := filepath.Glob(filepath.Join(dir, "*", ".*")); err != nil || len(list) > 0 {
			t.Errorf("left over: %v, %v", list, err)
		}
	})
}

// A secret ID is removed once read, kept for later logins, and a wrapped one is opened only if it was made at the right
// place.
func TestSecretIDs(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	role := filepath.Join(dir, "role")
	if err := os.WriteFile(role, []byte("r"), 0o600); err != nil {
		t.Fatal(err)
	}
	var sent []any
	s := &fakeServer{}
	s.answer = func(path, token string, body any) (*vault.Answer, error) {
		switch path {
		case "sys/wrapping/lookup":
			return &vault.Answer{Data: map[string]any{"creation_path": "auth/approle/role/app/secret-id"}}, nil
		case "sys/wrapping/unwrap":
			return &vault.Answer{Data: map[string]any{"secret_id": "opened-by-" + token}}, nil
		}
		sent = append(sent, body)
		return given("t", 60, false)
	}
	made := func(place string) method {
		cfg := &Config{Auth: agentconfig.AutoAuth{Method: agentconfig.Method{Type: "approle", MountPath: "auth/approle",
			Config: map[string]string{"role_id_file_path": role, "secret_id_file_path": secret,
				"secret_id_response_wrapping_path": place}}},
			connect: func(token, wrap string) (server, error) { return &fakeClient{s, token, wrap}, nil }}
		m, err := newMethod(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	write("s1\n")
	m := made("")
	for range 2 {
		if _, err := m.login(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(secret); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file stays: %v", err)
	}
	if got := fmt.Sprint(sent); got != "[map[role_id:r secret_id:s1] map[role_id:r secret_id:s1]]" {
		t.Error(got)
	}
	write("wrapping")
	if _, err := made("auth/other/secret-id").login(t.Context(), ""); err == nil ||
		!strings.Contains(err.Error(), "has somebody exchanged it?") {
		t.Error(err)
	}
	write("wrapping")
	sent = nil
	m = made("auth/approle/role/app/secret-id")
	for range 2 { // the second time it is known
		if _, err := m.login(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(sent[1]); got != "map[role_id:r secret_id:opened-by-wrapping]" {
		t.Error(got)
	}
}

// A new JWT in its file leads to a login while the former token still lives.
func TestNewJWT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jwt")
		put := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Error(err)
			}
		}
		put("one")
		s := &fakeServer{}
		s.answer = func(_, _ string, body any) (*vault.Answer, error) {
			return given("for-"+body.(map[string]string)["jwt"], 3600, false)
		}
		a := started(t, s, func(c *Config) {
			c.Auth.Method.Type, c.Auth.Method.MountPath = "jwt", "auth/jwt"
			c.Auth.Method.Config = map[string]string{"path": path, "role": "app"}
		})
		time.Sleep(10 * time.Second)
		if token(a) != "for-one" {
			t.Errorf("token %q", token(a))
		}
		put("two")
		time.Sleep(5 * time.Second)
		if token(a) != "for-two" {
			t.Errorf("token %q", token(a))
		}
	})
}
