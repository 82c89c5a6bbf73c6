package telemetry

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestBucketsCoverEveryDurationWithinTheStatedError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nanos := uint64(1) << rapid.IntRange(0, 51).Draw(t, "octave")
		nanos += rapid.Uint64Range(0, nanos-1).Draw(t, "offset")
		i := bucketOf(nanos)
		low, high := bucketBounds(i)
		if nanos >= 1<<rangeBits {
			if i != bucketCount-1 {
				t.Fatalf("%d ns is past the range but in bucket %d", nanos, i)
			}
			return
		}
		if nanos < low || nanos >= high {
			t.Fatalf("%d ns is in bucket %d, whose range is [%d, %d)", nanos, i, low, high)
		}
		wrong := math.Abs(midpoint(i) - float64(nanos))
		if wrong > max(32, float64(nanos)/32) {
			t.Fatalf("%d ns reads as %f: off by %f", nanos, midpoint(i), wrong)
		}
	})
	for i := 1; i < bucketCount; i++ {
		_, before := bucketBounds(i - 1)
		if low, _ := bucketBounds(i); low != before {
			t.Fatalf("bucket %d begins at %d, the one before ends at %d", i, low, before)
		}
	}
}

func TestNothingIsLostAmongManyWriters(t *testing.T) {
	r := New(Config{Host: "h"})
	c, timing, g := r.Counter("c"), r.Timing("t"), r.Gauge("g")
	const writers, each = 8, 5000
	cursor := r.NewCursor()
	var counted, odd, observed uint64
	var sum float64
	take := func(reading *Reading) {
		switch reading.Series.Name {
		case "c":
			counted += uint64(reading.Sum)
			odd += reading.Count
		case "t":
			observed += reading.Count
			sum += reading.Sum
			if reading.Buckets.Count != reading.Count {
				t.Errorf("buckets hold %d, count is %d", reading.Buckets.Count, reading.Count)
			}
		}
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range writers {
		wg.Go(func() {
			for i := range each {
				c.Add(uint64(i % 3))
				g.Add(1)
				timing.Observe(time.Duration(i) * time.Microsecond)
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		cursor.Each(take)
	}
	// The sum of a last observation may be outstanding: the next one's pass takes it along.
	const last = time.Millisecond
	timing.Observe(last)
	cursor.Each(take)
	want, wantSum := uint64(0), 0.0
	for i := range each {
		want += uint64(i % 3)
		wantSum += max(float64(i)/1000, 1e-6)
	}
	if counted != writers*want || odd != writers*each || c.Value() != writers*want {
		t.Errorf("counter: deltas add up to %d in %d calls, value %d; want %d in %d", counted, odd, c.Value(), writers*want,
			writers*each)
	}
	wantSum = writers*wantSum + 1 // the last one's millisecond
	if observed != writers*each+1 || timing.Count() != writers*each+1 || math.Abs(sum-wantSum) > 1e-3 {
		t.Errorf("timing: %d observations of %f ms in all, want %d of %f", observed, sum, writers*each+1, wantSum)
	}
	if g.Value() != writers*each {
		t.Errorf("gauge is %f, want %d", g.Value(), writers*each)
	}
}

func TestObservingDoesNotAllocate(t *testing.T) {
	r := New(Config{})
	c, g, timing := r.Counter("c"), r.Gauge("g"), r.Timing("t")
	stages := r.Stages("catalog", "kv")
	for name, f := range map[string]func(){
		"Counter.Add(1)":     func() { c.Add(1) },
		"Counter.Add(7)":     func() { c.Add(7) },
		"Gauge.Set":          func() { g.Set(3) },
		"Timing.Observe":     func() { timing.Observe(time.Millisecond) },
		"Stages.Observe":     func() { stages.Observe(0, StageFsync, time.Millisecond) },
		"Stages.Charge":      func() { stages.Charge(0, 1, 512, 1) },
		"Registry.Counter":   func() { r.Counter("c").Add(1) },
		"a nil everything's": func() { (*Registry)(nil).Timing("t").Observe(1) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func TestNilRegistryDoesNothing(t *testing.T) {
	var r *Registry
	r.Counter("c").Add(1)
	r.Gauge("g").Set(1)
	r.Gauge("g").Add(1)
	r.GaugeFunc("f", func() float64 { return 1 })
	r.Timing("t").Observe(1)
	r.Timing("t").ObserveMillis(1)
	r.Stages("p", "k").Observe(0, StageApply, 1)
	r.Stages("p", "k").Charge(0, 1, 1, 1)
	r.Publish(StallBegan{})
	r.Declare(KindCounter, "c", "")
	if _, ok := r.Facts().TryNext(); ok || r.Series() != nil || r.Counter("c").Value() != 0 || r.Timing("t").Count() != 0 {
		t.Error("a nil registry holds something")
	}
	if err := r.Reload(Settings{}); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestSameNameAndLabelsGiveTheSameObject(t *testing.T) {
	r := New(Config{})
	if first, second := r.Counter("c", "a", "1"), r.Counter("c", "a", "1"); first != second {
		t.Error("two counters for one name and label")
	}
	if r.Counter("c", "a", "1") == r.Counter("c", "a", "2") {
		t.Error("one counter for two label values")
	}
	r.Declare(KindTiming, "t", "help")
	before := r.Series()
	first := r.Timing("t")
	if first != r.Timing("t") || r.Help("t") != "help" {
		t.Error("a declared name does not become one series")
	}
	for _, s := range before {
		if s.Name == "t" && !s.Declared {
			t.Error("a series changed after it was handed out")
		}
	}
	r.Gauge("c").Set(1) // of another kind: works, is counted, is not shown
	for _, s := range r.Series() {
		if s.Name == "c" && s.Kind != KindCounter {
			t.Error("one name has two kinds")
		}
	}
	if r.conflict.Value() == 0 {
		t.Error("the conflict was not counted")
	}
}

func TestLabelsBeyondTheBoundShareOneSeries(t *testing.T) {
	r := New(Config{MaxSeriesPerName: 10})
	for i := range 100 {
		r.Counter("c", "user", fmt.Sprint(i)).Add(1)
	}
	count, overflow := 0, uint64(0)
	for _, s := range r.Series() {
		if s.Name != "c" {
			continue
		}
		count++
		if s.Labels[0].Value == "overflow" {
			overflow = s.CounterValue()
		}
	}
	if count != 11 || overflow != 90 || r.overflow.Value() != 90 {
		t.Errorf("%d series, %d in the overflow, %d counted; want 11, 90, 90", count, overflow, r.overflow.Value())
	}
	r = New(Config{MaxSeries: 20})
	for i := range 100 {
		r.Counter(fmt.Sprint("name", i)).Add(1)
	}
	if n := len(r.Series()); n > 40 {
		t.Errorf("%d names were kept where 40 are the bound", n)
	}
}

func TestNamesAreFilteredByTheLongestRule(t *testing.T) {
	off := false
	for _, c := range []struct {
		settings Settings
		allowed  map[string]bool // of counters
	}{
		{Settings{}, map[string]bool{"raft.apply": true}},
		{Settings{FilterDefault: &off}, map[string]bool{"raft.apply": false}},
		{Settings{PrefixFilter: []string{"-consul.raft", "+consul.raft.apply"}},
			map[string]bool{"raft.apply": true, "raft.barrier": false, "rpc.query": true}},
		{Settings{PrefixFilter: []string{"+consul.raft", "-consul.raft.apply"}, FilterDefault: &off},
			map[string]bool{"raft.apply": false, "raft.barrier": true, "rpc.query": false}},
		{Settings{PrefixFilter: []string{"+consul.raft", "-consul.raft"}}, map[string]bool{"raft.apply": false}},
		{Settings{PrefixFilter: []string{"-fleet.raft"}, MetricsPrefix: "fleet"},
			map[string]bool{"raft.apply": false, "kvs.apply": true}},
	} {
		n := newNaming(c.settings, "host1")
		for name, want := range c.allowed {
			if got := n.Allowed(newSeries(KindCounter, name, nil)); got != want {
				t.Errorf("%v: %s allowed is %v", c.settings, name, got)
			}
		}
	}
	gauge, counter := newSeries(KindGauge, "g", nil), newSeries(KindCounter, "c", nil)
	n := newNaming(Settings{}, "host1")
	if n.Name(gauge) != "consul.host1.g" || n.Name(counter) != "consul.c" || n.Plain(gauge) != "consul.g" {
		t.Errorf("names are %s, %s, %s", n.Name(gauge), n.Name(counter), n.Plain(gauge))
	}
	if !newNaming(Settings{PrefixFilter: []string{"-consul.g", "+consul.host1.g"}}, "host1").Allowed(gauge) {
		t.Error("a rule with the host does not reach the gauge")
	}
	if got := newNaming(Settings{DisableHostname: true, MetricsPrefix: "x."}, "host1").Name(gauge); got != "x.g" {
		t.Errorf("without host the name is %s", got)
	}
}

func TestReloadIsAllOrNothing(t *testing.T) {
	r := New(Config{Host: "h"})
	bad := Settings{MetricsPrefix: "new", PrefixFilter: []string{"no sign", "+ok"}, DogstatsdTags: []string{"a,b"}}
	err := r.Reload(bad)
	if err == nil || r.Settings().MetricsPrefix != "" {
		t.Fatalf("err %v, prefix %q", err, r.Settings().MetricsPrefix)
	}
	for _, key := range []string{"prefix_filter", "dogstatsd_tags"} {
		if !contains(err.Error(), key) {
			t.Errorf("%q does not name %s", err, key)
		}
	}
	if err := r.Reload(Settings{MetricsPrefix: "new"}); err != nil || r.Naming().prefix != "new." {
		t.Errorf("err %v, prefix %q", err, r.Naming().prefix)
	}
}

func contains(s, part string) bool {
	for i := 0; i+len(part) <= len(s); i++ {
		if s[i:i+len(part)] == part {
			return true
		}
	}
	return false
}

func TestTheViewIsTheLastCompleteInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{Host: "h"})
		c, timing := r.Counter("c"), r.Timing("t")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Run(ctx) })
		defer wg.Wait()
		defer cancel()
		find := func(list []Aggregate, name string) Aggregate {
			for _, a := range list {
				if a.Series.Name == name {
					return a
				}
			}
			return Aggregate{}
		}
		c.Add(1)
		if got := find(r.Summary().Counters, "c"); got.Sum != 1 {
			t.Errorf("before the first interval ends the view is %+v", got)
		}
		c.Add(5)
		for _, ms := range []time.Duration{2, 4, 6} {
			timing.Observe(ms * time.Millisecond)
		}
		time.Sleep(Interval + time.Second/2) // synctest's clock
		c.Add(100)
		got := find(r.Summary().Counters, "c")
		if got.Count != 2 || got.Sum != 6 || got.Min != 1 || got.Max != 5 || got.Mean != 3 ||
			math.Abs(got.Stddev-math.Sqrt(8)) > 1e-9 || math.Abs(got.Rate-0.6) > 1e-9 {
			t.Errorf("counter: %+v", got)
		}
		got = find(r.Summary().Timings, "t")
		if got.Count != 3 || got.Sum != 12 || got.Min != 2 || got.Max != 6 || got.Mean != 4 || math.Abs(got.Stddev-2) > 0.1 ||
			math.Abs(got.P50-4) > 0.13 {
			t.Errorf("timing: %+v", got)
		}
		if r.Gauge("runtime.num_goroutines").Value() < 1 || r.Gauge("runtime.alloc_bytes").Value() < 1 {
			t.Error("the runtime was not sampled")
		}
		time.Sleep(Interval)
		if got = find(r.Summary().Counters, "c"); got.Sum != 100 || got.Min != 100 {
			t.Errorf("second interval: %+v", got)
		}
		time.Sleep(Interval)
		if got = find(r.Summary().Counters, "c"); got.Count != 0 {
			t.Errorf("an idle interval shows %+v", got)
		}
		if find(r.Summary().Timings, "t").Series != nil {
			t.Error("an idle interval shows the timing")
		}
	})
}

func TestEveryNumberIsFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New(Config{Host: "h"})
		for range rapid.IntRange(1, 20).Draw(t, "count") {
			v := rapid.Float64().Draw(t, "v")
			n := rapid.Uint64().Draw(t, "n")
			r.Gauge("g").Set(v)
			r.Gauge("g").Add(v)
			r.Counter("c").Add(n)
			r.Timing("t").Observe(time.Duration(n))
			r.Timing("t").ObserveMillis(v)
			r.GaugeFunc("f", func() float64 { return math.NaN() })
		}
		r.Gauge("g").Set(math.NaN())
		r.Gauge("g").Set(math.Inf(1))
		s := r.Summary()
		for _, g := range s.Gauges {
			if g.Series.Name == "f" || math.IsNaN(g.Value) || math.IsInf(g.Value, 0) {
				t.Fatalf("gauge %s shows %f", g.Series.Name, g.Value)
			}
		}
		for _, a := range append(s.Counters, s.Timings...) {
			for _, v := range []float64{a.Rate, a.Sum, a.Min, a.Max, a.Mean, a.Stddev, a.P50, a.P90, a.P99} {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("%s: %+v", a.Series.Name, a)
				}
			}
		}
	})
}

