// Package sketch counts distinct hashes: exactly while they are few, in an UltraLogLog when they are many, and both
// apart for up to 64 slots of time.
//
// Sketch is an UltraLogLog (Ertl, "UltraLogLog: A Practical and More Space-Efficient Alternative to HyperLogLog for
// Approximate Distinct Counting", VLDB 2024): one byte a register, 2^precision registers, a standard error of
// 0.761/sqrt(2^precision) with the maximum-likelihood estimator. 8 kB give 0.84 %, where HyperLogLog takes 16 kB for
// 0.81 %. State and packing are those of the paper, so its published vectors hold.
//
// Distinct holds for each hash a mask of the slots in which it was seen, up to a limit of hashes, and beyond it a
// Sketch for each slot; it never goes back. All of it is deterministic: what was added decides the bytes, not the
// order. Merging is associative, commutative and idempotent. Hashes must be uniform (keyed); their topmost bits are
// the register, so a range of hashes is a range of registers and can be cut out. Values are not safe for concurrent
// use.
package sketch

import (
	"errors"
	"math"
	"math/bits"
)

// The precisions that a sketch may have.
const (
	MinPrecision = 3
	MaxPrecision = 18
)

// varianceFactor is that of the maximum-likelihood estimator: ln(2)/zeta(2, 5/4), from the paper.
const varianceFactor = 0.5789111356311075

// biasFactor is the first-order bias of the same estimator: it is too large by 0.48147/m.
const biasFactor = 0.48147376527720065

// ErrDamaged refuses bytes that are no sketch.
var ErrDamaged = errors.New("sketch: damaged")

// RelativeError is the standard error of an estimate at a precision.
func RelativeError(precision int) float64 {
	return math.Sqrt(varianceFactor / float64(uint64(1)<<precision))
}

// Sketch is an UltraLogLog. The zero value is none: use New.
type Sketch struct {
	// registers are 2^precision bytes. A byte is 4u+b: u-1 is the largest update value (the zeros before the first
	// one bit of a hash, behind the bits of the index) plus precision, and b says whether the two values below
	// occurred.
	registers []byte
}

// New makes an empty sketch of 2^precision bytes.
func New(precision int) *Sketch {
	if precision < MinPrecision || precision > MaxPrecision {
		panic("sketch: precision out of range")
	}
	return &Sketch{make([]byte, 1<<precision)}
}

// Precision is the logarithm of the number of registers.
func (s *Sketch) Precision() int { return bits.TrailingZeros(uint(len(s.registers))) }

// packed and unpacked turn a register into a set of update values, one bit each, of which it keeps the topmost three.
func packed(seen uint64) byte {
	n := bits.LeadingZeros64(seen) + 1
	return byte(-n<<2) | byte(seen<<n>>62)
}

func unpacked(register byte) uint64 {
	return uint64(4|register&3) << (register>>2 - 2) // 0 and 4, which hold nothing yet, shift everything out
}

// Add adds a hash and reports whether the sketch changed.
func (s *Sketch) Add(hash uint64) bool {
	p := s.Precision()
	r := &s.registers[hash>>(64-p)]
	zeros := bits.LeadingZeros64(^(^hash << p))
	before := *r
	*r = packed(unpacked(before) | 1<<(zeros+p-1))
	return *r != before
}

// Merge adds what another sketch has. One of a higher precision is reduced; s is reduced to a lower one for good.
func (s *Sketch) Merge(other *Sketch) {
	if len(other.registers) < len(s.registers) {
		*s = *s.Reduced(other.Precision())
	} else if len(other.registers) > len(s.registers) {
		other = other.Reduced(s.Precision())
	}
	for i, r := range other.registers {
		if r > 0 && r != s.registers[i] {
			s.registers[i] = mergeRegisters(s.registers[i], r)
		}
	}
}

func mergeRegisters(a, b byte) byte {
	if both := unpacked(a) | unpacked(b); both != 0 {
		return packed(both)
	}
	return 0
}

