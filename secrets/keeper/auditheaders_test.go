package keeper

import (
	"path/filepath"
	"slices"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// TestAuditedHeaders: headers are recorded as they are asked for, clear or hashed, and outlive a seal.
func TestAuditedHeaders(t *testing.T) {
	h := newHouse(t)
	h.audits.Config.Rules.Folder = t.TempDir()
	t.Cleanup(h.Seal)
	log := filepath.Join(h.audits.Config.Rules.Folder, "log")
	const at = "sys/config/auditing/request-headers"
	h.refused(errkind.Invalid, h.root, secrets.Read, at+"/X-None", "")
	h.refused(errkind.Invalid, h.root, secrets.Update, at+"/X-Vault-Token", `{"hmac":false}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, at+"/a b", "")
	h.refused(errkind.Denied, h.token(`{"policies":["default"]}`), secrets.Read, at, "")
	h.ok(secrets.Update, at+"/X-Clear", "")
	h.ok(secrets.Update, at+"/X-Hidden", `{"hmac":true}`)
	h.ok(secrets.Update, at+"/X-Gone", "")
	h.ok(secrets.Delete, at+"/x-gone", "")
	if h.AuditsHeaders() {
		t.Error("headers are recorded without a device")
	}
	h.ok(secrets.Update, "sys/audit/file", text(t,
		map[string]any{"type": "file", "options": map[string]string{"file_path": log}}))
	h.Seal()
	h.unseal()
	var names []string
	h.AuditedHeaders(func(name string) { names = append(names, name) })
	slices.Sort(names)
	if !slices.Equal(names, []string{"x-clear", "x-hidden"}) || !h.AuditsHeaders() {
		t.Fatalf("headers: %q", names)
	}
	if r := h.ok(secrets.Read, at+"/X-HIDDEN", ""); string(r.Data) != `{"x-hidden":{"hmac":true}}` {
		t.Errorf("one of them: %s", r.Data)
	}
	if r := h.ok(secrets.Read, at, ""); string(
		r.Data) != `{"headers":{"x-clear":{"hmac":false},"x-hidden":{"hmac":true}}}` || !r.Hoisted(at) {
		t.Errorf("all of them: %s", r.Data)
	}
	q := &secrets.Request{Op: secrets.Read, Path: "auth/token/lookup-self", Caller: secrets.Caller{Token: h.root},
		Origin: secrets.Origin{Headers: map[string][]string{"x-clear": {"seen"}, "x-hidden": {"s3cret"}}}}
	if _, err := h.Handle(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	lines := logged(t, log, "s3cret")
	last := lines[len(lines)-1]
	if got, _ := inside(last, "request", "headers", "x-clear").([]any); len(got) != 1 || got[0] != "seen" {
		t.Errorf("the entry's headers: %v", inside(last, "request", "headers"))
	}
}
