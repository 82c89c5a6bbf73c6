package wire

import (
	"fmt"
	"io"
)

// headerBytes: protocol, group. Fixed, so that sorting a connection costs one read.
const headerBytes = 2

// readHeader takes exactly the header off r: what follows belongs to the owner.
func readHeader(r io.Reader) (Protocol, uint8, error) {
	var b [headerBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, 0, fmt.Errorf("reading the connection header: %w", err)
	}
	return Protocol(b[0]), b[1], nil
}
