package snapstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func put(t *testing.T, to Target, name, text string) {
	t.Helper()
	if err := to.Put(t.Context(), name, strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatalf("Put %s: %v", name, err)
	}
}

func list(t *testing.T, of Target) []string {
	t.Helper()
	names, err := of.List(t.Context())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	slices.Sort(names)
	return names
}

// keepsAndPrunes is what every target must do.
func keepsAndPrunes(t *testing.T, to Target) {
	t.Helper()
	base := time.Unix(0, 999_999_999_999_999_998) // ids grow a digit on the way
	var names []string
	for i := range 5 {
		name, _ := Name("consul", base.Add(time.Duration(i)))
		names = append(names, name)
		put(t, to, name, "archive")
	}
	others := []string{"consul-old.snap", "consul-12.snap.partial", "consul-012.snap", "nightly-1.snap", "README"}
	for _, name := range others {
		put(t, to, name, "not ours")
	}
	gone, err := Prune(t.Context(), to, "consul", 2)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(gone)
	wantGone := slices.Sorted(slices.Values(names[:3]))
	if !slices.Equal(gone, wantGone) {
		t.Errorf("Prune deleted %q, want %q", gone, wantGone)
	}
	want := slices.Sorted(slices.Values(append(slices.Clone(names[3:]), others...)))
	if left := list(t, to); !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
	if gone, err := Prune(t.Context(), to, "consul", 0); err != nil || len(gone) != 1 {
		t.Errorf("Prune to 0 deleted %q, %v; the newest always stays", gone, err)
	}
	if err := to.Delete(t.Context(), names[0]); err != nil {
		t.Errorf("Delete of what is not there: %v", err)
	}
}

func newFolder(t *testing.T) (*Folder, string) {
	t.Helper()
	path := t.TempDir()
	d, err := NewFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	return d, path
}

func TestFolder(t *testing.T) {
	d, path := newFolder(t)
	keepsAndPrunes(t, d)
	put(t, d, "a.snap", "text")
	text, err := os.ReadFile(filepath.Join(path, "a.snap"))
	info, statErr := os.Stat(filepath.Join(path, "a.snap"))
	if err != nil || statErr != nil || string(text) != "text" || info.Mode().Perm() != 0o600 {
		t.Errorf("a.snap: %q %v %v, mode %v", text, err, statErr, info.Mode())
	}
	for _, name := range []string{"../a", "b/c"} {
		if err := errors.Join(d.Put(t.Context(), name, strings.NewReader(""), 0)); err == nil {
			t.Errorf("Put took the name %q", name)
		}
		if err := d.Delete(t.Context(), name); err == nil {
			t.Errorf("Delete took the name %q", name)
		}
	}
	if _, err := NewFolder(filepath.Join(path, "nowhere")); err == nil {
		t.Error("a folder that is not there was taken")
	}
	if _, err := NewFolder(filepath.Join(path, "a.snap")); err == nil {
		t.Error("a file was taken for a folder")
	}
}

// broken fails after some bytes.
type broken struct{ *bytes.Reader }

func (b broken) Read(p []byte) (int, error) {
	if b.Len() < 4 {
		return 0, errors.New("broken off")
	}
	return b.Reader.Read(p[:min(len(p), 4)])
}

// TestFolderKeepsNoHalves: whatever ends a Put leaves neither the name nor a part.
func TestFolderKeepsNoHalves(t *testing.T) {
	d, path := newFolder(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{
		"a broken archive": d.Put(t.Context(), "a.snap", broken{bytes.NewReader([]byte("0123456789"))}, 10),
		"a short archive":  d.Put(t.Context(), "a.snap", strings.NewReader("0123"), 10),
		"an ended context": d.Put(ended, "a.snap", strings.NewReader("0123"), 4),
	} {
		if err == nil {
			t.Errorf("%s was kept", what)
		}
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

// TestFolderSweeps: what a crash left goes away when it is old, and is never listed.
func TestFolderSweeps(t *testing.T) {
	d, path := newFolder(t)
	old, fresh := filepath.Join(path, ".snapshot-1.partial"), filepath.Join(path, ".snapshot-2.partial")
	for _, name := range []string{old, fresh} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Now().Add(-2 * abandonedAfter)
	if err := os.Chtimes(old, then, then); err != nil {
		t.Fatal(err)
	}
	if names := list(t, d); len(names) != 0 {
		t.Errorf("listed: %q", names)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("an abandoned part is still there")
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("a part on its way was removed: %v", err)
	}
}

// failing is a target that deletes nothing named here.
type failing struct {
	Target
	name string
}

func (f failing) Delete(ctx context.Context, name string) error {
	if name == f.name {
		return io.ErrUnexpectedEOF
	}
	return f.Target.Delete(ctx, name)
}

func TestPruneGoesOn(t *testing.T) {
	d, _ := newFolder(t)
	for _, name := range []string{"c-1.snap", "c-2.snap", "c-3.snap"} {
		put(t, d, name, "x")
	}
	gone, err := Prune(t.Context(), failing{d, "c-2.snap"}, "c", 1)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !slices.Equal(gone, []string{"c-1.snap"}) {
		t.Errorf("deleted %q, %v", gone, err)
	}
}
