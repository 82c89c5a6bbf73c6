package ws

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// A peer that pings and takes no pong is cut off at the bound of what waits for it.
func TestPingsWithoutEnd(t *testing.T) {
	read := make(chan error, 1)
	nc := talk(t, nil, func(c *Conn) { _, err := c.Read(nil); read <- err })
	_ = nc.SetWriteDeadline(time.Now().Add(polltest.Deadline))
	pings := bytes.Repeat(append([]byte{0x89, 0x80 | 125, 0, 0, 0, 0}, make([]byte, 125)...), 500)
	for {
		if _, err := nc.Write(pings); err != nil {
			break
		}
	}
	if err := polltest.Get(t, read, "the reader's end"); !errors.Is(err, ErrSlow) {
		t.Fatal(err)
	}
}
