package frame

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"corbel.dev/corbel/monitor"
)

// Whatever can be cut is cut into the same parts again from what Append makes of them.
func TestAppendIsTheReverseOfCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	some := func(b []byte) []byte {
		if rng.IntN(3) == 0 {
			return nil
		}
		return b
	}
	number := func() int64 { return int64(rng.Uint64() >> rng.IntN(64) & (1<<63 - 1) * uint64(rng.IntN(2))) }
	for range 10_000 {
		var f, again Frame
		f.Result = monitor.Result{Timestamp: number(), Sequence: number()}
		if rng.IntN(2) == 0 {
			f.ID = [16]byte{1, 2, 3}
		}
		f.Entity, f.Metrics = some(appendText(nil, entityMeta, appendText(nil, metaName, []byte("web-1")))),
			some([]byte("metrics"))
		f.Rest = some(appendText(nil, 5, []byte("metadata")))
		if f.HasCheck = rng.IntN(4) > 0; f.HasCheck {
			f.Issued, f.Executed, f.Duration, f.Status = number(), number(), float64(rng.IntN(2))*rng.Float64(),
				uint32(rng.IntN(3))
			f.Stable, f.Output, f.ProcessedBy = some(appendText(nil, 11, []byte("linux"))), some([]byte("all is well")),
				some([]byte("web-1"))
			f.Hooks = some(appendText(nil, checkHooks, []byte("a hook")))
			if rng.IntN(2) == 0 {
				f.Stable = appendText(f.Stable, checkMeta, appendText(nil, metaName, []byte("cpu")))
				f.Check = []byte("cpu")
			}
		}
		b := f.Append([]byte("before"))
		if !bytes.HasPrefix(b, []byte("before")) {
			t.Fatal("what was there is gone")
		}
		if err := again.Cut(b[len("before"):]); err != nil {
			t.Fatal(err)
		}
		if again.Result != f.Result || again.HasCheck != f.HasCheck {
			t.Fatalf("%+v became %+v", f, again)
		}
		for name, pair := range map[string][2][]byte{
			"check": {f.Check, again.Check}, "output": {f.Output, again.Output}, "stable": {f.Stable, again.Stable},
			"hooks":        {f.Hooks, again.Hooks},
			"processed_by": {f.ProcessedBy, again.ProcessedBy}, "entity": {f.Entity, again.Entity},
			"metrics": {f.Metrics, again.Metrics}, "rest": {f.Rest, again.Rest},
		} {
			if !bytes.Equal(pair[0], pair[1]) || pair[0] == nil && pair[1] != nil && len(pair[1]) > 0 {
				t.Fatalf("%s: %q became %q", name, pair[0], pair[1])
			}
		}
	}
}
