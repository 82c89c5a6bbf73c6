package polltest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// failing records a fatal failure instead of ending the test.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f)
}

func TestSaysWhatItWaitedFor(t *testing.T) {
	tries := 0
	Until(t, func() bool { tries++; return tries == 3 }, "the third try")
	f := &failing{TB: t}
	func() {
		defer func() { _ = recover() }()
		NoError(f, 5*time.Millisecond, func() error { return fmt.Errorf("try again") }, "door %d", 7)
	}()
	if !strings.Contains(f.text, "door 7") || !strings.Contains(f.text, "try again") {
		t.Errorf("says %q", f.text)
	}
	c := make(chan int, 1)
	c <- 4
	if Get(t, c, "four") != 4 {
		t.Error("wrong value")
	}
}
