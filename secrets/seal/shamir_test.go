package seal

import (
	"bytes"
	"encoding/hex"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"testing"
)

func TestField(t *testing.T) {
	// FIPS 197, section 4.2: {57} x {83} = {c1}, {57} x {13} = {fe}; 4.2.1: the inverse of {53} is {ca}.
	if multiply(0x57, 0x83) != 0xc1 || multiply(0x57, 0x13) != 0xfe || inverse(0x53) != 0xca {
		t.Error("the field is not the one of FIPS 197")
	}
	for a := 1; a < 256; a++ {
		if multiply(byte(a), inverse(byte(a))) != 1 {
			t.Errorf("%#x times its inverse is not 1", a)
		}
	}
	if inverse(0) != 0 {
		t.Error("the inverse of 0 is not 0")
	}
}

// Shares worked out by hand: the secret 0x42 with the polynomial 0x42 + 0x05 x has
// the values 0x47 at 1, 0x48 at 2 and 0x4d at 3.
func TestForm(t *testing.T) {
	for _, pair := range [][]string{{"4701", "4802"}, {"4d03", "4701"}, {"4802", "4d03"}} {
		var shares [][]byte
		for _, text := range pair {
			b, _ := hex.DecodeString(text)
			shares = append(shares, b)
		}
		if secret, err := Combine(shares); err != nil || !bytes.Equal(secret, []byte{0x42}) {
			t.Errorf("%q combine to %x, %v", pair, secret, err)
		}
	}
}

func TestSplitAndCombine(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	secret := []byte("thirty-two bytes of a root key..")
	for _, n := range [][2]int{{1, 1}, {2, 2}, {3, 2}, {5, 3}, {10, 10}, {255, 2}, {255, 255}} {
		shares, err := Split(secret, n[0], n[1])
		if err != nil {
			t.Fatal(err)
		}
		rng.Shuffle(len(shares), func(i, j int) { shares[i], shares[j] = shares[j], shares[i] })
		if got, err := Combine(shares[:n[1]]); err != nil || !bytes.Equal(got, secret) {
			t.Errorf("%v: %q, %v", n, got, err)
		}
		if n[1] > 1 {
			if got, err := Combine(shares[:n[1]-1]); err != nil || bytes.Equal(got, secret) {
				t.Errorf("%v: one share too few gave the secret, or an error: %v", n, err)
			}
		}
	}
}

// Fewer shares than the threshold tell nothing: each byte of one of two shares takes every value.
func TestOneShareTellsNothing(t *testing.T) {
	var seen [256]bool
	for range 256 * 40 {
		shares, err := Split([]byte{7}, 2, 2)
		if err != nil {
			t.Fatal(err)
		}
		seen[shares[0][0]] = true
	}
	for b, was := range seen {
		if !was {
			t.Errorf("a share's byte is never %#x", b)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, n := range [][2]int{{0, 0}, {256, 3}, {5, 0}, {5, 6}, {5, 1}, {-1, -1}} {
		if _, err := Split([]byte("x"), n[0], n[1]); err == nil {
			t.Errorf("%v was accepted", n)
		}
	}
	if _, err := Split(nil, 5, 3); err == nil {
		t.Error("an empty secret was split")
	}
	for name, shares := range map[string][][]byte{
		"none": nil, "one byte": {{1}}, "empty": {{}, {}}, "different lengths": {{1, 1}, {1, 1, 2}},
		"point 0": {{1, 0}, {1, 1}}, "twice": {{1, 5}, {2, 5}},
	} {
		if _, err := Combine(shares); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzCombine: what people paste in never panics.
func FuzzCombine(f *testing.F) {
	f.Add([]byte{0x47, 1}, []byte{0x48, 2}, []byte{0x4d, 3})
	f.Add([]byte{}, []byte{0}, []byte(nil))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		secret, err := Combine([][]byte{a, b, c})
		if err == nil && len(secret) != len(a)-1 {
			t.Errorf("%d bytes from shares of %d", len(secret), len(a))
		}
	})
}

func BenchmarkCombine(b *testing.B) {
	shares, err := Split(make([]byte, 32), 5, 3)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Combine(shares[:3]); err != nil {
			b.Fatal(err)
		}
	}
}

// CVE-2023-25000: shares were combined with tables that secret bytes were indexes of, which caches tell. The arithmetic
// of the field has neither indexes nor branches, and its loops run a fixed number of times.
func TestCVE_2023_25000_ArithmeticHasNoTables(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "shamir.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || (f.Name.Name != "multiply" && f.Name.Name != "inverse") {
			continue
		}
		seen++
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IndexExpr, *ast.IfStmt, *ast.SwitchStmt, *ast.ForStmt, *ast.MapType:
				t.Errorf("%s: %T", f.Name.Name, n)
			case *ast.RangeStmt:
				if _, fixed := n.X.(*ast.BasicLit); !fixed {
					t.Errorf("%s: a loop whose length is not fixed", f.Name.Name)
				}
			}
			return true
		})
	}
	if seen != 2 {
		t.Errorf("%d of the two functions are there", seen)
	}
}
