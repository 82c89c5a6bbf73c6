package jobs

import (
	"encoding/hex"
	"time"
)

// Time is a moment in Unix nanoseconds; 0 is none. Moments come in as arguments.
type Time int64

// Add is t after d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub is how long after u the moment t is.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// ID is a UUID; the zero ID is none.
type ID [16]byte

// IsZero reports whether there is none.
func (id ID) IsZero() bool { return id == ID{} }

// String is the id as the contract writes it, "" for none.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	var b [36]byte
	hex.Encode(b[:8], id[:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:], id[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// Dice gives ids and tie-breaks from a seed: the same seed gives the same ones.
// Whoever proposes takes the seed from crypto/rand, so that ids are unique in fact.
type Dice struct{ state, key uint64 }

// NewDice begins with seed and with key, which keeps evaluations of one pass apart.
func NewDice(seed, key uint64) *Dice { return &Dice{Mix(seed ^ 0x9e3779b97f4a7c15), Mix(key) | 1} }

// Next is the next number (splitmix64 with a step of its own).
func (d *Dice) Next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	return Mix(d.state ^ d.key)
}

// Mix spreads the bits of x.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ID is the next id, a UUID of version 4.
func (d *Dice) ID() (id ID) {
	a, b := d.Next(), d.Next()
	for i := range 8 {
		id[i], id[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}