func TestFactsReachReadersAndNeverWaitForThem(t *testing.T) {
	r := New(Config{FactCount: 4})
	reader := r.Facts()
	r.Publish(StallBegan{Disk: "a", For: time.Second})
	rec, err := reader.Next(t.Context())
	if err != nil || rec.Seq != 1 || rec.Fact != (StallBegan{Disk: "a", For: time.Second}) {
		t.Fatalf("%+v, %v", rec, err)
	}
	for range 10 {
		r.Publish(StallEnded{})
	}
	for want := uint64(8); want <= 11; want++ {
		if rec, ok := reader.TryNext(); !ok || rec.Seq != want {
			t.Fatalf("got %d, want %d", rec.Seq, want)
		}
	}
	if reader.Lost() != 6 {
		t.Errorf("lost %d, want 6", reader.Lost())
	}
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{})
		reader, woken := r.Facts(), make(chan Record)
		go func() { rec, _ := reader.Next(t.Context()); woken <- rec }()
		synctest.Wait() // the reader waits now
		r.Publish(SinkRecovered{Sink: "x"})
		if rec := <-woken; rec.Fact.FactName() != "telemetry.sink_recovered" {
			t.Errorf("woken by %v", rec)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := reader.Next(ctx); err == nil {
			t.Error("Next outlived its context")
		}
	})
}

