package probe

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/doctor/usual"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/telemetry"
)

func newTestProbe(t *testing.T, dir string) (*Probe, *telemetry.Registry) {
	t.Helper()
	r := telemetry.New(telemetry.Config{})
	p, err := New(Config{Member: "s1", Role: doctor.RoleServer, Metrics: r, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

func seriesOf(e doctor.Evidence, key string) *doctor.Series {
	for i := range e.Series {
		if e.Series[i].Key() == key {
			return &e.Series[i]
		}
	}
	return nil
}

// TestWindows: what was observed shows after a tick, is joined over two, and goes after them; what is usual is
// learned and departures are dated.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newTestProbe(t, "")
		apply := r.Timing("group.replicate", "group", "catalog")
		unread := r.Timing("kvs.apply")
		pass := func(ms int, n int) {
			for range n {
				apply.Observe(time.Duration(ms) * time.Millisecond)
				unread.Observe(time.Millisecond)
			}
			time.Sleep(tick)
			p.pass()
		}
		for range 80 { // a minute to get warm, and enough to know
			pass(4, 50)
		}
		s := seriesOf(p.Evidence(), "group.replicate{group=catalog}")
		if s == nil || s.Now.Count != 100 || s.Now.Mean < 3.8 || s.Now.Mean > 4.2 || s.Now.Rate < 9.9 || s.Now.Rate > 10.1 {
			t.Fatalf("a steady series reads %+v", s)
		}
		if !s.Usual.Known() || s.Usual.Level < 3.8 || s.Usual.Level > 4.2 || !s.Since.IsZero() {
			t.Fatalf("its usual level is %+v since %s", s.Usual, s.Since)
		}
		if seriesOf(p.Evidence(), "kvs.apply") != nil {
			t.Error("a series that no rule reads is followed")
		}
		began := time.Now()
		pass(100, 50)
		pass(100, 50)
		s = seriesOf(p.Evidence(), "group.replicate{group=catalog}")
		if s.Now.Mean < 95 || s.Now.P99 < 95 || s.Since.Before(began.Add(-tick)) || s.Since.After(began.Add(tick)) {
			t.Errorf("a departure reads %+v, since %s and not %s", s.Now, s.Since, began)
		}
		since := s.Since
		pass(4, 50)
		pass(100, 50)
		if s = seriesOf(p.Evidence(), "group.replicate{group=catalog}"); !s.Since.Equal(since) {
			t.Errorf("one calm tick made a new departure of it: %s, was %s", s.Since, since)
		}
		for range calmTicks + 2 {
			pass(4, 50)
		}
		if s = seriesOf(p.Evidence(), "group.replicate{group=catalog}"); !s.Since.IsZero() {
			t.Errorf("it still departs since %s", s.Since)
		}
		pass(4, 0)
		pass(4, 0)
		if s = seriesOf(p.Evidence(), "group.replicate{group=catalog}"); s.Now.Count != 0 {
			t.Errorf("what is over still shows: %+v", s.Now)
		}
	})
}

func TestSlope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newTestProbe(t, "")
		g := r.Gauge("runtime.num_goroutines")
		for i := range 600 {
			g.Set(float64(1000 + 50*i))
			time.Sleep(tick)
			p.pass()
		}
		if s := seriesOf(p.Evidence(), "runtime.num_goroutines"); s.Now.Slope < 9.5 || s.Now.Slope > 10.5 {
			t.Errorf("50 more each five seconds is a slope of %.2f a second", s.Now.Slope)
		}
		for range 200 {
			time.Sleep(tick)
			p.pass()
		}
		if s := seriesOf(p.Evidence(), "runtime.num_goroutines"); s.Now.Slope > 0.1 {
			t.Errorf("what has been the same for a quarter of an hour has a slope of %.2f a second", s.Now.Slope)
		}
	})
}

// TestUsualSurvives: what was learned is there after a restart, and a broken file only makes it learn again.
func TestUsualSurvives(t *testing.T) {
	dir := t.TempDir()
	p, _ := newTestProbe(t, dir)
	p.known["group.append{group=catalog}"] = usual.Level{Level: 2, High: 3, Windows: 500}
	if err := p.save(); err != nil {
		t.Fatal(err)
	}
	q, r := newTestProbe(t, dir)
	r.Timing("group.append", "group", "catalog").Observe(time.Millisecond)
	q.pass()
	if s := seriesOf(q.Evidence(), "group.append{group=catalog}"); s == nil || s.Usual == nil || s.Usual.Level != 2 {
		t.Errorf("after a restart it reads %+v", s)
	}
	if err := os.WriteFile(filepath.Join(dir, "doctor", "usual.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, _ := newTestProbe(t, dir); len(p.known) != 0 {
		t.Error("a broken file was believed")
	}
}

func TestRunEnds(t *testing.T) {
	leaktest.Check(t)
	dir := t.TempDir()
	p, _ := newTestProbe(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "doctor", "usual.json"))
	if err != nil || !json.Valid(b) {
		t.Errorf("what is usual was not kept: %q, %v", b, err)
	}
	if e := p.Evidence(); e.Floors == nil || e.Floors.FsyncMillis <= 0 {
		t.Errorf("no floor: %+v", e.Floors)
	}
}

func BenchmarkPass(b *testing.B) {
	r := telemetry.New(telemetry.Config{})
	p, err := New(Config{Member: "s1", Metrics: r})
	if err != nil {
		b.Fatal(err)
	}
	kinds := []string{"read", "write", "list", "delete", "login", "renew"}
	stages := []string{"queue", "token", "storage", "apply"}
	b.ReportAllocs()
	for b.Loop() {
		for _, kind := range kinds {
			for _, stage := range stages {
				r.Timing("request.stage", "plane", "secrets", "kind", kind, "stage", stage).Observe(time.Millisecond)
			}
		}
		p.pass()
	}
}

// TestTellsThatItIsOver: whoever is told of findings is told, too, when there are none any more, and then left alone.
func TestTellsThatItIsOver(t *testing.T) {
	r := telemetry.New(telemetry.Config{})
	var told []int // findings each time
	p, err := New(Config{Member: "s1", Metrics: r, Tell: func(e doctor.Evidence) {
		told = append(told, len(doctor.Judge(&doctor.Cluster{At: e.At, Members: []doctor.Evidence{e}}).Findings))
	}})
	if err != nil {
		t.Fatal(err)
	}
	g := r.Gauge("host.cgroup.throttled", "who", "web-proxy")
	for _, value := range []float64{0, 0.8, 0.8, 0, 0, 0, 0, 0, 0} {
		g.Set(value)
		p.pass()
		p.judge()
	}
	if want := []int{1, 1, 0, 0, 0}; !slices.Equal(told, want) {
		t.Errorf("told of %v findings, want %v", told, want)
	}
}
