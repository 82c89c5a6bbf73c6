package ui_test

import (
	"os/exec"
	"testing"

	"github.com/dop251/goja"
)

// TestFollows tries what a tab follows and is told, as a state machine and without a browser: each function of
// src/lib/follows.test.ts returns what is wrong.
func TestFollows(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "run", "-C", "../tools", "./uibuild", "-script",
		"src/lib/follows.test.ts", "../ui")
	source, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	vm := goja.New()
	if _, err := vm.RunScript("follows.test.ts", string(source)); err != nil {
		t.Fatal(err)
	}
	tests := vm.Get("script").ToObject(vm)
	call := func(t *testing.T, name string, args ...goja.Value) {
		t.Helper()
		f, ok := goja.AssertFunction(tests.Get(name))
		if !ok {
			t.Fatalf("there is no function %s", name)
		}
		wrong, err := f(goja.Undefined(), args...)
		if err != nil {
			t.Fatal(err)
		}
		if wrong.String() != "" {
			t.Errorf("%s: %s", name, wrong)
		}
	}
	for _, name := range []string{"back", "again", "second", "quiet", "many"} {
		t.Run(name, func(t *testing.T) { call(t, name) })
	}
	t.Run("life", func(t *testing.T) {
		for seed := range 50 {
			call(t, "life", vm.ToValue(seed))
		}
	})
}
