package cache

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
)

func put(t *testing.T, c *Cache, key, text string, at int64) {
	t.Helper()
	c.Do([]byte(key), func(e *Entry) {
		if err := e.SetText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		e.ExpireAt(at)
	})
}

func has(c *Cache, key string) (ok bool) {
	c.Do([]byte(key), func(e *Entry) { ok = e.Kind() != Missing })
	return ok
}

// audit looks that what is counted is what is there.
func audit(t *testing.T, c *Cache) {
	t.Helper()
	for i := range c.shards {
		s := &c.shards[i]
		bytes, items, due := int64(0), 0, 0
		for name, tn := range s.tenants {
			mine := tenantBytes + int64(len(name))
			for it := tn.oldest; it != nil; it = it.newer {
				if it.size != it.measure() || it.tenant != tn || s.keys[it.key] != it || s.order[it.at] != it {
					t.Fatalf("%q takes %d and not %d, or is in a wrong place", it.key, it.measure(), it.size)
				}
				mine += it.size
				items++
				if it.expires != 0 {
					due++
				}
			}
			if mine != tn.bytes || s.fattest[tn.place] != tn {
				t.Fatalf("tenant %q has %d, counted %d", name, mine, tn.bytes)
			}
			bytes += mine
		}
		if bytes != s.bytes || items != len(s.keys) || items != len(s.order) || due != len(s.soonest) ||
			len(s.tenants) != len(s.fattest) {
			t.Fatalf("a shard of %d bytes and %d items counts %d and %d, and %d of %d expire", bytes, items, s.bytes,
				len(s.keys), len(s.soonest), due)
		}
	}
}

// A history of random operations, against a map: what is told is what was put, unless it was evicted; memory holds.
func TestHistory(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		hand := clock.NewFake(time.Unix(1000, 0))
		c := New(Config{MaxBytes: 60_000, Shards: 2, Clock: hand})
		type value struct {
			text string
			at   int64
		}
		model := map[string]value{}
		evicted := 0
		for range 4000 {
			key := fmt.Sprintf("t%d:%d", rng.IntN(5), rng.IntN(60))
			switch rng.IntN(10) {
			case 0, 1, 2, 3:
				v := value{text: strings.Repeat("x", rng.IntN(600))}
				if rng.IntN(3) == 0 {
					v.at = c.Now() + int64(rng.IntN(5000))
				}
				put(t, c, key, v.text, v.at)
				model[key] = v
				if v.at != 0 && v.at <= c.Now() {
					delete(model, key)
				}
			case 4:
				c.Do([]byte(key), func(e *Entry) { e.Delete() })
				delete(model, key)
			case 5:
				hand.Advance(time.Duration(rng.IntN(300)) * time.Millisecond)
			case 6:
				c.Sweep(rng.IntN(5))
			case 7:
				c.Do([]byte(key), func(e *Entry) {
					if e.Kind() == SetKind || e.Kind() == Missing {
						s, _ := e.Set(true)
						s.Add([]byte(fmt.Sprint(rng.IntN(9))))
						s.Remove([]byte(fmt.Sprint(rng.IntN(9))))
						delete(model, key) // texts alone are modelled
					}
				})
			default:
				c.Do([]byte(key), func(e *Entry) {
					want, ok := model[key]
					ok = ok && (want.at == 0 || want.at > c.Now())
					switch {
					case e.Kind() == Text && (!ok || string(e.it.text) != want.text || e.Expires() != want.at):
						t.Fatalf("seed %d: %s is %q until %d, want %v, %v", seed, key, e.it.text, e.Expires(), want, ok)
					case e.Kind() == Missing && ok:
						evicted++
						delete(model, key)
					}
				})
			}
			if st := c.Stats(); st.Bytes > st.Most {
				t.Fatalf("seed %d: %d bytes of %d", seed, st.Bytes, st.Most)
			}
		}
		audit(t, c)
		if st := c.Stats(); uint64(evicted) > st.Evicted || st.Evicted == 0 {
			t.Fatalf("seed %d: %d are gone and %d were evicted", seed, evicted, st.Evicted)
		}
	}
}

// What one tenant writes takes nothing from one that has less than its share.
func TestFairness(t *testing.T) {
	c := New(Config{MaxBytes: 200_000, Shards: 1})
	for i := range 100 {
		put(t, c, fmt.Sprintf("small:%d", i), "x", 0)
	}
	for i := range 20_000 {
		put(t, c, fmt.Sprintf("large:%d", i), "y", 0)
	}
	for i := range 100 {
		if !has(c, fmt.Sprintf("small:%d", i)) {
			t.Fatalf("small:%d went, for another tenant's sake", i)
		}
	}
	if has(c, "large:0") || !has(c, "large:19999") {
		t.Fatal("what was used least recently goes first")
	}
	if st := c.Stats(); st.LargestTenant != "large" || st.Tenants != 2 || st.Bytes < st.Most*9/10 {
		t.Fatalf("%+v", st)
	}
	audit(t, c)
}

