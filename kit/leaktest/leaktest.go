// Package leaktest fails a package's tests when goroutines outlive them.
//
// Call it from TestMain:
//
//	func TestMain(m *testing.M) { leaktest.Main(m) }
//
// or for one test: defer leaktest.Check(t)().
package leaktest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Grace is how long goroutines may take to end after the last test.
const Grace = 5 * time.Second

// known are goroutines of the runtime and of libraries that live as long as the process, by a function on their stack.
var known = []string{
	"testing.Main(", "testing.(*M).", "testing.(*T).Run(", "testing.runTests", "testing.tRunner(", "testing.runFuzzing",
	"testing.(*F).", "runtime.goexit0", "created by runtime.gc", "runtime.MHeap_Scavenger", "signal.signal_recv",
	"sigterm.handler",
	"runtime_mcall", "goroutine in C code", "os/signal.loop", "leaktest.stacks", "runtime/pprof", "runtime.ReadTrace",
	"internal/fuzz", "net/http.(*Transport).startDialConnForLocked", "glog.(*fileSink).flushDaemon",
}

// Main runs the tests and ends the process: with code 1 when goroutines are left. extra names
// functions whose goroutines are allowed to stay, with the reason at the caller.
func Main(m *testing.M, extra ...string) {
	code := m.Run()
	if code == 0 {
		if left := wait(extra, nil); left != "" {
			fmt.Fprintf(os.Stderr, "leaktest: goroutines left after the last test:\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}

// Check notes the goroutines of now; the returned function fails t when others are left.
func Check(t testing.TB, extra ...string) func() {
	before := map[string]bool{}
	for _, g := range stacks() {
		before[id(g)] = true
	}
	return func() {
		t.Helper()
		if left := wait(extra, before); left != "" {
			t.Errorf("leaktest: goroutines left:\n%s", left)
		}
	}
}

func wait(extra []string, before map[string]bool) string {
	begin := time.Now()
	for {
		left := leaked(extra, before)
		if left == "" || time.Since(begin) > Grace {
			return left
		}
		timer := time.NewTimer(5 * time.Millisecond)
		<-timer.C
	}
}

func leaked(extra []string, before map[string]bool) string {
	var left []string
	for _, g := range stacks()[1:] { // the first is the caller's own
		if !before[id(g)] && !containsAny(g, known) && !containsAny(g, extra) {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}

func containsAny(g string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(g, part) {
			return true
		}
	}
	return false
}

// id is "goroutine 12", without the state that follows.
func id(g string) string {
	head, _, _ := strings.Cut(g, " [")
	return head
}

func stacks() []string {
	buf := make([]byte, 1<<16)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			return strings.Split(strings.TrimSpace(string(buf[:n])), "\n\n")
		}
		buf = make([]byte, 2*len(buf))
	}
}
