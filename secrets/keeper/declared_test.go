package keeper

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// Devices of the configuration are there from the unsealing on, change and go with it, and are not the API's to
// disable.
func TestDeclaredAudits(t *testing.T) {
	h := newHouse(t)
	h.audits.Config.Rules.Folder = t.TempDir()
	t.Cleanup(h.Seal)
	dir := t.TempDir()
	file := func(name string) audit.Config {
		return audit.Config{Path: "declared/", Type: "file",
			Options: map[string]string{"file_path": filepath.Join(dir, name)}}
	}
	again := func(list ...audit.Config) {
		t.Helper()
		h.audits.Config.Declared = list
		h.Seal()
		h.unseal()
	}
	h.ok(secrets.Update, "sys/audit/own", text(t,
		map[string]any{"type": "file", "options": map[string]string{"file_path": filepath.Join(h.audits.Config.Rules.Folder,
			"own")}}))
	again(file("one"))
	h.ok(secrets.Update, "secret/a", `{"password":"s3cret-value"}`)
	lines := func(name string) int { // what one of several devices has not written yet comes later
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return 0
		}
		return len(logged(t, filepath.Join(dir, name), "s3cret-value"))
	}
	polltest.Until(t, func() bool { return lines("one") >= 2 }, "the declared device to write")
	h.refused(errkind.Invalid, h.root, secrets.Delete, "sys/audit/declared", "")
	hash := func() string { return string(h.ok(secrets.Update, "sys/audit-hash/declared", `{"input":"x"}`).Data) }
	before := hash()
	again(file("two"))
	h.ok(secrets.Read, "secret/a", "")
	if now := hash(); now != before {
		t.Errorf("a changed device hashes to %s, formerly %s", now, before)
	}
	polltest.Until(t, func() bool { return lines("two") >= 2 }, "the changed device to write")
	again(file("two"), audit.Config{Path: "own/", Type: "file", Options: map[string]string{"file_path": "discard"}})
	h.refused(errkind.Invalid, h.root, secrets.Delete, "sys/audit/own", "")
	if err := h.DeclareAudits(t.Context(), []audit.Config{{Path: "x/", Type: "none"}}); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a wrong device at a reload: %v", err)
	}
	// without a seal
	for _, list := range [][]audit.Config{{file("three")},
		{file("three"), {Path: "own/", Type: "file", Options: map[string]string{"file_path": "discard"}}}} {
		if err := h.DeclareAudits(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		h.ok(secrets.Read, "secret/a", "")
	}
	polltest.Until(t, func() bool { return lines("three") >= 4 }, "the device of the reload to write on")
	if now := hash(); now != before {
		t.Errorf("a device changed by a reload hashes to %s, formerly %s", now, before)
	}
	again()
	if r := h.ok(secrets.Read, "sys/audit", ""); strings.Contains(string(r.Data), "declared/") ||
		strings.Contains(string(r.Data), "own/") {
		t.Errorf("after they were taken out: %s", r.Data)
	}
	for _, bad := range [][]audit.Config{{{Path: "x/", Type: "none"}}, {{Path: "x/", Type: "file"}},
		{file("a"), file("b")}, {{Path: "x/", Type: "file", Options: map[string]string{"file_path": "stdout",
			"colour": "red"}}}} {
		if _, err := newKeeper(Config{Storage: memstore.New(), Audits: bad}); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), "audit") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