func TestUsedLatelyStays(t *testing.T) {
	c := New(Config{MaxBytes: 100_000, Shards: 1})
	put(t, c, "t:kept", "x", 0)
	for i := range 5000 {
		put(t, c, fmt.Sprintf("t:%d", i), "y", 0)
		if i%50 == 0 && !has(c, "t:kept") {
			t.Fatal("what is used all the time went")
		}
	}
}

func TestExpiryGivesMemoryBack(t *testing.T) {
	hand := clock.NewFake(time.Unix(1000, 0))
	c := New(Config{Clock: hand})
	for i := range 1000 {
		put(t, c, fmt.Sprintf("t:%d", i), "x", c.Now()+int64(i)+1)
	}
	hand.Advance(500 * time.Millisecond)
	if has(c, "t:499") || !has(c, "t:500") {
		t.Fatal("expired is gone, and nothing else")
	}
	for c.Sweep(10) > 0 {
		continue
	}
	if n := c.Keys(); n != 500 {
		t.Fatalf("%d keys", n)
	}
	hand.Advance(time.Second)
	for c.Sweep(10) > 0 {
		continue
	}
	if st := c.Stats(); st.Bytes != 0 || st.Keys != 0 || st.Expired != 1000 || st.Tenants != 0 {
		t.Fatalf("%+v", st)
	}
}

// Each key that is there from the first to the last call is told, whatever comes and goes between them.
func TestScan(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		c := New(Config{Shards: 4})
		for i := range 300 {
			put(t, c, fmt.Sprintf("stays:%d", i), "x", 0)
			put(t, c, fmt.Sprintf("goes:%d", i), "x", 0)
		}
		seen := map[string]bool{}
		calls := 0
		for cursor := uint64(0); ; calls++ {
			cursor = c.Scan(cursor, 1+rng.IntN(20), func(key string, _ Kind) { seen[key] = true })
			if cursor == 0 {
				break
			}
			for range rng.IntN(12) {
				c.Do(fmt.Appendf(nil, "goes:%d", rng.IntN(300)), func(e *Entry) { e.Delete() })
				put(t, c, fmt.Sprintf("new:%d", rng.IntN(100)), "x", 0)
			}
			if calls > 2000 {
				t.Fatal("it does not end")
			}
		}
		for i := range 300 {
			if !seen[fmt.Sprintf("stays:%d", i)] {
				t.Fatalf("seed %d: stays:%d was passed over", seed, i)
			}
		}
	}
}

func TestLargeValues(t *testing.T) {
	c := New(Config{MaxBytes: 1 << 20, Shards: 1, MaxValueBytes: 1000})
	c.Do([]byte("k"), func(e *Entry) {
		if err := e.SetText(make([]byte, 1001)); err != ErrLarge {
			t.Error(err)
		}
		if err := e.SetText(make([]byte, 1000)); err != nil {
			t.Error(err)
		}
		if _, err := e.Set(true); err != ErrKind {
			t.Error(err)
		}
		if _, err := e.Sketch(true); err != ErrPlain {
			t.Error(err)
		}
	})
	c.Do([]byte("s"), func(e *Entry) {
		s, err := e.Set(true)
		for i := 0; err == nil; i++ {
			if err = e.Room(100); err == nil {
				s.Add(fmt.Appendf(nil, "%d", i))
			}
			if i > 1000 {
				t.Fatal("a set grows without end")
			}
		}
	})
	audit(t, c)
}

// A sketch's own form is a text, and a text of that form is the sketch again.
func TestSketchAsText(t *testing.T) {
	c := New(Config{})
	var form []byte
	for n, key := range []string{"small", "large"} {
		c.Do([]byte(key), func(e *Entry) {
			d, _ := e.Sketch(true)
			for i := range 10 + 5000*n {
				d.Add(c.Hash(fmt.Appendf(nil, "%d", i)), 0)
			}
			text, _, err := e.Text()
			if err != nil {
				t.Fatal(err)
			}
			form = append([]byte(nil), text...)
		})
		put(t, c, "copy", string(form), 0)
		var counts [2]uint64
		for i, k := range []string{key, "copy"} {
			c.Do([]byte(k), func(e *Entry) {
				d, err := e.Sketch(false)
				if err != nil {
					t.Fatal(err)
				}
				counts[i] = d.Count(1).Value
			})
		}
		if counts[0] != counts[1] || counts[0] == 0 {
			t.Fatal(counts)
		}
	}
	audit(t, c)
}

// Together is seen whole or not at all.
func TestTogether(t *testing.T) {
	c := New(Config{})
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range 500 {
				c.Together(func(do func([]byte, func(*Entry))) {
					for _, key := range []string{"a", "b", "c"} {
						do([]byte(key), func(e *Entry) { _ = e.SetText(fmt.Appendf(nil, "%d %d", w, i)) })
					}
				})
			}
		})
	}
	for range 500 {
		var texts [3]string
		c.Together(func(do func([]byte, func(*Entry))) {
			for i, key := range []string{"a", "b", "c"} {
				do([]byte(key), func(e *Entry) { text, _, _ := e.Text(); texts[i] = string(text) })
			}
		})
		if texts[0] != texts[1] || texts[1] != texts[2] {
			t.Fatal(texts)
		}
	}
	wg.Wait()
}
