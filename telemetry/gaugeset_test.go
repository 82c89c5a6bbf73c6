package telemetry

import (
	"fmt"
	"testing"
)

// What a set does not name any more is gone for all readers, and its room is free.
func TestGaugeSet(t *testing.T) {
	r := New(Config{MaxSeriesPerName: 3})
	set, cursor := r.GaugeSet("count.by_role"), r.NewCursor()
	shown := func() string {
		out := map[string]float64{}
		cursor.EachOf(func(s *Series) bool { return s.Name == "count.by_role" },
			func(x *Reading) { out[x.Series.Labels[0].Value] = x.Sum })
		cursor.Each(func(*Reading) {})
		if len(cursor.marks) != len(r.Series()) {
			t.Errorf("the cursor remembers %d of %d series", len(cursor.marks), len(r.Series()))
		}
		return fmt.Sprint(out)
	}
	for round := range 10 { // more labels than a name may have at once
		a, b := fmt.Sprint("a", round), fmt.Sprint("b", round)
		set.Replace([]Point{{[]string{"role", a}, 1}, {[]string{"role", b}, 2}, {[]string{"role", "ever"}, float64(round)}})
		if got, want := shown(), fmt.Sprint(map[string]float64{a: 1, b: 2, "ever": float64(round)}); got != want {
			t.Fatalf("round %d shows %s, want %s", round, got, want)
		}
	}
	if set.Replace(nil); shown() != "map[]" || r.overflow.Value() != 0 {
		t.Errorf("an empty set shows %s; %d did not fit", shown(), r.overflow.Value())
	}
	(*Registry)(nil).GaugeSet("x").Replace([]Point{{nil, 1}})
}
