// Package polltest waits in tests for a state to come true, with a deadline, and
// says what it was waiting for when it does not. It replaces sleeping.
//
// It polls every few milliseconds, less often what takes long to ask, in the
// test's own goroutine, and starts none.
package polltest

import (
	"fmt"
	"testing"
	"time"
)

// Deadline is how long Until waits: beyond what a loaded machine needs. A cluster of three under the race detector,
// beside the builds and tests of four others on two cores, was not ready in 45 s.
const Deadline = 90 * time.Second

// Until waits until cond is true, or fails the test at once after Deadline with
// the text of what, formatted with args.
func Until(t testing.TB, cond func() bool, what string, args ...any) {
	t.Helper()
	Within(t, Deadline, cond, what, args...)
}

// Within is Until with a limit of its own.
func Within(t testing.TB, limit time.Duration, cond func() bool, what string, args ...any) {
	t.Helper()
	NoError(t, limit, func() error {
		if !cond() {
			return errNotYet
		}
		return nil
	}, what, args...)
}

// A question that starts a process, or that a busy machine is slow to answer, must not take what the answer waits for:
// the rest after it is so many times what it took, up to the longest.
const (
	rest        = 4
	longestRest = 300 * time.Millisecond
)

var errNotYet = fmt.Errorf("not yet")

// NoError waits until f returns nil. When it never does, the failure quotes its last error.
func NoError(t testing.TB, limit time.Duration, f func() error, what string, args ...any) {
	t.Helper()
	pause := time.Millisecond
	begin := time.Now()
	for {
		asked := time.Now()
		err := f()
		if err == nil {
			return
		}
		took := time.Since(asked)
		if time.Since(begin) >= limit {
			text := fmt.Sprintf(what, args...)
			if err == errNotYet {
				t.Fatalf("waited %s for: %s", limit, text)
			}
			t.Fatalf("waited %s for: %s; last: %v", limit, text, err)
		}
		timer := time.NewTimer(max(pause, min(rest*took, longestRest)))
		<-timer.C
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// Get receives from c, or fails the test after Deadline.
func Get[T any](t testing.TB, c <-chan T, what string, args ...any) T {
	t.Helper()
	timer := time.NewTimer(Deadline)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("waited %s for: %s", Deadline, fmt.Sprintf(what, args...))
		panic("unreachable")
	}
}
