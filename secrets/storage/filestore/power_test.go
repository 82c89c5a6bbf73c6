package filestore

import (
	"context"
	"fmt"
	"testing"

	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/vfs/powertest"
)

// powerStore does the steps of the script.
type powerStore struct{ *Store }

func openPowerStore(fsys vfs.FS) (powertest.Store, error) {
	s, err := Open(Config{Dir: "/s", FS: fsys, JournalBytes: 512})
	return powerStore{s}, err
}

// Step implements powertest.Store.
func (p powerStore) Step(n int) error { return p.Commit(context.Background(), 0, step(n)) }

// Have implements powertest.Store.
func (p powerStore) Have() (int, error) {
	last, ok, err := p.Get(context.Background(), "last")
	n := 0
	if ok {
		_, err = fmt.Sscanf(string(last), "%d ", &n)
	}
	if err != nil {
		return 0, err
	}
	return n, checkSteps(p.Store, n, n)
}

// TestPower: what the store serves is on the disk, whatever fsync failed and whenever the process was killed before
// the power loss.
func TestPower(t *testing.T) {
	powertest.Run(t, powertest.Kind{Open: openPowerStore, Steps: 16})
}