func TestStagesAccountByKind(t *testing.T) {
	r := New(Config{})
	s := r.Stages("catalog", "kv", "register")
	s.Observe(1, StageFsync, 3*time.Millisecond)
	s.Observe(9, StageFsync, time.Millisecond) // no such kind: ignored
	s.ObserveAll(1, StageApply, 2*time.Millisecond, 3)
	s.ObserveAll(1, StageApply, time.Hour, 0)
	s.Charge(1, 2, 512, 1)
	labels := []string{"plane", "catalog", "kind", "register"}
	if r.Counter("request.storage_ops", labels...).Value() != 2 ||
		r.Counter("request.storage_bytes", labels...).Value() != 512 ||
		r.Counter("request.fsyncs", labels...).Value() != 1 {
		t.Error("the costs are not in their counters")
	}
	if got := r.Timing("request.stage", append(labels, "stage", "fsync")...); got.Sum() != 3*time.Millisecond {
		t.Errorf("the stage took %s", got.Sum())
	}
	if got := r.Timing("request.stage", append(labels, "stage", "apply")...); got.Sum() != 6*time.Millisecond ||
		got.Count() != 3 {
		t.Errorf("three together count as %d, which took %s", got.Count(), got.Sum())
	}
}

func TestQuantilesAgreeWithTheSortedValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(1000, 1<<40), 1, 200).Draw(t, "values")
		timing := newTiming()
		for _, v := range values {
			timing.Observe(time.Duration(v))
		}
		var b, double Buckets
		timing.Read(&b)
		double.Merge(&b)
		double.Merge(&b)
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
			rank := max(0, int(math.Ceil(q*float64(len(values))))-1)
			want := float64(nth(values, rank))
			if got := b.Quantile(q); math.Abs(got-want) > want/32+32 {
				t.Fatalf("quantile %v is %f, want %f", q, got, want)
			}
		}
		if double.Count != 2*b.Count || math.Abs(double.Quantile(1)-b.Quantile(1)) > 0 {
			t.Fatal("merging a distribution with itself moves its maximum")
		}
	})
}

