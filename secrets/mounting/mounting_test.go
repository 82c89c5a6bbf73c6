package mounting

import (
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables/tablestest"
)

// A mount keeps its records when it moves, loses them when it goes, and lies in no other.
func TestMountsComeMoveAndGo(t *testing.T) {
	d := tablestest.New(t)
	m := New(Config{Now: d.Now}, d.Gate, d.Store)
	ask := func(op secrets.Operation, path, body string) error {
		_, err := d.Ask(t.Context(), m.Rows(), op, path, body)
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(ask(secrets.Update, "mounts/a", `{"type":"kv"}`))
	e := d.Gate.Load().Mounts.Get("a/")
	if e == nil || d.Gate.Load().Engines[e.Accessor] == nil {
		t.Fatalf("mounted: %+v", e)
	}
	for path, body := range map[string]string{"mounts/a": `{"type":"kv"}`, "mounts/a/b": `{"type":"kv"}`,
		"mounts/x": `{"type":"none"}`,
		"mounts/y": `{"type":"userpass"}`, "mounts/z": `{"type":"system"}`} {
		if err := ask(secrets.Update, path, body); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s %s: %v", path, body, err)
		}
	}
	for path, text := range map[string]string{"auth/kerberos": "oidc", "mounts/rabbitmq": "kv",
		"auth/none": "not found in the catalog: none"} {
		err := ask(secrets.Update, path, `{"type":"`+strings.SplitN(path, "/", 2)[1]+`"}`)
		if !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", path, err)
		}
	}
	must(d.Store.Commit(t.Context(), []storage.Op{storage.Put(e.Prefix()+"secret", []byte("x"))}))
	must(ask(secrets.Update, "remount", `{"from":"a","to":"b"}`))
	moved := d.Gate.Load().Mounts.Get("b/")
	if moved == nil || moved.Prefix() != e.Prefix() || d.Gate.Load().Mounts.Get("a/") != nil {
		t.Fatalf("moved: %+v", moved)
	}
	must(ask(secrets.Delete, "mounts/b", ""))
	if _, ok, err := d.Store.Get(t.Context(), e.Prefix()+"secret"); ok || err != nil {
		t.Errorf("its record is left: %t, %v", ok, err)
	}
	if err := ask(secrets.Delete, "mounts/cubbyhole", ""); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a mount of the plane's own went: %v", err)
	}
}
