//go:build !kube

package kube

import (
	"testing"

	"corbel.dev/corbel/kit/loud"
)

// client-go and the types of the API are a large build.
func TestOracle(t *testing.T) {
	loud.Skip(t, "catalog sync and injector beside client-go: cd test/kube && go test -tags kube ./...")
}
