package nodeclient

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/driver/mockdriver"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// TestMeta: metadata that is set at run time reaches the servers before the answer, hides and replaces that of the
// configuration, and is there after a restart; what is damaged is set aside.
func TestMeta(t *testing.T) {
	dir := t.TempDir()
	static := func(c *Config) {
		c.AllocDir, c.Node.Meta = "", map[string]string{"rack": "r1", "team": "a"}
	}
	ask := func(c *Client, m *noderpc.MetaAsk) (out Metadata) {
		t.Helper()
		text, err := answers{c}.meta(t.Context(), noderpc.Bytes(m))
		if err == nil {
			err = json.Unmarshal(text, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	registered := func(s *servers) map[string]string {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.register == nil {
			return nil
		}
		return s.register.Spec.Meta
	}
	s := newServers(t)
	c, stop := run(t, s, dir, static)
	want := map[string]string{"team": "b", "slot": "7"}
	got := ask(c, &noderpc.MetaAsk{Change: true, Set: want, Unset: []string{"rack", "none"}})
	if rack, ok := got.Dynamic["rack"]; !maps.Equal(got.Meta, want) || len(got.Dynamic) != 3 || !ok || rack != nil ||
		got.Static["rack"] != "r1" {
		t.Errorf("%+v", got)
	}
	if have := registered(s); !maps.Equal(have, want) {
		t.Errorf("the servers have %v", have)
	}
	if env := c.host.Node().Meta; !maps.Equal(env, want) {
		t.Errorf("tasks have %v", env)
	}
	stop()

	s = newServers(t)
	c, stop = run(t, s, dir, static)
	polltest.Until(t, func() bool { return maps.Equal(registered(s), want) }, "the metadata after a restart")
	got = ask(c, &noderpc.MetaAsk{Change: true, Set: map[string]string{"rack": "r2"}, Unset: []string{"slot"}})
	if want := map[string]string{"team": "b", "rack": "r2"}; !maps.Equal(got.Meta, want) {
		t.Errorf("%+v", got)
	}
	stop()

	file := filepath.Join(dir, "state", "meta.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, stop = run(t, newServers(t), dir, static)
	if got := ask(c, &noderpc.MetaAsk{}); len(got.Dynamic) != 0 || got.Meta["rack"] != "r1" {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(file + ".damaged"); err != nil {
		t.Error(err)
	}
	stop()
}

// TestMetaBounds: names and sizes that registrations could not carry are refused by name.
func TestMetaBounds(t *testing.T) {
	many := map[string]string{}
	for i := range maxMeta + 1 {
		many[strings.Repeat("x", i%200+1)+strings.Repeat("y", i/200)] = ""
	}
	for name, set := range map[string]map[string]string{
		"is empty":                         {"": "v"},
		`"a b": a name has letters`:        {"a b": "v"},
		"at most 256 bytes":                {strings.Repeat("x", 257): "v"},
		"metadata big has 16385 bytes":     {"big": strings.Repeat("x", maxMetaBytes+1)},
		"1001 names of dynamic metadata w": many,
	} {
		_, err := changed(nil, nil, set, nil)
		if !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := changed(nil, nil, nil, []string{"${x}"}); !errkind.Is(err, errkind.Invalid) {
		t.Error(err)
	}
}

// changing is a driver that says something else at times.
type changing struct {
	mockdriver.Driver
	now atomic.Pointer[driver.Fingerprint]
}

// Fingerprint implements driver.Driver.
func (c *changing) Fingerprint(context.Context) driver.Fingerprint { return *c.now.Load() }

// TestDriversChange: what a driver says of itself later is registered as well, also when it says again what it said
// first; nothing is where it stays the same.
func TestDriversChange(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &changing{}
		says := func(attributes map[string]string) {
			d.now.Store(&driver.Fingerprint{Detected: true, Healthy: true, Text: "Healthy", Attributes: attributes})
		}
		says(map[string]string{"driver.x": "1"})
		s := newServers(t)
		_, stop := run(t, s, dir, func(cfg *Config) {
			cfg.Drivers = map[string]driver.Driver{"x": d}
			cfg.Node.Attributes = map[string]string{"rack": "7"}
		})
		defer stop()
		registered := func() string {
			time.Sleep(lookEvery + time.Second)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			a := s.register.Spec.Attributes
			return a["rack"] + " " + a["driver.x"] + " " + a["driver.x.version"]
		}
		if got := registered(); got != "7 1 " {
			t.Errorf("at first %q", got)
		}
		says(map[string]string{"driver.x": "1", "driver.x.version": "17"})
		if got := registered(); got != "7 1 17" {
			t.Errorf("once it says its version: %q", got)
		}
		before := s.count(noderpc.MethodRegister)
		if registered(); s.count(noderpc.MethodRegister) != before {
			t.Error("it is registered again, and nothing changed")
		}
		says(map[string]string{"driver.x": "1"})
		if got := registered(); got != "7 1 " {
			t.Errorf("once it says it no longer: %q", got)
		}
	})
}
