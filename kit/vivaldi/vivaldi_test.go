package vivaldi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestTwoPlacesAreToldApart: hosts of two sites, 1 ms within and 80 ms between, find where they are
// from measurements with noise.
func TestTwoPlacesAreToldApart(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const hosts = 12
	var all [hosts]*Client
	for i := range all {
		all[i] = NewClient()
	}
	rtt := func(i, j int) time.Duration {
		base := time.Millisecond
		if i%2 != j%2 {
			base = 80 * time.Millisecond
		}
		noisy := time.Duration(float64(base) * (1 + 0.1*random.Float64()))
		if random.IntN(20) == 0 {
			noisy *= 10 // one late answer
		}
		return noisy
	}
	for range 400 {
		for i := range all {
			if j := random.IntN(hosts); j != i {
				if !all[i].Observe(fmt.Sprint(j), all[j].Coord(), rtt(i, j)) {
					t.Fatal("a good measurement is refused")
				}
			}
		}
	}
	for i := range all {
		for j := range i {
			a, b := all[i].Coord(), all[j].Coord()
			d := a.Distance(&b)
			if i%2 == j%2 && d > 25*time.Millisecond || i%2 != j%2 && (d < 55*time.Millisecond || d > 120*time.Millisecond) {
				t.Errorf("hosts %d and %d: %v", i, j, d)
			}
			if d != b.Distance(&a) {
				t.Errorf("hosts %d and %d: the way back is another", i, j)
			}
		}
		if all[i].Resets() > 0 {
			t.Errorf("host %d began anew", i)
		}
	}
}

func TestBadValuesCountForNothing(t *testing.T) {
	c := NewClient()
	before := c.Coord()
	bad := New()
	bad.Vec[3] = math.NaN()
	huge := New()
	huge.Height = math.Inf(1)
	for _, o := range []Coord{bad, huge, {Error: -1}} {
		if c.Observe("x", o, time.Millisecond) {
			t.Errorf("%v is believed", o)
		}
	}
	if c.Observe("x", New(), -time.Millisecond) || c.Observe("x", New(), time.Minute) || c.Observe("x", New(), 0) {
		t.Error("a round trip that cannot be is believed")
	}
	if c.Coord() != before {
		t.Error("what was refused moved the host")
	}
}

func TestPeersAreBounded(t *testing.T) {
	c := NewClient()
	for i := range 3 * peersMax {
		c.Observe(fmt.Sprint(i), New(), time.Millisecond)
	}
	if len(c.last) > peersMax {
		t.Errorf("%d peers are kept", len(c.last))
	}
	c.Observe("p", New(), time.Millisecond)
	c.Forget("p")
	if c.last["p"] != nil {
		t.Error("a peer that went is kept")
	}
}

func FuzzDecode(f *testing.F) {
	c := New()
	c.Vec[0], c.Adjustment = 0.02, -0.001
	f.Add(c.Append(nil))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			return
		}
		if again, err := Decode(c.Append(nil)); err != nil || again != c || !c.Valid() {
			t.Fatalf("%x: %v, %v", b, again, err)
		}
	})
}
