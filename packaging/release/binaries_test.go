//go:build release

package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A release that is made twice, of clones in two folders, is the same in all of its bytes, and what it installs verifies
// itself by its checksums and their signature. CORBEL_TARGETS names what to build, as -targets does.
func TestMadeTwice(t *testing.T) {
	if out, err := exec.Command("git", "rev-parse", "--verify", "HEAD").CombinedOutput(); err != nil {
		skip(t, "a clone of the source is needed: "+string(out))
	}
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "release.key")
	if err := makeKey(key); err != nil {
		t.Fatal(err)
	}
	targets := []target{{runtime.GOOS, runtime.GOARCH}}
	if text := os.Getenv("CORBEL_TARGETS"); text != "" {
		if targets, err = targetsIn(text); err != nil {
			t.Fatal(err)
		}
	}
	var made [2]release
	for i, folder := range []string{"a", "somewhere/else entirely"} {
		r := &made[i]
		*r = release{source: filepath.Join(t.TempDir(), folder), out: t.TempDir(), key: key, only: []string{"binaries"},
			targets: targets}
		sh(t, "git", "clone", "--quiet", "--shared", strings.TrimSpace(string(root)), r.source)
		if err := r.make(); err != nil {
			t.Fatal(err)
		}
	}
	first, second := made[0].out, made[1].out
	files := 0
	err = fs.WalkDir(os.DirFS(first), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		var both [2][]byte
		for i, dir := range []string{first, second} {
			if both[i], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		if !bytes.Equal(both[0], both[1]) {
			t.Errorf("%s differs", name)
		}
		return nil
	})
	if want := 2*len(targets) + 3; err != nil || files != want { // sums, signature and key
		t.Errorf("%d files, %v, want %d", files, err, want)
	}

	binary := filepath.Join(first, (target{runtime.GOOS, runtime.GOARCH}).file(made[0].version))
	program, err := os.ReadFile(binary)
	if err != nil {
		skip(t, "corbel version --verify: CORBEL_TARGETS lacks this system")
	}
	changed := filepath.Join(t.TempDir(), "corbel")
	if err := os.WriteFile(changed, append(program, 0), 0o755); err != nil {
		t.Fatal(err)
	}
	sums := filepath.Join(first, sumsFile)
	verify := func(program, want string, good bool) {
		t.Helper()
		out, err := exec.Command(program, "version", "--verify", "--sums", sums, "--key",
			filepath.Join(first, "release.pub")).CombinedOutput()
		if (err == nil) != good || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s, want %q", program, err, out, want)
		}
	}
	verify(binary, "the signature is good", true)
	verify(changed, "none of the binaries of this release", false)
	text, err := os.ReadFile(sums)
	if err == nil {
		err = os.WriteFile(sums, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	verify(binary, "do not trust them", false)
}
