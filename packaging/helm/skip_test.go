package helm

import (
	"fmt"
	"os"
	"testing"
)

// notRun ends a test as not run, in the words that test/all repeats at its end.
func notRun(t *testing.T, reason string) {
	t.Helper()
	fmt.Fprintf(os.Stderr, "NOT RUN: %s: %s\n", t.Name(), reason)
	t.Skip("NOT RUN: " + reason)
}
