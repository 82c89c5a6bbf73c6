package usage

import (
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// TestSipHashVectors compares with the published vectors of SipHash-2-4 with 128 bits: key 00 to 0f, input 00, 01,
// ... OpenSSL prints the same ones.
func TestSipHashVectors(t *testing.T) {
	var secret [16]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	k := NewKey(secret)
	for n, want := range map[int]string{
		0:  "a3817f04ba25a8e66df67214c7550293",
		1:  "da87c1d86b99af44347659119b22fc45",
		7:  "a1f1ebbed8dbc153c0b84aa61ff08239",
		8:  "3b62a9ba6258f5610f83e264f31497b4",
		15: "5493e99933b0a8117e08ec0f97cfc3d9",
		16: "6ee2a4ca67b054bbfd3315bf85230577",
		63: "5150d1772f50834a503e069a973fbd7c",
	} {
		in := make([]byte, n)
		for i := range in {
			in[i] = byte(i)
		}
		h := k.Sum(in)
		got := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, h.Hi), h.Lo)
		if hex.EncodeToString(got) != want {
			t.Errorf("%d bytes: %x, want %s", n, got, want)
		}
	}
}

// TestIdentityIsATuple is the contract's "identities are compared byte by byte" (section 10), and that fields do not
// run together.
func TestIdentityIsATuple(t *testing.T) {
	k := NewKey([16]byte{1})
	seen := map[Hash][]string{}
	for _, fields := range [][]string{{}, {""}, {"", ""}, {"a", "bc"}, {"ab", "c"}, {"abc"}, {"abc", ""}, {"", "abc"},
		{"\u00e9"}, {"e\u0301"}, {"A"}, {"a"}} {
		h, _ := k.Identity(nil, "t", "p", fields...)
		if other, taken := seen[h]; taken {
			t.Errorf("%q and %q have one hash", other, fields)
		}
		seen[h] = fields
	}
	a, _ := k.Identity(nil, "t", "p", "x")
	if b, _ := k.Identity(nil, "tp", "", "x"); a == b {
		t.Error("tenant and product run together")
	}
	if b, _ := NewKey([16]byte{2}).Identity(nil, "t", "p", "x"); a == b {
		t.Error("the key makes no difference")
	}
}

func TestHashAllocatesNothing(t *testing.T) {
	k := NewKey([16]byte{1})
	buf := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() { _, buf = k.Identity(buf, "tenant", "product", "host-1", "eu") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkIdentity(b *testing.B) {
	k := NewKey([16]byte{1})
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		_, buf = k.Identity(buf, "tenant-0042", "hosts", "i-0123456789abcdef0")
	}
}
