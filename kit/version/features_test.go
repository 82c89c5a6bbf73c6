package version

import (
	"slices"
	"testing"
)

func TestLackedFeatures(t *testing.T) {
	for told, want := range map[string][]string{"": nil, "acl,jobs": nil, "acl,teleport,warp": {"teleport", "warp"},
		",,acl": nil} {
		if got := LackedFeatures(told); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", told, got, want)
		}
	}
	if !slices.IsSorted(Features) || len(slices.Compact(slices.Clone(Features))) != len(Features) {
		t.Error("the list is to be sorted, each name once")
	}
}
