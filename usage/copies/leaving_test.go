package copies

import (
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/usage/slots"
)

// TestLeaving: a host whose keys go to another one sends nobody there who would be sent back: the other one has heard
// from the catalog that it is their owner.
func TestLeaving(t *testing.T) {
	w := newWorld(t, 1, "a", "b", "c")
	polltest.Within(t, time.Minute, func() bool { return w.whole(3) }, "all copies to be whole")
	a := w.hosts["a"]
	slot := -1
	for b := range slots.Blocks {
		if a.host.Mine(b * slots.Block) {
			slot = b * slots.Block
		}
	}
	if slot < 0 {
		t.Fatal("the host owns nothing")
	}
	heir, _ := without(a.sees(), "a").Owner(slot)
	next := w.hosts[heir.ID]
	w.mu.Lock()
	w.cut[next.id+"catalog"], next.cutAt = true, time.Now()
	index := w.decide("a", func(e *entry) { e.drains = true })
	w.mu.Unlock()
	polltest.Within(t, time.Minute, func() bool { return a.sees().Index >= uint64(index) }, "the word of the drain")
	began := time.Now()
	heard := time.AfterFunc(leaveWait/10, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.cut, next.id+"catalog")
	})
	defer heard.Stop()
	addr, err := a.host.Where(slot)
	took := time.Since(began)
	w.mu.Lock()
	seen := next.seen
	w.mu.Unlock()
	if err != nil || addr != heir.Addr() || seen < index && took < leaveWait {
		t.Errorf("after %v %q, %v, where %q has seen %d of %d", took, addr, err, heir.ID, seen, index)
	}
}
