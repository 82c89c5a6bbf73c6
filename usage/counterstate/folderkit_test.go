package counterstate_test

import (
	"testing"

	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/counterstate/blobstest"
)

// TestFolderKit is the kit for the folder.
func TestFolderKit(t *testing.T) {
	f, err := counterstate.NewFolder(vfs.NewMem(), "/snapshots")
	if err != nil {
		t.Fatal(err)
	}
	same := func(*testing.T) counterstate.Blobs { return f }
	blobstest.Run(t, same, same)
}