func nth(values []int64, n int) int64 {
	sorted := append([]int64(nil), values...)
	for i := range sorted {
		for j := i; j > 0 && sorted[j] < sorted[j-1]; j-- {
			sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
		}
	}
	return sorted[n]
}

// TestSlowest: the slowest requests of late are kept with their stages, faster ones cost nothing, and old ones make
// room.
func TestSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{})
		s := r.Stages("secrets", "read", "write")
		spent := Spent{}
		spent[StageStorage] = 80 * time.Millisecond
		s.Done(WithTrace(t.Context(), "0af7651916cd43dd8448eb211c80319c"), 1, 90*time.Millisecond, &spent)
		s.Done(t.Context(), 0, time.Millisecond, nil)
		s.Done(t.Context(), 9, time.Hour, nil) // no such kind
		got := r.Slowest()
		if len(got) != 1 || got[0].Kind != "write" || got[0].Spent[StageStorage] != 80*time.Millisecond ||
			got[0].Trace == "" {
			t.Fatalf("slowest: %+v", got)
		}
		for i := range 40 {
			s.Done(t.Context(), 0, time.Duration(100+i)*time.Millisecond, nil)
		}
		if got = r.Slowest(); len(got) != slowKept || got[0].Took != 139*time.Millisecond ||
			got[slowKept-1].Took != 124*time.Millisecond {
			t.Errorf("%d kept, from %s to %s", len(got), got[0].Took, got[len(got)-1].Took)
		}
		if n := testing.AllocsPerRun(100, func() { s.Done(t.Context(), 0, 3*time.Millisecond, &spent) }); n != 0 {
			t.Errorf("a request that is not among the slowest allocates %v times", n)
		}
		time.Sleep(slowFor + time.Second)
		if got = r.Slowest(); len(got) != 0 {
			t.Errorf("%d old ones are kept", len(got))
		}
		s.Done(t.Context(), 0, 3*time.Millisecond, nil)
		if got = r.Slowest(); len(got) != 1 {
			t.Error("old ones keep newer ones out")
		}
		if r.Timing("request.total", "plane", "secrets", "kind", "write").Count() != 1 ||
			r.Timing("request.stage", "plane", "secrets", "kind", "write", "stage", "storage").Count() != 1 {
			t.Error("totals or stages are missing")
		}
	})
}

