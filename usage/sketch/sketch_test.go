package sketch

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/axiomhq/hyperloglog"
	"pgregory.net/rapid"
)

var long = flag.Bool("long", false, "10,000 trials of the stated bound, as the contract's acceptance wants")

// TestPublishedRegisters has the vectors of the reference implementation (hash4j, UltraLogLogTest).
func TestPublishedRegisters(t *testing.T) {
	for seen, want := range map[uint64]byte{4: 8, 5: 9, 6: 10, 7: 11, 8: 12, 9: 12, 10: 13, 11: 13, 12: 14,
		1 << 11: 44, 1 << 12: 48, 1<<11 | 1<<12: 50, 1 << 13: 52, 1 << 63: 252, math.MaxUint64: 255} {
		if got := packed(seen); got != want {
			t.Errorf("pack %#x: %d, want %d", seen, got, want)
		}
	}
	for register, want := range map[byte]uint64{0: 0, 4: 0, 8: 4, 9: 5, 10: 6, 11: 7, 12: 8, 13: 10, 14: 12, 44: 1 << 11,
		45: 1<<11 + 1<<9, 46: 1<<11 + 1<<10, 47: 1<<11 + 1<<10 + 1<<9, 255: 0xE000000000000000} {
		if got := unpacked(register); got != want {
			t.Errorf("unpack %d: %#x, want %#x", register, got, want)
		}
	}
	for p := MinPrecision; p <= MaxPrecision; p++ {
		for r := 4*p - 4; r < 256; r++ {
			if got := packed(unpacked(byte(r))); got != byte(r) {
				t.Errorf("%d becomes %d", r, got)
			}
		}
		for i := p; i <= 64; i++ { // hashes of index 0 with i-p zeros behind the index
			s := New(p)
			s.Add(math.MaxUint64 >> 1 >> (i - 1))
			if got := int(s.registers[0]>>2) + 2 - p; got != i-p+1 {
				t.Errorf("precision %d, update value %d: %d", p, i-p+1, got)
			}
		}
	}
	if got := RelativeError(14); math.Abs(got-0.7608621/128) > 1e-8 {
		t.Errorf("relative error at 14: %v", got)
	}
}

// TestPublishedErrorsOfOneHash compares bias and root-mean-square error at one hash, in units of the theoretical
// error, with the reference's table (UltraLogLogTest, maximum likelihood).
func TestPublishedErrorsOfOneHash(t *testing.T) {
	rms := []float64{0.1344, 0.0969, 0.0693, 0.0493, 0.035, 0.0248, 0.0176, 0.0124, 0.0088, 0.0062, 0.0044, 0.0031}
	bias := []float64{0.0959, 0.0723, 0.0528, 0.0379, 0.027, 0.0192, 0.0136, 0.0096, 0.0068, 0.0048, 0.0034, 0.0025}
	for i := range rms {
		p := i + MinPrecision
		var sum, squares float64 // over all update values, each with its probability
		for k := 1; k <= 65-p; k++ {
			s := New(p)
			s.Add(math.MaxUint64 >> 1 >> (p + k - 2))
			e := s.Estimate() - 1
			w := math.Ldexp(1, -min(k, 64-p))
			sum, squares = sum+w*e, squares+w*e*e
		}
		gotBias, gotRMS := math.Abs(sum)/RelativeError(p), math.Sqrt(squares)/RelativeError(p)
		if math.Abs(gotBias-bias[i]) > 0.02*bias[i]+1e-4 || math.Abs(gotRMS-rms[i]) > 0.02*rms[i]+1e-4 {
			t.Errorf("precision %d: bias %.4f, error %.4f; published %.4f, %.4f", p, gotBias, gotRMS, bias[i], rms[i])
		}
	}
}

func random(r *rand.Rand, n int) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = r.Uint64()
	}
	return list
}

func filled(precision int, hashes []uint64) *Sketch {
	s := New(precision)
	for _, h := range hashes {
		s.Add(h)
	}
	return s
}

// TestReducedIsTheSameAsLowerFromTheStart is the trap "sketches of different precision merge down".
func TestReducedIsTheSameAsLowerFromTheStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		from := rapid.IntRange(MinPrecision, 12).Draw(t, "from")
		to := rapid.IntRange(MinPrecision, from).Draw(t, "to")
		hashes := random(r, rapid.IntRange(0, 2000).Draw(t, "count"))
		for i := range hashes {
			if i%3 == 0 {
				hashes[i] >>= uint(i % 64) // small indexes and many zeros
			}
		}
		got, want := filled(from, hashes).Reduced(to), filled(to, hashes)
		if string(got.registers) != string(want.registers) {
			t.Fatalf("from %d to %d: %x, want %x", from, to, got.registers, want.registers)
		}
	})
}

func TestMergeIsUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		a, b := random(r, rapid.IntRange(0, 500).Draw(t, "a")), random(r, rapid.IntRange(0, 500).Draw(t, "b"))
		p, q := rapid.IntRange(4, 10).Draw(t, "p"), rapid.IntRange(4, 10).Draw(t, "q")
		want := filled(min(p, q), append(append([]uint64(nil), a...), b...))
		one, two := filled(p, a), filled(q, b)
		one.Merge(two)
		one.Merge(filled(q, b))
		two.Merge(filled(p, a))
		if string(one.registers) != string(want.registers) || string(two.registers) != string(want.registers) {
			t.Fatal("a merge is not the union")
		}
	})
}

// TestErrorIsAsStated is the contract's acceptance (section 9, error): bias and standard error over many sketches,
// and the kept library's on the same hashes beside them.
func TestErrorIsAsStated(t *testing.T) {
	const precision, trials = 12, 200
	r := rand.New(rand.NewPCG(3, 3))
	for _, n := range []int{1, 10, 100, 1000, 4096, 10_000, 60_000} {
		var sum, squares, oracle float64
		for range trials {
			s := New(precision)
			kept, err := hyperloglog.NewSketch(14, false)
			if err != nil {
				t.Fatal(err)
			}
			for range n {
				h := r.Uint64()
				s.Add(h)
				kept.InsertHash(h)
			}
			e := s.Estimate()/float64(n) - 1
			sum, squares = sum+e, squares+e*e
			e = float64(kept.Estimate())/float64(n) - 1
			oracle += e * e
		}
		bias, deviation, stated := sum/trials, math.Sqrt(squares/trials), RelativeError(precision)
		t.Logf("%d hashes: bias %+.5f, error %.5f, stated %.5f; hyperloglog at 14: %.5f", n, bias, deviation, stated,
			math.Sqrt(oracle/trials))
		if deviation > stated*1.2 || math.Abs(bias) > 4*stated/math.Sqrt(trials)+1e-4 {
			t.Errorf("%d hashes: bias %+.5f, error %.5f, stated %.5f", n, bias, deviation, stated)
		}
	}
}

// TestBoundHolds is the contract's acceptance "stated bound holds in >= 99 % of 10,000 trials".
func TestBoundHolds(t *testing.T) {
	trials, sizes := 1000, []int{5_000, 20_000}
	if *long {
		trials, sizes = 10_000, []int{5_000, 20_000, 100_000}
	}
	r := rand.New(rand.NewPCG(4, 4))
	for _, n := range sizes {
		held := 0
		for range trials {
			d := NewDistinct(100, 12)
			for range n {
				d.Add(r.Uint64(), 0)
			}
			if c := d.Count(1); c.Low <= uint64(n) && uint64(n) <= c.High {
				held++
			}
		}
		t.Logf("%d hashes: the bound held in %d of %d trials", n, held, trials)
		// Three standard deviations of a bound that holds in 99.3 % are 0.8 % at 1,000 trials.
		if float64(held) < float64(trials)*0.99-3*math.Sqrt(float64(trials)*0.0069) {
			t.Errorf("%d hashes: the bound held in %d of %d trials", n, held, trials)
		}
	}
}

// TestLargeCounts goes where no test can add one by one: registers are drawn from their distribution.
func TestLargeCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, n := range []float64{1e7, 1e8, 1e12, 1e18} {
		const precision = 14
		s := New(precision)
		for i := range s.registers {
			seen := uint64(0)
			for k := 1; k <= 65-precision; k++ {
				lambda := n / float64(len(s.registers)) * math.Ldexp(1, -min(k, 64-precision))
				if r.Float64() < -math.Expm1(-lambda) {
					seen |= 1 << (k + precision - 2)
				}
			}
			if seen != 0 {
				s.registers[i] = packed(seen)
			}
		}
		if e := s.Estimate()/n - 1; math.Abs(e) > 4*RelativeError(precision) {
			t.Errorf("%g hashes: off by %.4f", n, e)
		}
	}
	full := New(MinPrecision)
	for i := range full.registers {
		full.registers[i] = 255
	}
	if e := full.Estimate(); !math.IsInf(e, 1) {
		t.Errorf("a full sketch has %v", e)
	}
	if e := New(14).Estimate(); e != 0 {
		t.Errorf("an empty sketch has %v", e)
	}
}

func BenchmarkAdd(b *testing.B) {
	s, h := New(14), uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		h = h*6364136223846793005 + 1442695040888963407
		s.Add(h)
	}
}

func BenchmarkEstimate(b *testing.B) {
	s := filled(14, random(rand.New(rand.NewPCG(6, 6)), 100_000))
	b.ReportAllocs()
	for b.Loop() {
		s.Estimate()
	}
}
