package runs

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"corbel.dev/corbel/kit/pack"
)

// TestPast compares a past with a list of spans that is kept in the plainest way.
func TestPast(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var p, copied Past
		var want, wantCopied []Span
		most, now := 1+rng.IntN(12), int64(1_700_000_000)
		for range rng.IntN(200) {
			now += rng.Int64N(100) - 5 // clocks go back at times
			status := uint32(rng.IntN(3)) * uint32(rng.IntN(2))
			if n := len(want); n > 0 && want[n-1].Status == status {
				want[n-1].Last, want[n-1].Runs = now, want[n-1].Runs+1
			} else {
				want = append(want, Span{status, now, now, 1})
			}
			began := p.Add(status, now)
			if began != (want[len(want)-1].Runs == 1) {
				t.Fatalf("a run of status %d begins a span: %v", status, began)
			}
			oldest := int64(0)
			if rng.IntN(4) == 0 {
				oldest = now - 300
			}
			p.Trim(most, oldest)
			for len(want) > 1 && (len(want) > most || want[0].Last < oldest) {
				want = want[1:]
			}
			if got := p.Spans(); !reflect.DeepEqual(got, want) || p.Len() != len(want) {
				t.Fatalf("at most %d:\n got %v\nwant %v", most, got, want)
			}
			if rng.IntN(20) == 0 {
				copied, wantCopied = p, p.Spans()
			}
		}
		if got := copied.Spans(); len(got)+len(wantCopied) > 0 && !reflect.DeepEqual(got, wantCopied) {
			t.Fatalf("a copy changed with its original:\n got %v\nwant %v", got, wantCopied)
		}
		b := AppendPast(nil, &p)
		r := pack.Read(b)
		if back := ReadPast(r); r.Err() != nil || r.More() || !reflect.DeepEqual(back.Spans(), p.Spans()) {
			t.Fatalf("read back (%v):\n got %v\nwant %v", r.Err(), back.Spans(), p.Spans())
		}
	}
}

// TestPastBounds has times and counts beyond what a span holds, and more spans than are ever kept.
func TestPastBounds(t *testing.T) {
	var p Past
	p.Add(0, -5)
	p.Add(0, 1<<40)
	p.newest.runs = 1<<32 - 1
	p.Add(0, 7)
	if want := []Span{{0, 0, 7, 1<<32 - 1}}; !reflect.DeepEqual(p.Spans(), want) {
		t.Errorf("%v, want %v", p.Spans(), want)
	}
	for i := range uint32(PastMost + 50) {
		p.Add(i%2+1, int64(i))
	}
	if p.Len() != PastMost {
		t.Errorf("%d spans, want %d", p.Len(), PastMost)
	}
}

func FuzzReadPast(f *testing.F) {
	var p Past
	for i := range uint32(9) {
		p.Add(i/2%3, 1_700_000_000+int64(i))
	}
	f.Add(AppendPast(nil, &p))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := pack.Read(b)
		p := ReadPast(r)
		if p.Len() > PastMost {
			t.Fatalf("%d spans", p.Len())
		}
		if again := ReadPast(pack.Read(AppendPast(nil, &p))); !reflect.DeepEqual(again.Spans(), p.Spans()) {
			t.Fatalf("%v, and read back %v", p.Spans(), again.Spans())
		}
	})
}
