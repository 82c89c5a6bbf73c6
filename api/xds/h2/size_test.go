package h2

import (
	"testing"
	"unsafe"
)

// TestAStreamIsACacheLine: what changes for 100,000 streams is bound by memory.
func TestAStreamIsACacheLine(t *testing.T) {
	if n := unsafe.Sizeof(Stream{}); n > 64 {
		t.Errorf("a stream has %d bytes", n)
	}
}
