package keptlogin

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLogin(t *testing.T) {
	dir := t.TempDir()
	env := func(name string) string { return map[string]string{"HOME": dir}[name] }
	nowhere := func(string) string { return "" }
	want := Login{Token: "secret"}
	if err := Keep(env, Secrets, "http://localhost:8200/", want); err != nil {
		t.Fatal(err)
	}
	for address, found := range map[string]Login{"127.0.0.1:8200": want, "http://127.0.0.1:8200": want,
		"https://127.0.0.1:8200": {}, "10.0.0.1:8200": {}} {
		if got := Of(env, Secrets, address); got != found {
			t.Errorf("%s: %+v", address, got)
		}
	}
	if got := Of(env, Monitor, "127.0.0.1:8200"); got != (Login{}) {
		t.Errorf("another plane is shown it: %+v", got)
	}
	files, err := filepath.Glob(filepath.Join(dir, ".config", "corbel", "logins", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := Forget(env, Secrets, "127.0.0.1:8200"); err != nil || Of(env, Secrets, "127.0.0.1:8200") != (Login{}) {
		t.Error(err)
	}
	if err := Forget(env, Secrets, "127.0.0.1:8200"); err != nil {
		t.Error(err)
	}
	if Keep(nowhere, Secrets, "", want) == nil || Of(nowhere, Secrets, "") != (Login{}) {
		t.Error("something was kept without a home")
	}
}
