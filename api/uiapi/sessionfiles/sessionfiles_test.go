package sessionfiles

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"corbel.dev/corbel/kit/vfs"
)

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ui-sessions")
	f := &Files{Dir: dir, FS: vfs.OS{}, Log: slog.New(slog.DiscardHandler)}
	if got := f.Load(); len(got) != 0 {
		t.Fatalf("at first %q", got)
	}
	f.Put("a", []byte("one"))
	f.Put("b", []byte("two"))
	f.Put("a", []byte("three"))
	f.Drop("b")
	f.Drop("nobody")
	// A crash left this.
	if err := os.WriteFile(filepath.Join(dir, "c"+vfs.TempSuffix), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, maxBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := f.Load(); len(got) != 1 || string(got["a"]) != "three" {
		t.Errorf("kept: %q", got)
	}
	info, err := os.Stat(filepath.Join(dir, "a"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "c"+vfs.TempSuffix)); !os.IsNotExist(err) {
		t.Errorf("what a crash left: %v", err)
	}
}