// Reduced returns the sketch that the same hashes give at a lower precision.
func (s *Sketch) Reduced(precision int) *Sketch {
	small := New(precision)
	cut := s.Precision() - precision
	if cut < 0 {
		panic("sketch: a precision cannot be raised")
	}
	for i, r := range s.registers {
		if r == 0 {
			continue
		}
		// The lower bits of the former index come before the hash's other bits: where they are zero, the zeros go on
		// behind them, and an update value is what it was plus cut. That is the same bit, since the index is shorter.
		seen := unpacked(r)
		if low := uint(i) & (1<<cut - 1); low != 0 {
			seen = 1 << (cut - bits.Len(low) + precision - 1)
		}
		to := &small.registers[i>>cut]
		*to = packed(unpacked(*to) | seen)
	}
	return small
}

// Cut empties the registers of a range of hashes: from 2^(64-width) * first, one of 2^width equal parts.
func (s *Sketch) Cut(part, width int) {
	size := len(s.registers) >> width
	clear(s.registers[part*size : (part+1)*size])
}

// Copy copies the registers of a part, as Cut has it, of another sketch of the same precision.
func (s *Sketch) Copy(other *Sketch, part, width int) {
	size := len(s.registers) >> width
	copy(s.registers[part*size:(part+1)*size], other.registers[part*size:])
}

// Clone returns a copy.
func (s *Sketch) Clone() *Sketch { return &Sketch{append([]byte(nil), s.registers...)} }

// Empty reports whether nothing was added.
func (s *Sketch) Empty() bool {
	for _, r := range s.registers {
		if r != 0 {
			return false
		}
	}
	return true
}

// Estimate is the number of distinct hashes that most likely left this state.
//
// With n hashes, update value k (from 1) of a register occurs with a rate of n/m * 2^-k. The likelihood of all
// registers together is a function of two histograms: unseen, the sum of 2^-k over the values that did not occur and
// could still be told, and seen[k], how many registers saw value k. Its maximum is where
// sum(seen[k] * 2^-k / (exp(x*2^-k)-1)) = unseen for x = n/m: convex and falling, so Newton's steps from the left
// never pass the root.
func (s *Sketch) Estimate() float64 {
	p, m := s.Precision(), float64(len(s.registers))
	var counts [256]int
	for _, r := range s.registers {
		counts[r]++
	}
	top := 65 - p // the largest update value: all bits behind the index are zero
	rate := func(k int) float64 { return math.Ldexp(1, -min(k, top-1)) }
	var unseen float64
	var seen [66]float64
	for r, count := range counts {
		if count == 0 {
			continue
		}
		n := float64(count)
		set := unpacked(byte(r))
		if set == 0 {
			unseen += n
			continue
		}
		u := bits.Len64(set) - p + 1
		seen[u] += n
		if u < top {
			unseen += n * rate(u) // all larger values together
		}
		for below := 1; below <= 2 && u-below >= 1; below++ {
			if set&(1<<(u-below+p-2)) != 0 {
				seen[u-below] += n
			} else {
				unseen += n * rate(u-below)
			}
		}
	}
	return m * solve(unseen, seen[1:top+1], rate) / (1 + biasFactor/m)
}

func solve(unseen float64, seen []float64, rate func(k int) float64) float64 {
	total, weighted := 0.0, 0.0
	for i, n := range seen {
		total += n
		weighted += n * rate(i+1)
	}
	if total == 0 {
		return 0
	}
	if unseen == 0 {
		return math.Inf(1) // every register is full: more than 2^64 hashes
	}
	// 1/(exp(y)-1) >= 1/y - 1/2, which gives a starting point left of the root.
	x := total / (unseen + weighted/2)
	for range 100 {
		f, slope := -unseen, 0.0
		for i, n := range seen {
			if n == 0 {
				continue
			}
			w := rate(i + 1)
			e := math.Expm1(x * w)
			if math.IsInf(e, 1) {
				continue
			}
			g := n * w / e
			f += g
			slope -= g * w * (1 + 1/e)
		}
		step := -f / slope
		if x += step; math.Abs(step) <= x*1e-12 {
			break
		}
	}
	return x
}
