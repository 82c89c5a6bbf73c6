package limits

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/window"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func monthly(t *testing.T) *Limit {
	l := &Limit{Name: "plan", Product: "hosts", Window: window.Month, Value: usage.Int(1000)}
	if err := l.Complete(); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestThresholds is section 4's `PUT /v1/usage/limits/:name`: each threshold is told once per window.
func TestThresholds(t *testing.T) {
	l := monthly(t)
	march, april := window.Zone{}, start.AddDate(0, 1, 0)
	s := State{}
	for i, step := range []struct {
		at    time.Time
		value int64
		want  string
	}{
		{start, 700, ""}, {start, 799, ""}, {start, 800, "0.8"}, {start, 801, ""}, {start, 790, ""}, {start, 900, ""},
		{start, 1000, "1"}, {start, 5000, ""}, {april, 10, ""}, {start, 5000, ""}, {april, 2000, "0.8 1"}, {april, 2000, ""},
	} {
		r, err := march.Of(l.Window, step.at)
		if err != nil {
			t.Fatal(err)
		}
		var crossings []Crossing
		s, crossings = l.Step(s, r, usage.Int(step.value), step.at)
		var got []string
		for _, c := range crossings {
			got = append(got, fmt.Sprint(c.Threshold))
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("step %d: %v, want %q", i, got, step.want)
		}
	}
}

// TestSlidingWindowsFlutter: a sliding window has no beginning, so it must fall well below before it is told again.
func TestSlidingWindowsFlutter(t *testing.T) {
	l := Limit{Name: "rate", Product: "p", Window: window.Sliding5m, Value: usage.Int(100), At: []float64{1}}
	if err := l.Complete(); err != nil {
		t.Fatal(err)
	}
	s, told := State{}, 0
	for i, v := range []int64{99, 100, 99, 101, 95, 100, 91, 100, 89, 100} {
		var crossings []Crossing
		at := start.Add(time.Duration(i) * time.Minute)
		s, crossings = l.Step(s, window.Range{From: at, To: at.Add(5 * time.Minute)}, usage.Int(v), at)
		told += len(crossings)
	}
	if told != 2 {
		t.Errorf("told %d times, want 2", told)
	}
}

func TestForecast(t *testing.T) {
	l := monthly(t)
	r := window.Zone{}.Month(start)
	r.From, r.To = start, start.AddDate(0, 1, 0)
	var samples []Sample
	for day := range 6 {
		samples = append(samples, Sample{start.AddDate(0, 0, day), usage.Int(int64(100 * day))})
	}
	if at, ok := l.Forecast(r, samples); !ok || !at.Equal(start.AddDate(0, 0, 10)) {
		t.Errorf("%s, %t, want the 11th", at, ok)
	}
	for i := range samples {
		samples[i].Value = usage.Int(int64(10 * i))
	}
	if at, ok := l.Forecast(r, samples); ok {
		t.Errorf("100 days of growth end in the month, on %s", at)
	}
	if _, ok := l.Forecast(r, samples[:2]); ok {
		t.Error("two samples are a forecast")
	}
	samples[5].Value = usage.Int(1000)
	if at, ok := l.Forecast(r, samples); !ok || at != samples[5].At {
		t.Errorf("reached on %s, %t", at, ok)
	}
	samples[5].Value, samples[0].Value = usage.Int(0), usage.Int(900)
	if _, ok := l.Forecast(r, samples); ok {
		t.Error("what falls reaches its limit")
	}
}

func TestLimitNamesWhatIsWrong(t *testing.T) {
	l := Limit{Window: "7m", At: []float64{0, 1}}
	err := l.Complete()
	for _, field := range []string{"name: ", "product: ", "window: ", "value: ", "at: "} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// TestFair: in each turn every tenant that waits gets its bytes, so one with a storm delays the others by a turn.
func TestFair(t *testing.T) {
	f := NewFair[int](1000, 600, 100)
	for i := range 6 {
		if !f.Push("storm", 100, i) {
			t.Fatal("within its share")
		}
	}
	if f.Push("storm", 1, 9) {
		t.Error("beyond its share")
	}
	f.Push("small", 100, 100)
	f.Push("large", 250, 200)
	if f.Push("fourth", 100, 0) {
		t.Error("beyond the whole")
	}
	var order []string
	for {
		tenant, _, ok := f.Pop()
		if !ok {
			break
		}
		order = append(order, tenant)
	}
	if got := strings.Join(order, " "); got != "storm small storm storm large storm storm storm" {
		t.Error(got)
	}
	if f.Bytes() != 0 || f.Tenants() != 0 {
		t.Errorf("%d bytes of %d tenants are left", f.Bytes(), f.Tenants())
	}
}

// TestFairModel: what is taken comes out once, in the order of its tenant; nobody waits for more than a turn of the
// others.
func TestFairModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := NewFair[int](500, 300, rapid.IntRange(1, 80).Draw(t, "quantum"))
		waiting, bytes := map[string][]int{}, 0
		sizes := map[int]int{}
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "push") {
				tenant, size := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"), rapid.IntRange(1, 90).Draw(t, "size")
				if f.Push(tenant, size, i) {
					waiting[tenant], sizes[i], bytes = append(waiting[tenant], i), size, bytes+size
				} else if bytes+size <= 500 && len(waiting[tenant]) == 0 {
					t.Fatal("refused with room")
				}
			} else if tenant, item, ok := f.Pop(); ok {
				if waiting[tenant][0] != item {
					t.Fatalf("%s gets %d, not %d", tenant, item, waiting[tenant][0])
				}
				waiting[tenant], bytes = waiting[tenant][1:], bytes-sizes[item]
			} else if bytes != 0 {
				t.Fatal("nothing comes out of what is not empty")
			}
			if f.Bytes() != bytes || bytes > 500 {
				t.Fatalf("%d bytes, want %d", f.Bytes(), bytes)
			}
		}
	})
}
