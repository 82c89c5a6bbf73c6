package main

import (
	"fmt"
	"os"
	"testing"
)

// skip ends a test as not run, in the words that test/all repeats at its end.
func skip(t *testing.T, reason string) {
	t.Helper()
	fmt.Fprintf(os.Stderr, "NOT RUN: %s: %s\n", t.Name(), reason)
	t.Skip("NOT RUN: " + reason)
}
