package tally

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

var start = time.Unix(1_700_000_000, 0)

// flush returns the points by name and tags.
func flush(t *Tally, at time.Time) map[string]float64 {
	out := map[string]float64{}
	for _, p := range t.Flush(at) {
		name := p.Name
		for _, tag := range p.Tags {
			name += " " + tag.Name + "=" + tag.Value
		}
		out[name] = p.Value
	}
	return out
}

func expect(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if g, ok := got[name]; !ok || math.Abs(g-v) > 1e-9 {
			t.Errorf("%s: %v (%t), want %v", name, g, ok, v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d points, want %d: %v", len(got), len(want), got)
	}
}

func TestFlush(t *testing.T) {
	var y Tally
	if err := y.Add("hits:1|c\nhits:2|c|@0.5\nhits:1|c|#env:prod,"+
		"b\nheat:20|g\nheat:+5|g\nheat:-1|g\nusers:joe|s\nusers:amy|s\nusers:joe|s\n", start); err != nil {
		t.Fatal(err)
	}
	for _, v := range []int{10, 20, 30, 40} {
		if err := y.Add(fmt.Sprintf("took:%d|ms", v), start); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, flush(&y, start.Add(10*time.Second)), map[string]float64{
		"hits.value": 5, "hits.per_second": 0.5, "hits.value b= env=prod": 1, "hits.per_second b= env=prod": 0.1,
		"heat.value": 24, "users.value": 2,
		"took.count": 4, "took.per_second": 0.4, "took.min": 10, "took.max": 40, "took.mean": 25, "took.median": 25,
		"took.stddev": math.Sqrt(125), "took.sum": 100, "took.sum_squares": 3000,
		"took.percentile_count_90": 4, "took.percentile_mean_90": 25, "took.percentile_sum_90": 100,
		"took.percentile_sum_squares_90": 3000, "took.percentile_upper_90": 40,
	})
	expect(t, flush(&y, start.Add(20*time.Second)), map[string]float64{
		"hits.value": 0, "hits.per_second": 0, "hits.value b= env=prod": 0, "hits.per_second b= env=prod": 0,
		"heat.value": 24, "users.value": 0, "took.count": 0, "took.per_second": 0,
	})
	expect(t, flush(&y, start.Add(Expiry)), map[string]float64{})
}

func TestPointsHaveNanoseconds(t *testing.T) {
	var y Tally
	if err := y.Add("a:1|g", start); err != nil {
		t.Fatal(err)
	}
	at := start.Add(1500 * time.Millisecond)
	if p := y.Flush(at); p[0].Timestamp != at.UnixNano() {
		t.Fatal(p[0].Timestamp)
	}
}

func TestWhatIsWrong(t *testing.T) {
	for _, line := range []string{"a", "a|c", ":1|c", "a:1", "a:x|c", "a:1|q", "a:NaN|g", "a:Inf|g", "a:1|c|@0",
		"a:1|c|@2", "a:1|c|@x", "_e{1,1}:a|b", "_sc|a|0",
		strings.Repeat("n", maxName+1) + ":1|c", "a:" + strings.Repeat("1", maxValue+1) + "|s"} {
		var y Tally
		if err := y.Add(line+"\nok:1|c", start); err == nil || y.Dropped != 1 || len(y.series) != 1 {
			t.Errorf("%.40q: %v, %d dropped, %d series", line, err, y.Dropped, len(y.series))
		}
	}
	var many []string
	for i := range maxTags + 1 {
		many = append(many, fmt.Sprint("t", i))
	}
	var y Tally
	if err := y.Add("a:1|c|#"+strings.Join(many, ","), start); err == nil {
		t.Error("too many tags were taken")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var y Tally
	for i := range MaxSeries + 10 {
		_ = y.Add(fmt.Sprintf("n%d:1|c", i), start)
	}
	if len(y.series) != MaxSeries || y.Dropped != 10 {
		t.Fatalf("%d series, %d dropped", len(y.series), y.Dropped)
	}
	y = Tally{}
	for i := range 10 * maxKept {
		_ = y.Add(fmt.Sprintf("t:%d|ms\nu:%d|s", i, i), start)
	}
	got := flush(&y, start.Add(time.Second))
	if got["t.count"] != 10*maxKept || got["t.max"] != 10*maxKept-1 || got["u.value"] != maxSet {
		t.Fatalf("%v", got)
	}
	if m := got["t.median"]; math.Abs(m-5*maxKept) > maxKept/10 {
		t.Fatalf("the median of %d values is %v", 10*maxKept, m)
	}
}

func FuzzAdd(f *testing.F) {
	for _, s := range []string{"a:1|c", "a:1:2:3|ms|@0.5|#x:y,z", "a:+1|g\nb:x|s", "_e{3,4}:abc|text",
		"a:1e308|ms\na:1e308|ms"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, datagram string) {
		var y Tally
		_ = y.Add(datagram, start)
		for _, p := range y.Flush(start.Add(time.Second)) {
			if p.Name == "" || math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
				t.Fatalf("%+v", p)
			}
		}
	})
}
