// Package loud is the only way for a test to say that it did not run: it skips
// and prints a line beginning with NOT RUN, which test/all repeats at its end and
// counts as skipped, never as passed.
package loud

import (
	"fmt"
	"os"
	"testing"
)

// Prefix begins the line.
const Prefix = "NOT RUN: "

// Skip ends the test as not run, with the reason.
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	reason := fmt.Sprintf(format, args...)
	fmt.Fprintf(os.Stderr, "%s%s: %s\n", Prefix, t.Name(), reason)
	t.Skip(Prefix + reason)
}
