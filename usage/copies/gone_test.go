package copies

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage/slots"
)

// TestGone: what is asked of the keys of a host whose process has ended waits for the catalog's word, and not for ever;
// so does what is asked while nobody hears from the catalog.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		only := func(index uint64, id string) *View {
			return &View{Index: index, Map: slots.Assign([]slots.Node{{ID: id, Host: id, Port: 1}}, 2)}
		}
		var view atomic.Pointer[View]
		var age atomic.Int64
		gone := "b"
		h := New(Config{Self: "a", View: view.Load, Age: func() time.Duration { return time.Duration(age.Load()) },
			Gone: func(host string) bool { return host == gone }})
		view.Store(only(1, "b"))
		go func() {
			time.Sleep(2 * time.Second)
			view.Store(only(2, "c"))
		}()
		began := time.Now()
		if addr, err := h.Where(7); err != nil || addr != "c:1" || time.Since(began) < 2*time.Second {
			t.Errorf("%q %v after %s: it was to wait for the next owner", addr, err, time.Since(began))
		}
		began = time.Now()
		if addr, err := h.Where(7); err != nil || addr != "c:1" || time.Since(began) > 0 {
			t.Errorf("%q %v after %s: this owner lives", addr, err, time.Since(began))
		}
		gone, began = "c", time.Now()
		if addr, err := h.Where(7); err != nil || addr != "c:1" || time.Since(began) < goneWait {
			t.Errorf("%q %v after %s: nobody follows", addr, err, time.Since(began))
		}
		view.Store(only(3, "a"))
		age.Store(int64(time.Minute))
		began = time.Now()
		if addr, err := h.Where(7); !errkind.Is(err, errkind.Unavailable) || time.Since(began) < handWait {
			t.Errorf("%q %v after %s: others may own the key by now", addr, err, time.Since(began))
		}
	})
}
