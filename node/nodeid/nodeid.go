// Package nodeid gives a node the id by which its cluster knows it for as long as its data directory lives. An id that
// cannot be read is an error and never a new one: the cluster would take the node for another.
package nodeid

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/vfs"
)

// file keeps the node's id in the data directory.
const file = "node-id"

// Of returns the configured id, or the one kept in dir, which is made at
// the first start: from the machine's own when fromMachine is set, else by chance. Without a
// dir it is made each time.
func Of(fsys vfs.FS, dir, configured string, fromMachine bool) (string, error) {
	if configured != "" {
		return strings.ToLower(configured), nil
	}
	if dir == "" {
		return makeID(fromMachine), nil
	}
	path := filepath.Join(dir, file)
	data, err := vfs.ReadDurable(fsys, path)
	switch {
	case err == nil:
		id := strings.TrimSpace(string(data))
		if !Valid(id) {
			return "", fmt.Errorf("%s: holds %q, which is no UUID; put the id that this server had back, or delete the file "+
				"to get a new one", path, id)
		}
		return id, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read the node id: %w", err)
	}
	id := makeID(fromMachine)
	if err := vfs.WriteFileAtomic(fsys, path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the node id: %w", err)
	}
	return id, nil
}

// Valid reports whether id has the form that uuidOf gives; a damaged file shall not make a new member.
func Valid(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i, c := range []byte(id) {
		isHex := c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
		isDash := i == 8 || i == 13 || i == 18 || i == 23
		if isDash != (c == '-') || !isDash && !isHex {
			return false
		}
	}
	return true
}

// makeID makes an id for this host.
func makeID(fromMachine bool) string {
	if fromMachine {
		if data, err := os.ReadFile("/etc/machine-id"); err == nil && len(data) >= 32 {
			sum := sha256.Sum256(append([]byte("corbel node id "), data...)) // what the machine's id is may not be told
			return uuidOf([16]byte(sum[:16]))
		}
	}
	return uuid.NewString()
}

func uuidOf(b [16]byte) string {
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
