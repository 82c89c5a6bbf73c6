package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestTrends(t *testing.T) {
	for want, values := range map[string][]float64{
		"▁":        {7},
		"▁▁▁":      {5, 5, 5},
		"▁▂▃▄▅▆▇█": {0, 1, 2, 3, 4, 5, 6, 7},
		"█▁█":      {1e300, -1e300, 1e300},
		"▁█":       {1000, 1001},
	} {
		trends := &Trends{}
		got := ""
		for _, v := range values {
			got = trends.Add("web", v)
		}
		if got != want {
			t.Errorf("%v: %s, want %s", values, got, want)
		}
	}
	trends := &Trends{}
	for i := range 3 * trendValues {
		if got := trends.Add("web", float64(i)); len([]rune(got)) != min(i+1, trendValues) {
			t.Fatalf("after %d values: %s", i, got)
		}
	}
	for i := range 2 * maxTrends {
		trends.Add(strings.Repeat("x", i), 1)
	}
	if len(trends.kept) != maxTrends {
		t.Errorf("%d trends are kept", len(trends.kept))
	}
}

// TestTrendsElsewhere: what is no terminal, or is asked once, gets no column.
func TestTrendsElsewhere(t *testing.T) {
	e := &Env{Out: &bytes.Buffer{}, Getenv: func(string) string { return "" }}
	for _, watch := range []bool{true, false} {
		trends := e.Trends(watch)
		if got := trends.Head("A", "B"); !slices.Equal(got, []string{"A", "B"}) || trends.Beside("a", "a", 1) != "a" {
			t.Errorf("a column for nobody: %q", got)
		}
	}
}
