package flight

import (
	"testing"
	"time"
)

// Steps are small beside requests, and larger where they wait for something else.
func TestNextStep(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		what          string
		size          int
		planned, took time.Duration
		beside        bool
		next          int
		pause         time.Duration
	}{
		{"nobody asks", EndBeside, ms / 2, ms, false, EndAtOnce, 0},
		{"requests come", EndAtOnce, 2 * ms, 4 * ms, true, EndBeside, restMost},
		{"a short step", EndBeside, ms / 8, ms / 4, true, EndBeside, ms / 2},
		{"a slow disk", EndBeside, ms / 2, 11 * ms, true, 2 * EndBeside, 0},
		{"a slow disk, much at once", 400, 3 * ms, 20 * ms, true, EndAtOnce, 0},
		{"a busy processor", EndBeside, 4 * ms, 9 * ms, true, EndBeside, restMost},
	} {
		if next, pause := nextStep(c.size, c.planned, c.took, c.beside); next != c.next || pause != c.pause {
			t.Errorf("%s: %d after %v, want %d after %v", c.what, next, pause, c.next, c.pause)
		}
	}
}
