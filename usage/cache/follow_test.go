package cache

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// copier has another cache do what it hears.
type copier struct {
	t    testing.TB
	to   *Cache
	off  bool // it hears nothing
	lost int  // of so many changes in a hundred
	r    *rand.Rand
	bad  int // changes that did not fit
}

func (c *copier) Follows(key string, _ bool) bool { return !c.off && key != "nobody's" }

func (c *copier) Changed(_ string, change []byte) {
	if c.r.IntN(100) < c.lost {
		return
	}
	fits, err := c.to.Apply(change)
	if err != nil {
		c.t.Error(err)
	}
	if !fits {
		c.bad++
	}
}

func (c *copier) Cleared() { c.to.Clear() }

// random does one random thing to a value.
func random(c *Cache, r *rand.Rand) {
	key := []byte(fmt.Sprintf("t%d:%d", r.IntN(3), r.IntN(25)))
	word := func() []byte { return []byte(strings.Repeat(fmt.Sprint(r.IntN(9)), 1+r.IntN(20))) }
	c.Do(key, func(e *Entry) {
		switch r.IntN(12) {
		case 0:
			_ = e.SetText(word())
			e.ExpireAt(0)
		case 1:
			_ = e.SetText(make([]byte, r.IntN(3000)))
		case 2, 3:
			if s, err := e.Set(true); err == nil {
				for range 1 + r.IntN(20) {
					s.Add(word())
				}
			}
		case 4:
			if s, err := e.Set(false); err == nil && s != nil {
				s.Remove(word())
				s.Pop()
			}
		case 5, 6:
			if h, err := e.Hash(true); err == nil {
				h.Put(word(), word())
				h.Remove(word())
			}
		case 7, 8:
			for range 30 {
				_, _ = e.Count(r.Uint64N(1 << 40))
			}
		case 9:
			e.ExpireAt(c.Now() + r.Int64N(3000) - 100)
		case 10:
			e.Delete()
		default:
			_, _, _ = e.Text()
		}
	})
}

// TestFollowed: who hears all changes has the same values, through evictions and ends; who joins later hears the values
// first.
func TestFollowed(t *testing.T) {
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 3))
		hand := clock.NewFake(time.Unix(1_700_000_000, 0))
		f := &copier{t: t, to: New(Config{MaxBytes: 64 << 20, Clock: hand}), off: true, r: r}
		c := New(Config{MaxBytes: 400_000, Shards: 2, Clock: hand, Follower: f})
		for step := range 3000 {
			if step == 500 {
				f.off = false
				cursor := uint64(0)
				for first := true; first || cursor != 0; first = false {
					cursor = c.Replay(cursor, 5000, func(string) bool { return true })
					random(c, r) // meanwhile
				}
			}
			random(c, r)
			if r.IntN(50) == 0 {
				hand.Advance(time.Duration(r.IntN(400)) * time.Millisecond)
				c.Sweep(100)
			}
		}
		f.to.Sweep(1000)
		if want, got := content(c), content(f.to); !maps.Equal(want, got) || len(want) == 0 || f.bad > 0 {
			t.Fatalf("seed %d: %d values, %d copied; %d did not fit:\n%.400v\n%.400v", seed, len(want), len(got), f.bad,
				want, got)
		}
		audit(t, c)
		audit(t, f.to)
	}
}

// TestFollowedBadly: who misses changes may lack values, and has none that was never there since.
func TestFollowedBadly(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 4))
		f := &copier{t: t, to: New(Config{MaxBytes: 64 << 20}), lost: 10, r: r}
		c := New(Config{MaxBytes: 64 << 20, Follower: f})
		add := func(member string) {
			c.Do([]byte("set"), func(e *Entry) { s, _ := e.Set(true); s.Add([]byte(member)) })
		}
		for i := range 500 { // a set that has lost its beginning or its middle is not there at all
			add(fmt.Sprint(i))
			if want, got := content(c)["set"], content(f.to)["set"]; got != "" && got != want && len(got) >= len(want) {
				t.Fatalf("seed %d: the set became %.200s, not %.200s", seed, got, want)
			}
		}
		if f.bad == 0 || has(f.to, "set") && content(f.to)["set"] != content(c)["set"] {
			t.Errorf("seed %d: %d did not fit", seed, f.bad)
		}
	}
}

// TestDrop: what goes is told to nobody.
func TestDrop(t *testing.T) {
	f := &copier{t: t, to: New(Config{}), r: rand.New(rand.NewPCG(1, 1))}
	c := New(Config{Follower: f})
	for i := range 10_000 {
		put(t, c, fmt.Sprint(i), "x", 0)
	}
	if gone := c.Drop(func(key string) bool { return key[0] == '7' }); gone != 1111 || f.to.Keys() != 10_000 ||
		c.Keys() != 10_000-1111 {
		t.Errorf("%d are gone; %d are left, and %d there", gone, c.Keys(), f.to.Keys())
	}
	audit(t, c)
	c.Clear()
	if f.to.Keys() != 0 {
		t.Error("what is followed is empty, and the copy is not")
	}
}

// FuzzApply: no bytes of another host harm a cache.
func FuzzApply(f *testing.F) {
	heard := &recorder{}
	c := New(Config{Follower: heard})
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		random(c, r)
	}
	for _, change := range heard.list {
		f.Add(change)
	}
	f.Add([]byte{changePart, 1, 'k'})
	f.Fuzz(func(t *testing.T, b []byte) {
		to := New(Config{MaxBytes: 1 << 20})
		for _, change := range heard.list[:min(len(heard.list), 20)] {
			_, _ = to.Apply(change)
		}
		if _, err := to.Apply(b); err != nil && !errors.Is(err, ErrDump) {
			t.Fatal(err)
		}
		if st := to.Stats(); st.Bytes > st.Most {
			t.Fatalf("it takes %d of %d bytes", st.Bytes, st.Most)
		}
		audit(t, to)
	})
}

type recorder struct{ list [][]byte }

func (r *recorder) Follows(string, bool) bool { return true }

func (r *recorder) Changed(_ string, change []byte) {
	r.list = append(r.list, append([]byte{}, change...))
}

func (r *recorder) Cleared() {}
