package onetime

import (
	"testing"
	"time"
)

// The codes of RFC 6238, appendix B: SHA-1, 8 digits.
func TestCodesOfTheRFC(t *testing.T) {
	k := Key{Secret: "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", Period: 30, Algorithm: "SHA1", Digits: 8}
	for at, want := range map[int64]string{59: "94287082", 1111111109: "07081804", 1234567890: "89005924",
		20000000000: "65353130"} {
		if got, err := k.Code(k.Step(time.Unix(at, 0))); got != want || err != nil {
			t.Errorf("at %d: %s, %v; want %s", at, got, err, want)
		}
	}
}

// A code is good once, within the skew; what can't come again is forgotten.
func TestTake(t *testing.T) {
	k := Key{Issuer: "i", Account: "a", Period: 30, Algorithm: "SHA256", Digits: 6, Skew: 1}
	if _, _, err := k.Generate(20, 0); err != nil {
		t.Fatal(err)
	}
	var used []uint64
	take := func(want Taken, step uint64, at int64) {
		t.Helper()
		code, err := k.Code(step)
		if err != nil {
			t.Fatal(err)
		}
		got, after, err := k.Take(code, used, time.Unix(at, 0))
		if err != nil || got != want {
			t.Errorf("the code of step %d at %d: %d, %v; want %d", step, at, got, err, want)
		}
		if got == Good {
			used = after
		}
	}
	take(Good, 100, 3000)
	take(Again, 100, 3000)
	take(Good, 101, 3000)
	take(Good, 99, 3029)
	take(Again, 101, 3060)
	take(Wrong, 100, 3060) // outside of the skew
	take(Good, 200, 6000)
	if len(used) != 1 {
		t.Errorf("%d steps are kept, one can come again", len(used))
	}
}

func TestBounds(t *testing.T) {
	good := Key{Period: 30, Algorithm: "SHA1", Digits: 6}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Key){"algorithm": func(k *Key) { k.Algorithm = "MD5" },
		"digits": func(k *Key) { k.Digits = 7 }, "period": func(k *Key) { k.Period = 0 },
		"a long period": func(k *Key) { k.Period = 86401 }, "skew": func(k *Key) { k.Skew = 2 }} {
		k := good
		change(&k)
		if k.Check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if CheckSizes(20, 200) != nil || CheckSizes(0, 0) == nil || CheckSizes(1025, 0) == nil || CheckSizes(20, 4097) == nil {
		t.Error("sizes are not bounded")
	}
}
