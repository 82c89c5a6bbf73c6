package node

import (
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/version"
)

// TestFeaturesAreKnown: what a server with all planes tells of itself is what its release knows, else it would be told
// to stay away from its own cluster.
func TestFeaturesAreKnown(t *testing.T) {
	s := startServer(t, "told", "")
	told := ""
	polltest.Until(t, func() bool {
		m, ok := s.sees("told")
		told = m.Tags[version.TagFeatures]
		return ok
	}, "the server to see itself")
	if lacked := version.LackedFeatures(told); len(lacked) > 0 || !slices.Contains(strings.Split(told, ","), "mesh") {
		t.Errorf("it tells %q, of which its release lacks %q", told, lacked)
	}
}
