// Package remotetest is the kit that every engine of a remote cache passes.
package remotetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/usage/remote"
)

// Run tests an engine. open returns a store over an empty cache that is up.
func Run(t *testing.T, open func(t *testing.T) remote.Store) {
	for name, f := range map[string]func(*testing.T, remote.Store){
		"values": values, "lives": lives, "sets": sets, "sketches": sketches, "many at once": many, "kinds": kinds,
	} {
		t.Run(name, func(t *testing.T) { f(t, open(t)) })
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func values(t *testing.T, s remote.Store) {
	ctx := t.Context()
	var items []remote.Item
	var keys []string
	for i := range 300 {
		key := fmt.Sprint("values:", i)
		items = append(items, remote.Item{Key: key, Value: []byte(strings.Repeat(key, i%7))})
		keys = append(keys, key)
	}
	if err := s.Set(ctx, items...); err != nil {
		t.Fatal(err)
	}
	got := must(s.Get(ctx, append(keys, "values:none")...))(t)
	for i, it := range items {
		if string(got[i]) != string(it.Value) || got[i] == nil {
			t.Errorf("%s is %q, not %q", it.Key, got[i], it.Value)
		}
	}
	if got[len(items)] != nil {
		t.Errorf("a key that is not there is %q", got[len(items)])
	}
	binary := []byte("\x00\r\n$5\r\n\xff")
	if err := s.Set(ctx, remote.Item{Key: "values:0", Value: binary}); err != nil {
		t.Fatal(err)
	}
	if got := must(s.Get(ctx, "values:0"))(t); string(got[0]) != string(binary) {
		t.Errorf("%q", got[0])
	}
	if err := s.Delete(ctx, keys...); err != nil {
		t.Fatal(err)
	}
	for i, v := range must(s.Get(ctx, keys...))(t) {
		if v != nil {
			t.Errorf("%s is still there", keys[i])
		}
	}
	if err := s.Set(ctx); err != nil {
		t.Error(err)
	}
	if got, err := s.Get(ctx); len(got) != 0 || err != nil {
		t.Error(got, err)
	}
}

func lives(t *testing.T, s remote.Store) {
	ctx := t.Context()
	if err := s.Set(ctx, remote.Item{Key: "lives:a", Value: []byte("x"), Life: 50 * time.Millisecond},
		remote.Item{Key: "lives:b", Value: []byte("x"), Life: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if n := must(s.Add(ctx, "lives:set", 50*time.Millisecond, "m"))(t); n != 1 {
		t.Error(n)
	}
	polltest.Until(t, func() bool {
		got, err := s.Get(ctx, "lives:a", "lives:b")
		has, failed := s.Has(ctx, "lives:set", "m")
		return err == nil && failed == nil && got[0] == nil && got[1] != nil && !has[0]
	}, "what has expired is gone, and what has not is there")
}

func sets(t *testing.T, s remote.Store) {
	ctx := t.Context()
	if n := must(s.Add(ctx, "sets:a", 0, "x", "y", "x"))(t); n != 2 {
		t.Errorf("%d are new of 2", n)
	}
	if n := must(s.Add(ctx, "sets:a", time.Hour, "y", "z"))(t); n != 1 {
		t.Errorf("%d are new of 1", n)
	}
	if got := must(s.Has(ctx, "sets:a", "x", "no", "z"))(t); fmt.Sprint(got) != "[true false true]" {
		t.Error(got)
	}
	if got := must(s.Has(ctx, "sets:none", "x"))(t); got[0] {
		t.Error("a set that is not there has a member")
	}
	if n, err := s.Add(ctx, "sets:a", 0); n != 0 || err != nil {
		t.Error(n, err)
	}
}

func sketches(t *testing.T, s remote.Store) {
	ctx := t.Context()
	var members []string
	for i := range 2000 {
		members = append(members, fmt.Sprint("m", i))
	}
	must(s.Count(ctx, "sketches:a", time.Hour, members[:1500]...))(t)
	got := must(s.Count(ctx, "sketches:a", time.Hour, members[500:]...))(t)
	if got < 1900 || got > 2100 {
		t.Errorf("about %d are 2000", got)
	}
	if again := must(s.Count(ctx, "sketches:a", 0))(t); again != got {
		t.Errorf("nothing was added, and %d became %d", got, again)
	}
}

func many(t *testing.T, s remote.Store) {
	ctx := t.Context()
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for i := range 30 {
				key := fmt.Sprintf("many:%d:%d", g, i)
				if err := s.Set(ctx, remote.Item{Key: key, Value: []byte(key)}); err != nil {
					t.Error(err)
					return
				}
				if got, err := s.Get(ctx, key); err != nil || string(got[0]) != key {
					t.Errorf("%s is %q: %v", key, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func kinds(t *testing.T, s remote.Store) {
	ctx := t.Context()
	must(s.Add(ctx, "kinds:set", 0, "x"))(t)
	if _, err := s.Get(ctx, "kinds:set"); err == nil {
		t.Error("a set was told as a value")
	}
	if got, err := s.Get(ctx, "kinds:none"); err != nil || got[0] != nil {
		t.Error("after an error, the next answer is wrong: ", got, err)
	}
}
