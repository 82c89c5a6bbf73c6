package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/leaktest"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestWakeReachesAllAndOnlyTheSubject(t *testing.T) {
	w := NewWaiters[string]()
	var holds []Watch[string]
	for range 100 {
		holds = append(holds, w.Watch("a"))
	}
	other := w.Watch("b")
	if w.Len() != 2 {
		t.Fatalf("%d subjects, want 2", w.Len())
	}
	if !w.Wake("a") || w.Wake("a") || w.Wake("never") {
		t.Fatal("wake must tell whether somebody watched")
	}
	for i := range holds {
		select {
		case <-holds[i].Woken():
		default:
			t.Fatal("watcher not woken")
		}
		holds[i].Stop()
		holds[i].Stop()
	}
	select {
	case <-other.Woken():
		t.Fatal("watcher of another subject woken")
	default:
	}
	other.Stop()
	if w.Len() != 0 {
		t.Fatalf("%d subjects left", w.Len())
	}
}

// A stop of a woken hold must not take the entry of those who watch again.
func TestStopAfterRewatch(t *testing.T) {
	w := NewWaiters[int]()
	first := w.Watch(1)
	w.Wake(1)
	second := w.Watch(1)
	first.Stop()
	if !w.Wake(1) {
		t.Fatal("the second watcher was forgotten")
	}
	second.Stop()
}

func TestNoWakeIsLost(t *testing.T) {
	w := NewWaiters[int]()
	var state atomic.Int64
	const last = 5000
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for seen := int64(0); seen < last; {
				hold := w.Watch(7)
				if now := state.Load(); now > seen {
					seen = now
				} else {
					<-hold.Woken()
				}
				hold.Stop()
			}
		})
	}
	for range last {
		state.Add(1)
		w.Wake(7)
	}
	group.Wait() // a lost wake-up would wait here for ever
	if w.Len() != 0 {
		t.Fatalf("%d subjects left", w.Len())
	}
}

func TestManyComeAndGo(t *testing.T) {
	w := NewWaiters[string]()
	for i := range 10_000 {
		hold := w.Watch(strconv.Itoa(i))
		defer hold.Stop()
	}
	if w.Len() != 10_000 {
		t.Fatal(w.Len())
	}
	w.WakeAll()
	if w.Len() != 0 {
		t.Fatalf("%d subjects left", w.Len())
	}
	for i := range w.shards {
		if len(w.shards[i].entries) != 0 {
			t.Fatal("entries left")
		}
	}
}

func TestLengths(t *testing.T) {
	var l Lengths
	if l.Watched() != nil {
		t.Fatal("lengths of nothing")
	}
	l.Add(7)
	l.Add(0)
	l.Add(7)
	l.Remove(7)
	if !slices.Equal(l.Watched(), []int{0, 7}) {
		t.Fatal(l.Watched())
	}
	l.Remove(7)
	l.Remove(0)
	if len(l.Watched()) != 0 {
		t.Fatal(l.Watched())
	}
}

func at(index uint64) func() uint64 { return func() uint64 { return index } }

func TestFollowResumes(t *testing.T) {
	s := NewStreams[string](StreamConfig{})
	if s.Followed("web") {
		t.Fatal("followed by nobody")
	}
	s.Publish("web", Event{Index: 9, Bytes: []byte("lost")})
	sub := s.Follow("web", 10, at(10))
	s.Publish("web", Event{Index: 10, Bytes: []byte("seen in the state")})
	for i := uint64(11); i <= 15; i++ {
		s.Publish("web", Event{Index: i, Bytes: fmt.Append(nil, i)})
	}
	for want := uint64(11); want <= 13; want++ {
		if e, err := sub.Next(t.Context()); err != nil || e.Index != want || string(e.Bytes) != fmt.Sprint(want) {
			t.Fatal(e, err)
		}
	}
	sub.Close()
	back := s.Follow("web", 13, at(99))
	if e, err := back.Next(t.Context()); err != nil || e.Index != 14 {
		t.Fatal(e, err)
	}
	back.Close()
	late := s.Follow("web", 9, at(99))
	if _, err := late.Next(t.Context()); !errors.Is(err, ErrReset) {
		t.Fatalf("got %v, want ErrReset", err)
	}
	late.Close()
}

