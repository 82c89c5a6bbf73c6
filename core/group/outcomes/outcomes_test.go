package outcomes

import "testing"

// TestOutcomesAreBounded: the newest are kept, by index and term.
func TestOutcomesAreBounded(t *testing.T) {
	var o Kept
	for i := range uint64(3 * most) {
		o.Note(Place{i, 2}, []any{i})
	}
	newest := uint64(3*most - 1)
	for _, c := range []struct {
		at   Place
		want bool
	}{{Place{newest, 2}, true}, {Place{newest - most + 1, 2}, true}, {Place{newest - most, 2}, false},
		{Place{newest, 3}, false}} {
		if got, ok := o.Of(c.at); ok != c.want || ok && got[0] != c.at.Index {
			t.Errorf("%v: %v, %v", c.at, got, ok)
		}
	}
	if o.Forget(); len(o.kept) > 0 {
		t.Error("what nobody waits for is kept")
	}
}
