package fetch

import (
	"context"
	"testing"

	"corbel.dev/corbel/kit/loud"
)

// Envoys are the items of the manifest that are Envoy, oldest first: what is tested with a real Envoy is tested with
// each.
var Envoys = []string{"envoy-1.36", "envoy"}

// Need returns the path of the named program, or says loudly that the test did not run.
func Need(t testing.TB, name string) string {
	t.Helper()
	dir, err := Cache()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	program, err := (Fetcher{Dir: dir}).Get(ctx, name)
	if err != nil {
		loud.Skip(t, "%v", err)
	}
	return program
}
