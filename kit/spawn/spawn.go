// Package spawn holds what drivers of processes share: benches, the lab and the fault tests start servers, keep the
// end of what they print, and want none to outlive them.
package spawn

import (
	"bytes"
	"sync"
)

// Tail keeps the end of what a child prints, for error messages. Its zero value keeps tailBytes. Several goroutines
// may use it at once.
type Tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
}

const tailBytes = 64 << 10

// Write implements io.Writer; it never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailBytes {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailBytes:]...)
	}
	return len(p), nil
}

// String is the end of it, without white space around.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
