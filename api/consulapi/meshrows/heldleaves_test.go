package meshrows

import (
	"testing"
	"time"
)

func TestJudgeLeaf(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	roots := []CARoot{{ID: "new", Active: true}, {ID: "old"}}
	for _, c := range []struct {
		serial, root string
		at           time.Duration // of a life of 100 h
		want         string
	}{
		{"aa", "new", 0, LeafValid},
		{"aa", "new", 90 * time.Hour, LeafValid},
		{"aa", "new", 91 * time.Hour, LeafEnding},
		{"aa", "new", 100 * time.Hour, LeafEnded},
		{"aa", "old", 0, LeafOldRoot},
		{"aa", "old", 99 * time.Hour, LeafOldRoot},
		{"aa", "other", 0, LeafStranger},
		{"aa", "other", 101 * time.Hour, LeafEnded},
		{"", "", 0, LeafMissing},
	} {
		l := HeldLeaf{SerialNumber: c.serial, RootID: c.root, ValidAfter: begin, ValidBefore: begin.Add(100 * time.Hour)}
		if got := judgeLeaf(&l, roots, begin.Add(c.at)); got != c.want {
			t.Errorf("%q of %q after %s: %s, want %s", c.serial, c.root, c.at, got, c.want)
		}
	}
}
