//go:build !release

package main

import "testing"

// What makes packages and images needs libraries that take minutes to build.
func TestRelease(t *testing.T) {
	skip(t, "packages, image and binaries: cd packaging/release && go test -tags release ./...")
}
