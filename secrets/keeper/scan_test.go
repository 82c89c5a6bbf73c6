package keeper

import (
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// TestScan: all below a folder, by a capability of its own, cut as lists are.
func TestScan(t *testing.T) {
	h := newHouse(t)
	for _, path := range []string{"secret/a", "secret/b/c", "secret/b/d/e", "secret/b/d/f", "kv2/data/x/y", "kv2/data/z"} {
		body := `{"v":1}`
		if strings.HasPrefix(path, "kv2") {
			body = `{"data":{"v":1}}`
		}
		h.ok(secrets.Update, path, body)
	}
	for path, want := range map[string]string{"secret/": `["a","b/c","b/d/e","b/d/f"]`, "secret/b/": `["c","d/e","d/f"]`,
		"kv2/metadata/": `["x/y","z"]`} {
		if r := h.ok(secrets.Scan, path, ""); string(r.Data) != `{"keys":`+want+`}` {
			t.Errorf("%s: %s", path, r.Data)
		}
	}
	h.refused(errkind.NotFound, h.root, secrets.Scan, "secret/none/", "")
	h.refused(errkind.Conflict, h.root, secrets.Scan, "sys/mounts/", "")
	h.ok(secrets.Update, "sys/policies/acl/lists", `{"policy":"path \"secret/*\" { capabilities = [\"list\"] }"}`)
	h.ok(secrets.Update, "sys/policies/acl/scans", `{"policy":"path \"secret/b/*\" { capabilities = [\"scan\"] }"}`)
	h.refused(errkind.Denied, h.token(`{"policies":["lists"]}`), secrets.Scan, "secret/b/", "")
	scans := h.token(`{"policies":["scans"]}`)
	h.refused(errkind.Denied, scans, secrets.Scan, "secret/", "")
	if _, err := h.as(scans, secrets.Scan, "secret/b/", ""); err != nil {
		t.Error(err)
	}
	q := &secrets.Request{Op: secrets.Scan, Path: "secret/", Caller: secrets.Caller{Token: h.root},
		Query: secrets.FieldsOf(map[string]any{"after": "a", "limit": "2"})}
	if r, err := h.Handle(t.Context(), q); err != nil || string(r.Data) != `{"keys":["b/c","b/d/e"]}` {
		t.Errorf("a page: %v, %v", r, err)
	}
}

// TestReloadPlugin: engines are made anew and keep what is stored.
func TestReloadPlugin(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "secret/a", `{"v":1}`)
	const at = "sys/plugins/reload/backend"
	h.ok(secrets.Update, "sys/mounts/keys", `{"type":"transit"}`)
	own := func() any { return h.gate.Load().Engines[h.gate.Load().Mounts.Get("keys/").Accessor] }
	before := own()
	h.ok(secrets.Update, at, `{"mounts":["keys/"]}`)
	if own() == before {
		t.Error("the engine is the former one")
	}
	h.ok(secrets.Update, at, `{"plugin":"kv"}`)
	h.ok(secrets.Read, "secret/a", "")
	for _, body := range []string{`{}`, `{"plugin":"kv","mounts":["secret"]}`, `{"mounts":["none"]}`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, at, body)
	}
	h.ok(secrets.Update, "sys/policies/acl/plain", `{"policy":"path \"sys/*\" { capabilities = [\"update\"] }"}`)
	h.refused(errkind.Denied, h.token(`{"policies":["plain"]}`), secrets.Update, at, `{"plugin":"kv"}`)
}

// TestHelp: what may be done at a mount's paths, for whoever has a token.
func TestHelp(t *testing.T) {
	h := newHouse(t)
	help := func(token, path string) (string, error) {
		out, err := h.Help(t.Context(), &secrets.Request{Op: secrets.Read, Path: path, Caller: secrets.Caller{Token: token}})
		text, _ := out["help"].(string)
		return text, err
	}
	for path, want := range map[string]string{"kv2/": "data/{path}\n        read, update, delete, patch",
		"kv2": "metadata/{path}", "kv2/data/some/thing": "data/{path}",
		"auth/token/create/x": "create/{role}\n        update", "sys/mounts/a/tune": "mounts/{path}"} {
		if text, err := help(h.root, path); err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v\n%s", path, err, text)
		}
	}
	if text, _ := help(h.root, "kv2/data/x"); strings.Contains(text, "metadata/") {
		t.Errorf("help of a path tells of others:\n%s", text)
	}
	for path, kind := range map[string]errkind.Kind{"none/x": errkind.NotFound, "kv2/none": errkind.NotFound} {
		if _, err := help(h.root, path); !errkind.Is(err, kind) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := help("", "kv2"); !errkind.Is(err, errkind.Denied) {
		t.Errorf("without a token: %v", err)
	}
}
