package parts

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/definitions"
)

// goHome has each part whose home has its copy go there, as the leader of the plane has it done.
func (w *world) goHome(ctx context.Context) {
	w.t.Helper()
	polltest.NoError(w.t, time.Minute, func() error {
		for _, part := range []string{"a", "b", "c"} {
			now := w.servers[part].defs.View().Part(part)
			if now.Lead == part {
				continue
			}
			err := fmt.Errorf("part %s has %+v", part, now)
			if now.Copy == part {
				err = askYield(ctx, w.servers[part].parts, part, now, definitions.Part{Lead: now.Copy, Copy: now.Lead})
			}
			if err != nil {
				return err
			}
		}
		return w.lacks()
	}, "all parts to be at home")
}

// flow sends events of all parts until stop, which returns what was sent.
func (w *world) flow(ctx context.Context) (stop func() map[string]int64) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	sent, over := map[string]int64{}, make(chan struct{})
	for i, part := range []string{"a", "b", "c"} {
		wg.Go(func() {
			for n := int64(1); ; n++ {
				select {
				case <-over:
					return
				case <-time.After(2 * time.Millisecond):
				}
				if err := w.send(ctx, part, usage.Event{ID: fmt.Sprint(n), Source: fmt.Sprint("s", i), Tenant: part,
					Product: "bytes", Time: time.Now().UnixNano(), Value: usage.Int(n), HasValue: true}); err != nil {
					w.t.Error(err)
					return
				}
				mu.Lock()
				sent[part] += n
				mu.Unlock()
			}
		})
	}
	return func() map[string]int64 {
		close(over)
		wg.Wait()
		return sent
	}
}

// nobodyDoubts judges that no answer left whoever sent an event in doubt.
func (w *world) nobodyDoubts() {
	w.t.Helper()
	if n := w.unsure.Load(); n != 0 {
		last := w.doubt.Load()
		w.t.Errorf("%d requests ended in doubt, the last one with %v, after\n%s", n, last.err, strings.Join(last.told, "\n"))
	}
}

// TestOverseenHome: parts that are not at home are given back by the leader of the plane, while events come. Nobody is
// in doubt, and all are counted once.
func TestOverseenHome(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, 1, 4*time.Second) // a busy machine keeps nobody silent for so long
	w.patience = time.Minute
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	stop := w.flow(ctx)
	home := func() error {
		for _, part := range []string{"a", "b", "c"} {
			if now := w.servers["a"].defs.View().Part(part); now.Lead != part {
				return fmt.Errorf("part %s has %+v", part, now)
			}
		}
		return w.lacks()
	}
	for range 2 {
		for _, part := range []string{"a", "b", "c"} {
			polltest.NoError(t, time.Minute, func() error {
				now := w.servers[part].defs.View().Part(part)
				return askYield(ctx, w.servers[part].parts, part, now, definitions.Part{Lead: now.Copy, Copy: now.Lead})
			}, "part %s to leave its home", part)
		}
		polltest.NoError(t, time.Minute, home, "all parts to be at home")
	}
	w.judge(stop())
	w.nobodyDoubts()
}

// TestRolled: each server is stopped by plan and started again while events come, and gets its part back. None of the
// events is answered in a way that leaves its sender in doubt, all are counted once, and who is stopped has given
// everything up before. The metrics say how far each server is.
//
// Nobody is taken for dead meanwhile: on a machine that is busy a server would be that only stops slowly.
func TestRolled(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, 1, time.Hour)
	w.patience = time.Minute // whoever gives up sooner on a machine that is busy is in doubt by that alone
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	owned, warm, loading := w.sum("usage.shards.owned"), w.sum("usage.shards.warm"), w.sum("usage.warmup.shards")
	if owned != usage.Shards || warm != owned || loading != 0 {
		t.Errorf("%v shards are owned, %v are warm, %v are loading", owned, warm, loading)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	stop := w.flow(ctx)
	for _, id := range []string{"a", "b", "c"} {
		s := w.servers[id]
		s.parts.Drain(ctx)
		if left := s.parts.has(); len(left) > 0 || !w.moved(id) {
			t.Errorf("server %s was drained and still has %v", id, left)
		}
		if owned := s.value("usage.shards.owned"); owned != 0 {
			t.Errorf("server %s was drained and owns %v shards", id, owned)
		}
		w.mu.Lock()
		s.down = true
		w.mu.Unlock()
		s.stop()
		w.start(id, s.fs)
		polltest.Within(t, time.Minute, w.whole, "all parts to be whole after %s was rolled", id)
		w.goHome(ctx)
	}
	sent := stop()
	w.judge(sent)
	w.nobodyDoubts()
	// They went on from what they had; one with an empty disk has to load.
	w.lose("c")
	w.start("c", vfs.NewMem())
	polltest.NoError(t, time.Minute, func() error {
		if w.sum("usage.warmup.bytes") == 0 {
			return fmt.Errorf("nothing was loaded; server c has %v, and otherwise: %v",
				w.servers["c"].parts.has(), w.lacks())
		}
		return w.lacks()
	}, "a server with an empty disk to load, and all parts to be whole")
	w.judge(sent)
}

// TestNobodyElse: a server that is stopped alone keeps what it has, and does not wait for others.
func TestNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	for _, id := range []string{"b", "c"} {
		w.lose(id)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	s := w.servers["a"]
	s.parts.Drain(ctx)
	if now := s.defs.View().Part("a"); now.Lead != "a" {
		t.Errorf("nobody but server a was there, and now %+v", now)
	}
}

// value adds up a metric of a server, whatever its labels.
func (s *server) value(name string) (sum float64) {
	for _, one := range s.metrics.Series() {
		if one.Name != name || one.Declared {
			continue
		}
		if v, ok := one.GaugeValue(); ok {
			sum += v
		}
		if name == "usage.warmup.bytes" {
			sum += float64(one.CounterValue())
		}
	}
	return sum
}

func (w *world) sum(name string) (sum float64) {
	w.mu.Lock()
	servers := make([]*server, 0, len(w.servers))
	for _, s := range w.servers {
		servers = append(servers, s)
	}
	w.mu.Unlock()
	for _, s := range servers {
		sum += s.value(name)
	}
	return sum
}
