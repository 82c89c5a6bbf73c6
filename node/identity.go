package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"corbel.dev/corbel/kit/vfs"
)

// nodeIDFile keeps the node's id in the data directory.
const nodeIDFile = "node-id"

// nodeID returns the configured id, or the one kept in dir, which is made at
// the first start. Without a dir it is new each time.
func nodeID(fsys vfs.FS, dir, configured string) (string, error) {
	if configured != "" {
		return strings.ToLower(configured), nil
	}
	if dir == "" {
		return newUUID(), nil
	}
	path := filepath.Join(dir, nodeIDFile)
	data, err := vfs.ReadFile(fsys, path)
	switch {
	case err == nil:
		id := strings.TrimSpace(string(data))
		if len(id) != 36 {
			return "", fmt.Errorf("%s: holds %q, which is no UUID; delete the file to get a new id", path, id)
		}
		return id, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read the node id: %w", err)
	}
	id := newUUID()
	if err := vfs.WriteFileAtomic(fsys, path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the node id: %w", err)
	}
	return id, nil
}

// newUUID returns a random UUID, version 4 (RFC 9562).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// nowForLog stamps lines that the log makes about itself.
func nowForLog() time.Time { return time.Now() }
