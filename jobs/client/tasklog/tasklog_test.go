package tasklog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func read(t *testing.T, c *Cursor) string {
	t.Helper()
	var all strings.Builder
	for {
		piece, err := c.Next(make([]byte, 7))
		if err != nil {
			t.Fatal(err)
		}
		if len(piece.Data) == 0 {
			return all.String()
		}
		all.Write(piece.Data)
	}
}

// TestRotation: what is kept is read as one stream, from any place, also while it grows.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(dir, "web.stdout", Limits{MaxFiles: 3, MaxFileBytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	early, err := Open(dir, "web.stdout", 0, false)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	write("0123456789abcde")
	if got := read(t, early); got != "0123456789abcde" {
		t.Errorf("follows %q", got)
	}
	write("fghijklmnopqrstuvwxyz") // 36 in four files: the first goes
	if got := read(t, early); got != "fghijklmnopqrstuvwxyz" {
		t.Errorf("follows %q", got)
	}
	for _, c := range []struct {
		offset int64
		end    bool
		want   string
	}{{0, false, "abcdefghijklmnopqrstuvwxyz"}, {12, false, "mnopqrstuvwxyz"}, {4, true, "wxyz"},
		{1000, true, "abcdefghijklmnopqrstuvwxyz"}, {1000, false, ""}} {
		at, err := Open(dir, "web.stdout", c.offset, c.end)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, at); got != c.want {
			t.Errorf("from %d: %q, want %q", c.offset, got, c.want)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w, err = NewWriter(dir, "web.stdout", Limits{MaxFiles: 3, MaxFileBytes: 10}); err != nil {
		t.Fatal(err)
	}
	write("!")
	if text, err := os.ReadFile(dir + "/web.stdout.3"); string(text) != "uvwxyz!" {
		t.Errorf("a writer goes on with %q, %v", text, err)
	}
	_ = w.Close()
}

// TestLinks: a link that a task made is not followed out of the folder, neither to write nor to read.
func TestLinks(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(dir, "web.stdout", Limits{MaxFiles: 3, MaxFileBytes: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "web.stdout.1")); err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("12345678")); n != 8 || err != nil {
		t.Error(n, err)
	}
	if text, _ := os.ReadFile(outside); string(text) != "secret" {
		t.Errorf("the file outside is %q", text)
	}
	at, err := Open(dir, "web.stdout", 0, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, at); got != "1234" {
		t.Errorf("%q", got)
	}
	_ = w.Close()
}
