package sidecars

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestMonotonicIsTheMachinesClock: two processes compare what they read, so a reading must be the kernel's own, not one
// with an offset of the process that took it.
func TestMonotonicIsTheMachinesClock(t *testing.T) {
	var before, after unix.Timespec
	for range 1000 {
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
		got := Monotonic()
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
		if got < before.Nano() || got > after.Nano() {
			t.Fatalf("Monotonic says %d between %d and %d", got, before.Nano(), after.Nano())
		}
	}
}
