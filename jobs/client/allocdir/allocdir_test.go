//go:build unix

package allocdir

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"corbel.dev/corbel/kit/errkind"
)

// TestStaysInside: neither dots nor links lead out, or to secrets; a pipe does not block.
func TestStaysInside(t *testing.T) {
	parent := t.TempDir()
	d, err := Build(parent, "a1", []string{"web"})
	if err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(d.Path, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("alloc/data/x", "inside")
	put("web/secrets/token", "secret")
	put("../outside", "outside")
	for link, to := range map[string]string{"web/local/out": "../../../outside", "web/local/abs": "/etc/passwd",
		"web/local/tok": "../secrets/token", "web/local/sec": "../secrets", "web/local/in": "../../alloc/data/x"} {
		if err := os.Symlink(to, filepath.Join(d.Path, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(d.Path, "web/local/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]errkind.Kind{
		"alloc/data/x": 0, "/alloc/data/x": 0, "web/local/in": 0, "/": 0, "alloc/none": errkind.NotFound,
		"../outside": errkind.Denied, "alloc/../../outside": errkind.Denied, "web/local/out": errkind.Denied,
		"web/local/abs": errkind.Denied, "web/local/tok": errkind.Denied, "web/secrets/token": errkind.Denied,
		"web/secrets": errkind.Denied, "web/local/sec/token": errkind.Denied, "web/local/pipe": errkind.Denied,
	} {
		f, err := d.Open(name)
		if err == nil {
			text, _ := io.ReadAll(f)
			_ = f.Close()
			if want != 0 {
				t.Errorf("%s is read: %q", name, text)
			}
		} else if !errkind.Is(err, want) || want == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	list, err := d.List("web")
	if err != nil || len(list) != 3 {
		t.Error(list, err)
	}
	if e, err := d.Stat("alloc/data/x"); err != nil || e.Size != 6 || e.IsDir {
		t.Error(e, err)
	}
	for _, name := range []string{"", "..", "alloc", "a/b"} {
		if _, err := Build(parent, "a2", []string{name}); err == nil {
			t.Errorf("a task is called %q", name)
		}
	}
	if d.Usage(100) < 12 {
		t.Error(d.Usage(100))
	}
}

// TestTakeOver: a successor has the data of an older allocation.
func TestTakeOver(t *testing.T) {
	parent := t.TempDir()
	old, err := Build(parent, "a1", []string{"web", "gone"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alloc/data/x", "web/local/y", "web/secrets/z"} {
		if err := os.WriteFile(filepath.Join(old.Path, name), []byte("kept"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	next, err := Build(parent, "a2", []string{"web", "fresh"})
	if err == nil {
		err = next.TakeOver(old, []string{"web", "fresh"})
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, there := range map[string]bool{"alloc/data/x": true, "web/local/y": true, "web/secrets/z": false} {
		if _, err := os.Stat(filepath.Join(next.Path, name)); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}