func TestSlowFollowerIsReset(t *testing.T) {
	s := NewStreams[int](StreamConfig{MaxEvents: 10})
	slow, quick := s.Follow(1, 0, at(0)), s.Follow(1, 0, at(0))
	for i := uint64(1); i <= 30; i++ {
		s.Publish(1, Event{Index: i})
		if e, err := quick.Next(t.Context()); err != nil || e.Index != i {
			t.Fatal(e, err)
		}
	}
	if _, err := slow.Next(t.Context()); !errors.Is(err, ErrReset) {
		t.Fatal(err)
	}
	slow.Close()
	quick.Close()
}

func TestBoundsByBytesAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStreams[int](StreamConfig{MaxBytes: 100, MaxAge: time.Minute})
		sub := s.Follow(1, 0, at(0))
		for i := range 10 {
			s.Publish(1, Event{Index: uint64(i + 1), Bytes: make([]byte, 40)})
		}
		r := s.shard(1).rings[1]
		if len(r.events) != 2 || r.bytes != 80 || r.floor != 8 {
			t.Fatal(len(r.events), r.bytes, r.floor)
		}
		time.Sleep(2 * time.Minute) // the bubble's clock
		s.Publish(1, Event{Index: 11, Bytes: make([]byte, 400)})
		if len(r.events) != 1 || r.floor != 10 {
			t.Fatal(len(r.events), r.floor)
		}
		sub.Close()
		s.Sweep()
		if s.Len() != 1 {
			t.Fatal("the ring must outlive its last follower for a while")
		}
		time.Sleep(2 * time.Minute)
		s.Sweep()
		if s.Len() != 0 {
			t.Fatal("ring left")
		}
	})
}

func TestResetAndContextEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStreams[int](StreamConfig{})
		got := make(chan error, 2)
		ctx, cancel := context.WithCancel(t.Context())
		wait := func(ctx context.Context) {
			sub := s.Follow(1, 0, at(0))
			defer sub.Close()
			_, err := sub.Next(ctx)
			got <- err
		}
		go wait(ctx)
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		go wait(t.Context())
		synctest.Wait()
		s.Reset(ErrClosed)
		if err := <-got; !errors.Is(err, ErrClosed) || s.Len() != 0 {
			t.Fatal(err, s.Len())
		}
	})
}

// Whatever the bounds, a follower sees every event after its index in order, or ErrReset.
func TestFollowModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewStreams[int](StreamConfig{MaxEvents: rapid.IntRange(1, 6).Draw(t, "max")})
		var index uint64
		var published []uint64
		keep := s.Follow(0, 0, at(0))
		defer keep.Close()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "publish") {
				index += rapid.Uint64Range(1, 3).Draw(t, "gap")
				s.Publish(0, Event{Index: index})
				published = append(published, index)
				continue
			}
			since := rapid.Uint64Range(0, index+1).Draw(t, "since")
			var want, got []uint64
			for _, i := range published {
				if i > since {
					want = append(want, i)
				}
			}
			sub := s.Follow(0, since, at(index))
			var err error
			for range want {
				var e Event
				if e, err = sub.Next(context.Background()); err != nil {
					break
				}
				got = append(got, e.Index)
			}
			sub.Close()
			if err == nil && !slices.Equal(got, want) {
				t.Fatalf("since %d: got %v, want %v", since, got, want)
			}
			if err != nil && (!errors.Is(err, ErrReset) || len(got) > 0) {
				t.Fatalf("since %d: %v after %v", since, err, got)
			}
		}
	})
}

func BenchmarkWake10000(b *testing.B) {
	w := NewWaiters[string]()
	const n = 10_000
	start := make([]chan struct{}, n)
	var ready, done sync.WaitGroup
	var stop atomic.Bool
	for i := range n {
		start[i] = make(chan struct{}, 1)
		go func() {
			for range start[i] {
				if stop.Load() {
					return
				}
				hold := w.Watch("web")
				ready.Done()
				<-hold.Woken()
				hold.Stop()
				done.Done()
			}
		}()
	}
	for b.Loop() {
		b.StopTimer()
		ready.Add(n)
		done.Add(n)
		for _, c := range start {
			c <- struct{}{}
		}
		ready.Wait()
		b.StartTimer()
		w.Wake("web")
		done.Wait()
	}
	stop.Store(true)
	for _, c := range start {
		c <- struct{}{}
	}
}

func BenchmarkWakeNobody(b *testing.B) {
	w := NewWaiters[string]()
	hold := w.Watch("other")
	defer hold.Stop()
	b.ReportAllocs()
	for b.Loop() {
		w.Wake("some/key")
	}
}
