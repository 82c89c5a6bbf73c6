package fault

import (
	"encoding/json"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"corbel.dev/corbel/kit/vfs"
)

// TestPower: what an armed process wrote and did not sync is gone after a power loss, and what it synced is there.
func TestPower(t *testing.T) {
	dir := t.TempDir()
	root, side := filepath.Join(dir, "data"), filepath.Join(dir, "data.power")
	script, err := json.Marshal([]Command{{Do: DoPower, Name: side, Glob: root}})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	in, err := newInjector(theirs, string(script))
	if err != nil {
		t.Fatal(err)
	}
	disk := in.FS()
	if err := disk.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(disk, filepath.Join(root, "synced"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := disk.Create(filepath.Join(root, "written"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("b")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := in.apply(Command{Do: DoPower, Name: side, Glob: root}); err == nil {
		t.Error("a running process, which has files open, got another disk")
	}
	lost := uint64(0)
	for ; rand.New(rand.NewPCG(lost, 0)).IntN(2) != 1; lost++ { // a seed that keeps nothing
	}
	if err := vfs.LosePower(side, rand.New(rand.NewPCG(lost, 0))); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(root, "synced")); err != nil || string(data) != "a" {
		t.Errorf("what was synced is %q, %v", data, err)
	}
	if _, err := os.Stat(filepath.Join(root, "written")); !os.IsNotExist(err) {
		t.Errorf("what was not synced is there: %v", err)
	}
}
