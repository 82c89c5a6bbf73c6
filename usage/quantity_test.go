package usage

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func toBig(q Quantity) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(q.Hi), 64)
	return n.Add(n, new(big.Int).SetUint64(q.Lo))
}

func quantities() *rapid.Generator[Quantity] {
	return rapid.Custom(func(t *rapid.T) Quantity {
		return Quantity{rapid.Int64().Draw(t, "hi"), rapid.Uint64().Draw(t, "lo")}
	})
}

// TestQuantityIsAnInteger compares arithmetic and text with math/big.
func TestQuantityIsAnInteger(t *testing.T) {
	limit := new(big.Int).Lsh(big.NewInt(1), 127)
	rapid.Check(t, func(t *rapid.T) {
		a, b := quantities().Draw(t, "a"), quantities().Draw(t, "b")
		if got, want := a.String(), toBig(a).String(); got != want {
			t.Fatalf("text %s, want %s", got, want)
		}
		if got, want := a.Compare(b), toBig(a).Cmp(toBig(b)); got != want {
			t.Fatalf("%s and %s compare as %d, want %d", a, b, got, want)
		}
		want := new(big.Int).Add(toBig(a), toBig(b))
		fits := want.Cmp(limit) < 0 && want.Cmp(new(big.Int).Neg(limit)) >= 0
		sum, ok := a.Add(b)
		if ok != fits || ok && toBig(sum).Cmp(want) != 0 {
			t.Fatalf("%s + %s = %s, %t; want %s", a, b, sum, ok, want)
		}
	})
}

// TestParseQuantity is the contract's "value may come as a number or as a text of digits", and the trap of integers
// beyond 2^53.
func TestParseQuantity(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "7": "7", "+7": "7", "-12": "-12", "9007199254740993": "9007199254740993",
		"18446744073709551616": "18446744073709551616", "-18446744073709551617": "-18446744073709551617",
		"999999999999999999999999": "999999999999999999999999",
		"1.0":                      "1", "1e3": "1000", "1.50e1": "15", "-2.5E+2": "-250",
		"1200e-2": "12", "0.0": "0", "-1.000": "-1", "0e5": "0",
		"": "", "-": "", "1.5": "", "1e-1": "", "x": "", "1x": "", "--1": "", "1e": "", "1.": "", ".5": "", "NaN": "",
		"Infinity": "",
		"0x10":     "", "1_000": "", "1e999999999": "", "1000000000000000000000000": "",
		"1e24": "", "e": "", ".": "", "-.0": "",
		"1-1.0": "", "- 1": "",
	} {
		got, ok := ParseQuantity(text)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q: %s, %t; want %q", text, got, ok, want)
		}
	}
}

func FuzzParseQuantity(f *testing.F) {
	for _, s := range []string{"0", "-1", "1e3", "1.50e1", "18446744073709551616", "+-1.0", "1-1.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, ok := ParseQuantity(s)
		if !ok {
			return
		}
		if len(s) > 200 {
			t.Fatalf("%d bytes are read as a number", len(s))
		}
		want, exact := new(big.Rat).SetString(s)
		if !exact || !want.IsInt() || want.Num().String() != q.String() {
			t.Fatalf("%q is read as %s, math/big reads %v", s, q, want)
		}
	})
}

func TestScale(t *testing.T) {
	for _, test := range []struct {
		v    int64
		rate float64
		want string
	}{{1, 0.1, "10"}, {1, 1, "1"}, {3, 0.5, "6"}, {1, 0.3, "3"}, {-1, 0.1, "-10"}, {2, 0.3, "7"}, {0, 0.5, "0"},
		{1 << 62, 0.25, "18446744073709551616"}, {-(1 << 62), 0.25, "-18446744073709551616"}} {
		if got := Int(test.v).Scale(test.rate).String(); got != test.want {
			t.Errorf("%d at %v: %s, want %s", test.v, test.rate, got, test.want)
		}
	}
}
