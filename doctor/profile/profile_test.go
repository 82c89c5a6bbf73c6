package profile

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/leaktest"
	"github.com/google/pprof/profile"
)

// made is a profile of samples, each a value and its functions, innermost first.
func made(samples ...any) *profile.Profile {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "count", Unit: "count"},
		{Type: "delay", Unit: "nanoseconds"}}, DurationNanos: int64(10 * time.Second)}
	known := map[string]*profile.Location{}
	for i := 0; i < len(samples); i += 2 {
		s := &profile.Sample{Value: []int64{1, int64(samples[i].(int)) * int64(time.Second)}}
		for _, name := range strings.Fields(samples[i+1].(string)) {
			l := known[name]
			if l == nil {
				f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name}
				l = &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}}
				p.Function, p.Location = append(p.Function, f), append(p.Location, l)
				known[name] = l
			}
			s.Location = append(s.Location, l)
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}

func TestSummarize(t *testing.T) {
	p := made(
		6, "runtime.gopark internal/poll.(*FD).Write net.(*conn).Write corbel.dev/corbel/telemetry/sink.(*Tap).flush "+
			"corbel.dev/corbel/core/group.(*meters).observe github.com/hashicorp/raft.(*Raft).dispatchLogs "+
			"github.com/hashicorp/raft.(*Raft).leaderLoop",
		3, "sync.(*Mutex).Lock corbel.dev/corbel/secrets/policy.(*Cache).Get corbel.dev/corbel/api/vaultapi.(*API).serve "+
			"net/http.(*conn).serve x.y",
		90, "runtime.selectgo corbel.dev/corbel/kit/queue.(*Queue).Run", // waits for work
		1, "sync.(*RWMutex).Lock corbel.dev/corbel/catalog.(*State).Apply corbel.dev/corbel/core/group.(*fsm).Apply "+
			"github.com/hashicorp/raft.(*Raft).runFSM",
	)
	got := Summarize(doctor.StackBlocked, p)
	if len(got) != 3 {
		t.Fatalf("%d stacks: %+v", len(got), got)
	}
	first := got[0]
	if first.Package != "corbel.dev/corbel/telemetry/sink" || first.Function != "(*Tap).flush" ||
		first.Stage != "commit" || first.Share != 0.6 || first.Seconds != 0.6 {
		t.Errorf("first is %+v", first)
	}
	if got[1].Plane != "secrets" || got[1].Package != "corbel.dev/corbel/secrets/policy" || got[2].Stage != "apply" {
		t.Errorf("then %+v", got[1:])
	}
}

// TestLookSeesAWaitInASystemCall: a goroutine that hangs in a socket is found where it hangs, which no profile of
// blocking shows.
func TestLookSeesAWaitInASystemCall(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer b.Close()
	wg.Go(func() {
		h := slog.New(slog.NewTextHandler(a, nil)) // a log that nobody reads
		h.Info("x")
	})
	p := New(Config{})
	p.look(t.Context())
	taken, ok := p.Before(doctor.StackWaiting, 0)
	if !ok || len(taken.Bytes) == 0 {
		t.Fatal("nothing was kept")
	}
	for _, s := range p.Stacks() {
		if s.Kind == doctor.StackWaiting && s.Package == "log/slog" {
			return
		}
	}
	t.Errorf("not seen: %+v", p.Stacks())
}

// TestKept: the newest profile is kept, and enough of former ones to compare it with an hour ago.
func TestKept(t *testing.T) {
	var all []Taken
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, ok := before(all, start); ok {
		t.Error("there is none yet")
	}
	now := start
	for minute := range 300 {
		now = start.Add(time.Duration(minute) * time.Minute)
		all = with(all, Taken{At: now})
		if len(all) > Kept || !all[len(all)-1].At.Equal(now) {
			t.Fatalf("minute %d: %d are kept, the newest of %s", minute, len(all), all[len(all)-1].At)
		}
		got, _ := before(all, now.Add(-time.Hour))
		if age := now.Sub(got.At); minute >= 70 && (age < time.Hour || age >= time.Hour+Spacing+time.Minute) {
			t.Fatalf("minute %d: an hour ago is %s ago", minute, age)
		}
	}
	if got, _ := before(all, start); !got.At.Equal(all[0].At) {
		t.Errorf("for longer ago than any, the oldest: %s", got.At)
	}
	if got, _ := before(all, now); !got.At.Equal(now) {
		t.Errorf("the newest: %s", got.At)
	}
}

// waitsForSomebody is blocked for longer than blockRate, which is always counted.
func waitsForSomebody() { <-time.After(3 * blockRate) }

// TestBlockedCountedWhileWatched: nobody pays for counting who is blocked while nobody watches, and what is told is
// of the time that was watched.
func TestBlockedCountedWhileWatched(t *testing.T) {
	var c counted
	c.read(doctor.StackBlocked)
	waitsForSomebody()
	if got := c.read(doctor.StackBlocked); got != nil {
		t.Errorf("counted though nobody watches: %v", got)
	}
	began := time.Now()
	c.watchBlocked()
	waitsForSomebody()
	got := c.read(doctor.StackBlocked)
	watched := time.Since(began)
	c.ignoreBlocked()
	if got == nil || !strings.Contains(got.String(), "waitsForSomebody") {
		t.Fatalf("it was not seen: %v", got)
	}
	if took := time.Duration(got.DurationNanos); took < 3*blockRate || took > watched {
		t.Errorf("it says that it watched for %s, and did for %s", took, watched)
	}
	waitsForSomebody()
	if got := c.read(doctor.StackBlocked); got != nil {
		t.Errorf("counted after the end: %v", got)
	}
}

// TestYield: whoever wants the runtime's profiler gets it at once.
func TestYield(t *testing.T) {
	leaktest.Check(t)
	p := New(Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { p.takeCPU(ctx) })
	defer wg.Wait()
	defer cancel()
	least := time.Hour // one of three is enough where the machine is busy
	for range 3 {
		began := time.Now()
		done := p.Yield()
		least = min(least, time.Since(began))
		if err := pprof.StartCPUProfile(io.Discard); err != nil {
			t.Error(err)
		}
		pprof.StopCPUProfile()
		done()
	}
	if least > cpuTime {
		t.Errorf("it took %s", least)
	}
}

func TestFlameIsSVG(t *testing.T) {
	p := made(6, "runtime.gopark corbel.dev/corbel/a.F<int> corbel.dev/corbel/b.G", 2, "corbel.dev/corbel/b.G", 1,
		strings.Repeat("deep.f ", 300))
	var compressed, svg bytes.Buffer
	if err := p.Write(&compressed); err != nil {
		t.Fatal(err)
	}
	if err := Flame(&svg, compressed.Bytes(), "blocked <s1>"); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(svg.Bytes()))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %.300s", err, svg.String())
		}
	}
	if !strings.Contains(svg.String(), "a.F&lt;int&gt; 66.7%") {
		t.Errorf("no share of a function in %.600s", svg.String())
	}
	if err := Flame(io.Discard, []byte("nonsense"), ""); err == nil {
		t.Error("nonsense was drawn")
	}
}

func TestRunEnds(t *testing.T) {
	leaktest.Check(t)
	p := New(Config{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	p.Slow()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