// TestBusiest: who asks most is named, however many others ask.
func TestBusiest(t *testing.T) {
	r := New(Config{})
	tenants := r.Tenants("catalog")
	for i := range 64000 {
		who := "address 10.0.0.7"
		if i%4 == 0 {
			who = fmt.Sprintf("address 10.1.%d.%d", i%200, i%251)
		}
		if tenants.Turn() {
			tenants.Add(who)
		}
	}
	got := r.Busiest()
	var all uint64
	for _, x := range got {
		all += x.Requests
	}
	// One of sixteen by chance: 64,000 are told to within a few percent, far beyond six deviations of these bounds.
	if len(got) != tenantsTold+1 || got[len(got)-1].Who != "others" || all < 56000 || all > 72000 ||
		got[0].Who != "address 10.0.0.7" || got[0].Requests < 42000 || got[0].Requests > 54000 {
		t.Fatalf("%d in all, %+v", all, got)
	}
	if again := r.Busiest(); len(again) != 0 {
		t.Errorf("told twice: %+v", again)
	}
	var none *Tenants
	if none.Turn() {
		t.Error("nothing counts")
	}
}

// TestDisableDoctor: where the doctor is off nothing is accounted for, and whoever counts needs not ask.
func TestDisableDoctor(t *testing.T) {
	r := New(Config{Settings: Settings{DisableDoctor: true}})
	s, tenants := r.Stages("catalog", "kv"), r.Tenants("catalog")
	if s != nil || tenants != nil {
		t.Fatal("accounts are made")
	}
	s.Done(t.Context(), 0, time.Second, nil)
	s.Charge(0, 1, 1, 1)
	if tenants.Turn() || len(r.Slowest()) > 0 || len(r.Busiest()) > 0 {
		t.Error("something was kept")
	}
}
