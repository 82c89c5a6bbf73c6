package ingest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/frame"
)

// Of two servers one gets events as they are, and the other in brief where it does not ask for the whole: both know
// the same then.
func TestBriefIsTheEvent(t *testing.T) {
	direct, brief := start(t, vfs.NewMem()), start(t, vfs.NewMem())
	r := rand.New(rand.NewPCG(1, 2))
	asked, steps := 0, 2000
	for i := range steps {
		e := event(fmt.Sprint("web-", r.IntN(5)), fmt.Sprint("check-", r.IntN(3)), uint32(r.IntN(10)/8),
			int64(1_700_000_000+i))
		e.Check.Output = fmt.Sprint("run ", i/3)
		if r.IntN(20) == 0 {
			e.Check.Interval = uint32(10 + r.IntN(2))
		}
		if r.IntN(20) == 0 {
			e.Entity.Labels = map[string]string{"region": fmt.Sprint(r.IntN(2))}
		}
		e.Entity.LastSeen = int64(i)
		if r.IntN(10) == 0 {
			e.Metrics = &monitor.Metrics{Handlers: []string{"tsdb"}, Points: []*monitor.Point{{Name: "load", Value: float64(i)}}}
			e.Check.Hooks = []*monitor.Hook{{HookConfig: monitor.HookConfig{Meta: monitor.Meta{Name: "ps"}}, Output: "1 init"}}
		}
		b := tagproto.Append(nil, e)
		if err := direct.Frame(t.Context(), "default", b); err != nil {
			t.Fatal(err)
		}
		var f frame.Frame
		if err := f.Cut(b); err != nil {
			t.Fatal(err)
		}
		short, _ := AppendBrief(nil, &f)
		switch err := brief.TakeBrief(t.Context(), "default", short, new(frame.Frame)); {
		case errors.Is(err, ErrWhole):
			asked++
			if _, err := brief.Take(t.Context(), "default", b, &f, true); err != nil {
				t.Fatal(err)
			}
		case err != nil:
			t.Fatal(err)
		}
	}
	if asked < 15 || asked > steps/2 {
		t.Errorf("the whole of %d events of %d was asked for", asked, steps)
	}
	for n := range 5 {
		for c := range 3 {
			want, err := direct.Get("default", fmt.Sprint("web-", n), fmt.Sprint("check-", c))
			if err != nil {
				t.Fatal(err)
			}
			got, err := brief.Get("default", fmt.Sprint("web-", n), fmt.Sprint("check-", c))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%v\n got %+v %+v\nwant %+v %+v", err, got, got.Check, want, want.Check)
			}
		}
	}
	if a, b := direct.Stats(), brief.Stats(); a.Results != b.Results || a.Steady != b.Steady {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func FuzzBrief(f *testing.F) {
	var sent frame.Frame
	if err := sent.Cut(tagproto.Append(nil, event("web-1", "cpu", 1, 7))); err != nil {
		f.Fatal(err)
	}
	whole, _ := AppendBrief(nil, &sent)
	f.Add(whole)
	f.Add([]byte{})
	in := start(f, vfs.NewMem())
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := in.TakeBrief(t.Context(), "default", b, new(frame.Frame)); err == nil ||
			!errkind.Is(err, errkind.Invalid) && !errors.Is(err, ErrWhole) {
			t.Fatal(err)
		}
	})
}

// What there is one of for each check on each entity stays small enough to be collected cheaply.
func TestKeySize(t *testing.T) {
	if size := unsafe.Sizeof(key{}); size > 512 {
		t.Errorf("a key has %d bytes", size)
	}
}
