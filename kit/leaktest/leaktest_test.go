package leaktest

import (
	"strings"
	"testing"
)

func TestFindsALeak(t *testing.T) {
	before := map[string]bool{}
	for _, g := range stacks() {
		before[id(g)] = true
	}
	stop, done, started := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		close(started)
		<-stop
	}()
	<-started
	if left := leaked(nil, before); !strings.Contains(left, "TestFindsALeak.func1") {
		t.Errorf("found %q", left)
	}
	if left := leaked([]string{"TestFindsALeak"}, before); left != "" {
		t.Errorf("an allowed goroutine is reported: %q", left)
	}
	close(stop)
	<-done
	Check(t)()
}
