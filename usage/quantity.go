package usage

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// Quantity is a signed integer of 128 bits: sums are exact beyond 2^63. The zero value is 0.
type Quantity struct {
	Hi int64
	Lo uint64
}

// MaxDigits bounds the digits of one value: 2^46 of the largest still fit into a sum.
const MaxDigits = 24

// Int makes a quantity of an int64.
func Int(v int64) Quantity { return Quantity{Hi: v >> 63, Lo: uint64(v)} }

// Uint makes a quantity of a uint64.
func Uint(v uint64) Quantity { return Quantity{Lo: v} }

// Add returns q+r. Beyond 128 bits it stays at the largest or smallest quantity, and ok is false.
func (q Quantity) Add(r Quantity) (sum Quantity, ok bool) {
	lo, carry := bits.Add64(q.Lo, r.Lo, 0)
	hi, _ := bits.Add64(uint64(q.Hi), uint64(r.Hi), carry)
	sum = Quantity{Hi: int64(hi), Lo: lo}
	if (q.Hi < 0) == (r.Hi < 0) && (sum.Hi < 0) != (q.Hi < 0) {
		if q.Hi < 0 {
			return Quantity{Hi: math.MinInt64}, false
		}
		return Quantity{Hi: math.MaxInt64, Lo: math.MaxUint64}, false
	}
	return sum, true
}

// Neg returns -q.
func (q Quantity) Neg() Quantity {
	lo, borrow := bits.Sub64(0, q.Lo, 0)
	hi, _ := bits.Sub64(0, uint64(q.Hi), borrow)
	return Quantity{Hi: int64(hi), Lo: lo}
}

// Compare returns -1, 0 or 1 as q is less than, equal to or greater than r.
func (q Quantity) Compare(r Quantity) int {
	switch {
	case q.Hi < r.Hi, q.Hi == r.Hi && q.Lo < r.Lo:
		return -1
	case q == r:
		return 0
	}
	return 1
}

// Float returns the nearest float64: for ratios and bounds, never for what is stored.
func (q Quantity) Float() float64 {
	if q.Hi < 0 {
		n := q.Neg() // or -1 would be -2^64 + 2^64
		return -(float64(uint64(n.Hi))*0x1p64 + float64(n.Lo))
	}
	return float64(q.Hi)*0x1p64 + float64(q.Lo)
}

// Scale divides by a sampling rate in (0, 1], rounded to the nearest integer. Values beyond 2^53 keep their upper
// 53 bits: a sampled count is an estimate to begin with.
func (q Quantity) Scale(rate float64) Quantity {
	if rate == 1 {
		return q
	}
	f := new(big.Float).Quo(big.NewFloat(q.Float()), big.NewFloat(rate))
	if q.Hi < 0 {
		f.Sub(f, big.NewFloat(0.5))
	} else {
		f.Add(f, big.NewFloat(0.5))
	}
	n, _ := f.Int(nil)
	var low big.Int
	low.And(n, new(big.Int).SetUint64(math.MaxUint64))
	return Quantity{Hi: new(big.Int).Rsh(n, 64).Int64(), Lo: low.Uint64()}
}

// Append writes q in decimal.
func (q Quantity) Append(b []byte) []byte {
	if q.Hi == int64(q.Lo)>>63 {
		return strconv.AppendInt(b, int64(q.Lo), 10)
	}
	hi, lo := uint64(q.Hi), q.Lo
	if q.Hi < 0 {
		n := q.Neg()
		hi, lo, b = uint64(n.Hi), n.Lo, append(b, '-')
	}
	const chunk = 1e19 // the largest power of ten that fits into 64 bits
	var parts [3]uint64
	n := 0
	for hi != 0 {
		var upper uint64
		upper, hi = hi/chunk, hi%chunk
		lo, parts[n] = bits.Div64(hi, lo, chunk)
		hi, n = upper, n+1
	}
	b = strconv.AppendUint(b, lo, 10)
	for n--; n >= 0; n-- {
		digits := strconv.AppendUint(nil, parts[n], 10)
		for range 19 - len(digits) {
			b = append(b, '0')
		}
		b = append(b, digits...)
	}
	return b
}

// String returns q in decimal.
func (q Quantity) String() string { return string(q.Append(nil)) }

// UnmarshalJSON reads what MarshalJSON wrote, or a text of digits.
func (q *Quantity) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	v, ok := new(big.Int), len(text) <= 40
	if ok {
		_, ok = v.SetString(text, 10)
	}
	if !ok || v.BitLen() > 127 {
		return Wrong("value", "%.40q is no integer of 128 bits", text)
	}
	var wide [16]byte
	new(big.Int).Abs(v).FillBytes(wide[:])
	*q = Quantity{Hi: int64(binary.BigEndian.Uint64(wide[:8])), Lo: binary.BigEndian.Uint64(wide[8:])}
	if v.Sign() < 0 {
		*q = q.Neg()
	}
	return nil
}

// MarshalJSON writes an integer, never a float.
func (q Quantity) MarshalJSON() ([]byte, error) { return q.Append(nil), nil }

// ParseQuantity reads an integer of at most MaxDigits digits. A fraction of zeros and an exponent that leaves an
// integer are read too, as encoders of floats write them: 1.0, 1e3.
func ParseQuantity(s string) (q Quantity, ok bool) {
	digits, negative := s, false
	if len(digits) > 0 && (digits[0] == '-' || digits[0] == '+') {
		digits, negative = digits[1:], digits[0] == '-'
	}
	if q, ok = parseDigits(digits); !ok {
		q, ok = parseScientific(digits)
	}
	if negative {
		q = q.Neg()
	}
	return q, ok
}

func parseDigits(digits string) (q Quantity, ok bool) {
	if len(digits) == 0 || len(digits) > MaxDigits {
		return q, false
	}
	for i := range len(digits) {
		c := digits[i] - '0'
		if c > 9 {
			return Quantity{}, false
		}
		hi, lo := bits.Mul64(q.Lo, 10)
		lo, carry := bits.Add64(lo, uint64(c), 0)
		q = Quantity{Hi: q.Hi*10 + int64(hi+carry), Lo: lo}
	}
	return q, true
}

// parseScientific reads numbers with a point or an exponent by moving the point in the text, so that nothing rounds.
func parseScientific(s string) (q Quantity, ok bool) {
	mantissa, power := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		n, err := strconv.Atoi(s[i+1:])
		if err != nil || n < -MaxDigits || n > MaxDigits {
			return q, false
		}
		mantissa, power = s[:i], n
	}
	whole, fraction, point := strings.Cut(mantissa, ".")
	if whole == "" || point && fraction == "" || len(mantissa) > 3*MaxDigits {
		return q, false // "1." and ".5" are no numbers of JSON
	}
	text := strings.TrimLeft(whole+fraction, "0")
	if text == "" {
		return q, true
	}
	if power -= len(fraction); power >= 0 {
		return parseDigits(text + strings.Repeat("0", power))
	}
	kept := len(text) + power
	if kept <= 0 || strings.Trim(text[kept:], "0") != "" {
		return q, false
	}
	return parseDigits(text[:kept])
}
