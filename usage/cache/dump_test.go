package cache

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
)

func filled(t testing.TB, hand clock.Clock) *Cache {
	c := New(Config{MaxBytes: 64 << 20, Clock: hand})
	for n := range 500 {
		c.Do(fmt.Append(nil, "t:", n), func(e *Entry) {
			if err := e.SetText(fmt.Append(nil, "text", n)); err != nil {
				t.Fatal(err)
			}
			if n%3 == 0 {
				e.ExpireAt(hand.Now().UnixMilli() + int64(n+1)*1000)
			}
		})
	}
	c.Do([]byte("s:1"), func(e *Entry) {
		set, _ := e.Set(true)
		for n := range 300 {
			set.Add(fmt.Append(nil, "m", n))
		}
	})
	c.Do([]byte("h:1"), func(e *Entry) {
		h, _ := e.Hash(true)
		h.Put([]byte("a"), []byte("1"))
		h.Put([]byte("b"), []byte("2"))
	})
	c.Do([]byte("p:1"), func(e *Entry) {
		d, _ := e.Sketch(true)
		for n := range 5000 {
			d.Add(c.Hash(fmt.Append(nil, n)), 0)
		}
	})
	return c
}

// content is all that a cache has, as texts.
func content(c *Cache) map[string]string {
	out := map[string]string{}
	var keys []string
	for cursor := uint64(0); ; {
		if cursor = c.Scan(cursor, 100, func(key string, _ Kind) { keys = append(keys, key) }); cursor == 0 {
			break
		}
	}
	for _, key := range keys {
		c.Do([]byte(key), func(e *Entry) {
			text := ""
			switch e.Kind() {
			case SetKind:
				set, _ := e.Set(false)
				text = fmt.Sprint(slices.Sorted(slices.Values(set.Members())))
			case HashKind:
				h, _ := e.Hash(false)
				all := map[string]string{}
				h.All(func(f string, v []byte) { all[f] = string(v) })
				text = fmt.Sprint(all)
			default:
				b, _, _ := e.Text()
				text = string(b)
			}
			out[key] = fmt.Sprint(e.Kind(), " ", e.Expires(), " ", text)
		})
	}
	return out
}

// TestDump: what goes over in chunks is all of it, and no key twice; a part is a part.
func TestDump(t *testing.T) {
	hand := clock.NewFake(time.Unix(1_700_000_000, 0))
	from, to := filled(t, hand), New(Config{MaxBytes: 64 << 20, Clock: hand, Shards: 4})
	keys, chunks := 0, 0
	for cursor := uint64(0); ; {
		var chunk []byte
		chunk, cursor = from.Dump(nil, cursor, 2000, func(string) bool { return true })
		n, err := to.Restore(chunk)
		if err != nil {
			t.Fatal(err)
		}
		if keys, chunks = keys+n, chunks+1; cursor == 0 {
			break
		}
	}
	if want, got := content(from), content(to); keys != 503 || chunks < 5 || !maps.Equal(want, got) {
		t.Errorf("%d keys in %d chunks; %d of %d are there", keys, chunks, len(got), len(want))
	}
	chunk, next := from.Dump(nil, 0, 1<<20, func(key string) bool { return key[0] == 'h' })
	if n, err := New(Config{Clock: hand}).Restore(chunk); n != 1 || err != nil || next != 0 {
		t.Errorf("a part has %d keys: %v", n, err)
	}
}

// TestRestoreIsOlder: what is there stays, and sets and sketches are united.
func TestRestoreIsOlder(t *testing.T) {
	hand := clock.NewFake(time.Unix(1_700_000_000, 0))
	from, to := filled(t, hand), New(Config{MaxBytes: 64 << 20, Clock: hand})
	to.Do([]byte("t:1"), func(e *Entry) { _ = e.SetText([]byte("newer")) })
	to.Do([]byte("t:2"), func(e *Entry) { set, _ := e.Set(true); set.Add([]byte("x")) })
	to.Do([]byte("s:1"), func(e *Entry) { set, _ := e.Set(true); set.Add([]byte("new")) })
	to.Do([]byte("h:1"), func(e *Entry) { h, _ := e.Hash(true); h.Put([]byte("a"), []byte("newer")) })
	chunk, _ := from.Dump(nil, 0, 1<<20, func(key string) bool { return true })
	for range 2 { // sent again, it changes nothing
		if _, err := to.Restore(chunk); err != nil {
			t.Fatal(err)
		}
	}
	now := content(to)
	if now["t:1"] != "1 0 newer" || now["t:2"] != "2 0 [x]" || now["h:1"] != "3 0 map[a:newer b:2]" {
		t.Errorf("%q %q %q", now["t:1"], now["t:2"], now["h:1"])
	}
	to.Do([]byte("s:1"), func(e *Entry) {
		if set, _ := e.Set(false); set.Len() != 301 {
			t.Errorf("the union has %d", set.Len())
		}
	})
}

// FuzzRestore: no bytes of another host harm a cache.
func FuzzRestore(f *testing.F) {
	hand := clock.NewFake(time.Unix(1_700_000_000, 0))
	chunk, _ := filled(f, hand).Dump(nil, 0, 500, func(string) bool { return true })
	f.Add(chunk)
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := New(Config{MaxBytes: 1 << 20, Clock: hand})
		if _, err := c.Restore(b); err != nil && !errors.Is(err, ErrDump) {
			t.Fatal(err)
		}
		if st := c.Stats(); st.Bytes > st.Most {
			t.Fatalf("it takes %d of %d bytes", st.Bytes, st.Most)
		}
	})
}
