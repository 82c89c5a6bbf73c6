// Package storagetest is the conformance kit that every storage backend passes:
// what storage.Backend promises, tried. A backend's own test is one call of Run.
package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
)

// Kit is how the tests get at a backend.
type Kit struct {
	// Open gives an empty backend.
	Open func(t *testing.T) storage.Backend
	// Reopen opens again what the backend that Open gave holds, after it was closed. Nil where nothing outlives it.
	Reopen func(t *testing.T) storage.Backend
	// Second gives another server's hold of what the backend that Open gave holds, beside it. Nil where servers do not
	// share it.
	Second func(t *testing.T) storage.Backend
	// Steps of the property test; 0: 400. Slow backends take fewer.
	Steps int
}

// limit bounds one test's calls: a hang is a failure with a name.
const limit = 2 * time.Minute

func (k Kit) open(t *testing.T) (context.Context, storage.Backend) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	b := k.Open(t)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return ctx, b
}

// Run runs the kit.
func Run(t *testing.T, k Kit) {
	for name, test := range map[string]func(*testing.T, Kit){
		"values": testValues, "list": testList, "scan": testScan, "whole": testWhole, "refused": testRefused,
		"fence": testFence, "model": testModel, "concurrent": testConcurrent, "reopen": testReopen, "closed": testClosed,
		"sleeper": testSleeper,
	} {
		t.Run(name, func(t *testing.T) { test(t, k) })
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, ctx context.Context, b storage.Backend, pairs ...string) {
	t.Helper()
	var ops []storage.Op
	for i := 0; i < len(pairs); i += 2 {
		ops = append(ops, storage.Put(pairs[i], []byte(pairs[i+1])))
	}
	must(t, b.Commit(ctx, 0, ops))
}

func testValues(t *testing.T, k Kit) {
	ctx, b := k.open(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	values := map[string]string{"a": "1", "empty": "", "every/byte": string(all), "long": strings.Repeat("x", 300_000),
		"ä/ö ü+%2F=?": "odd key",
		"CON/nul.":    "names that some file systems keep for themselves", ".hidden/_under": "dots",
		"a b/" + strings.Repeat("k", 200): "long segment"}
	for key, value := range values {
		put(t, ctx, b, key, value)
	}
	for key, value := range values {
		got, ok, err := b.Get(ctx, key)
		if err != nil || !ok || string(got) != value {
			t.Errorf("Get(%q) = %d bytes, %t, %v; want %d bytes", key, len(got), ok, err, len(value))
		}
	}
	put(t, ctx, b, "a", "2")
	if got, _, err := b.Get(ctx, "a"); err != nil || string(got) != "2" {
		t.Errorf("after a second Put: %q, %v", got, err)
	}
	must(t, b.Commit(ctx, 0, []storage.Op{storage.Delete("a"), storage.Delete("never/was")}))
	if _, ok, err := b.Get(ctx, "a"); ok || err != nil {
		t.Errorf("after Delete: %t, %v", ok, err)
	}
	must(t, b.Commit(ctx, 0, []storage.Op{storage.Put("twice", []byte("1")), storage.Delete("twice"),
		storage.Put("twice", []byte("3"))}))
	if got, _, _ := b.Get(ctx, "twice"); string(got) != "3" {
		t.Errorf("of three operations on a key the last is not what counts: %q", got)
	}
	must(t, b.Commit(ctx, 0, nil))
}

func testList(t *testing.T, k Kit) {
	ctx, b := k.open(t)
	put(t, ctx, b, "a", "", "a/b", "", "a/c/d", "", "a/c/e", "", "a/c", "", "a-b", "", "a0", "", "z/y/x/w", "", "B", "")
	for _, test := range []struct {
		prefix, after string
		limit         int
		want          string
	}{
		{"", "", 0, "B a a-b a/ a0 z/"}, {"a/", "", 0, "b c c/"}, {"a/c/", "", 0, "d e"}, {"z/", "", 0, "y/"},
		{"none/", "", 0, ""},
		{"", "", 2, "B a"}, {"", "a", 2, "a-b a/"}, {"", "a/", 0, "a0 z/"}, {"", "a.", 1, "a/"}, {"a/", "c", 1, "c/"},
		{"a/", "c/", 1, ""},
	} {
		got, err := b.List(ctx, test.prefix, test.after, test.limit)
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("List(%q, %q, %d) = %q, %v; want %q", test.prefix, test.after, test.limit, got, err, test.want)
		}
	}
	must(t, b.Commit(ctx, 0, []storage.Op{storage.Delete("z/y/x/w")}))
	if got, err := b.List(ctx, "", "a0", 0); err != nil || len(got) != 0 {
		t.Errorf("a folder outlived its last key: %q, %v", got, err)
	}
	if _, err := b.List(ctx, "no-slash", "", 0); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a prefix without a slash: %v", err)
	}
}

func testScan(t *testing.T, k Kit) {
	ctx, b := k.open(t)
	put(t, ctx, b, "e/1", "one", "e/2", "two", "e/30", "thirty", "e0", "after", "d", "before")
	for _, test := range []struct {
		from, to string
		limit    int
		want     string
	}{
		{"e/", storage.After("e/"), 0, "e/1=one e/2=two e/30=thirty"}, {"e/2", "", 0, "e/2=two e/30=thirty e0=after"},
		{"", "", 2, "d=before e/1=one"}, {"e/1", "e/2", 0, "e/1=one"}, {"x", "", 0, ""},
	} {
		list, err := b.Scan(ctx, test.from, test.to, test.limit)
		var got []string
		for _, r := range list {
			got = append(got, r.Key+"="+string(r.Value))
		}
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("Scan(%q, %q, %d) = %q, %v; want %q", test.from, test.to, test.limit, got, err, test.want)
		}
	}
}

// testWhole: readers see both sides of a transfer or neither.
func testWhole(t *testing.T, k Kit) {
	ctx, b := k.open(t)
	put(t, ctx, b, "w/left", "0", "w/right", "0")
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range 50 {
			v := []byte(fmt.Sprint(i))
			if err := b.Commit(ctx, 0, []storage.Op{storage.Put("w/left", v), storage.Put("w/right", v)}); err != nil {
				t.Errorf("Commit: %v", err)
				return
			}
		}
	})
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		list, err := b.Scan(ctx, "w/", storage.After("w/"), 0)
		if err != nil || len(list) != 2 || string(list[0].Value) != string(list[1].Value) {
			t.Errorf("a scan saw half a commit: %q, %v", list, err)
			break
		}
	}
	wg.Wait()
}

func testRefused(t *testing.T, k Kit) {
	ctx, b := k.open(t)
	for _, key := range []string{"", "/a", "a/", "a//b", "../a", "a/./b", "a/..", "nul\x00", "\xff",
		strings.Repeat("k", 5000)} {
		err := b.Commit(ctx, 0, []storage.Op{storage.Put("good", nil), storage.Put(key, nil)})
		if !errkind.Is(err, errkind.Invalid) {
			t.Errorf("Commit with key %.20q: %v", key, err)
		}
	}
	if limit := b.Info().ValueBytes; limit > 0 && limit <= 64<<20 {
		if err := b.Commit(ctx, 0, []storage.Op{storage.Put("good", make([]byte, limit+1))}); !errkind.Is(err,
			errkind.TooLarge) {
			t.Errorf("Commit of a value above the limit: %v", err)
		}
	}
	if _, ok, err := b.Get(ctx, "good"); ok || err != nil {
		t.Errorf("a part of a refused commit was done: %t, %v", ok, err)
	}
}

func testFence(t *testing.T, k Kit) {
	ctx, b := k.open(t)
	one := []storage.Op{storage.Put("f", []byte("1"))}
	must(t, b.Fence(ctx, 3))
	must(t, b.Fence(ctx, 3)) // asked again after an unknown outcome
	must(t, b.Commit(ctx, 3, one))
	for _, epoch := range []storage.Epoch{0, 2, 4} {
		if err := b.Commit(ctx, epoch, []storage.Op{storage.Put("f", []byte("old"))}); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("Commit at epoch %d of 3: %v", epoch, err)
		}
	}
	must(t, b.Fence(ctx, 7))
	if err := b.Commit(ctx, 3, one); !errors.Is(err, storage.ErrFenced) || !errkind.Is(err, errkind.NotLeader) {
		t.Errorf("the former writer's commit: %v", err)
	}
	if err := b.Fence(ctx, 6); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("Fence below the newest: %v", err)
	}
	if got, _, err := b.Get(ctx, "f"); err != nil || string(got) != "1" {
		t.Errorf("after refused commits: %q, %v", got, err)
	}
}

// testModel compares random commits and reads with a map.
func testModel(t *testing.T, k Kit) {
	ctx, b := k.open(t)
	rng := rand.New(rand.NewPCG(7, 11))
	model := map[string]string{}
	key := func() string {
		parts := make([]string, 1+rng.IntN(3))
		for i := range parts {
			parts[i] = []string{"a", "b", "c-", "d/e", "f"}[rng.IntN(5)]
		}
		return strings.Join(parts, "/")
	}
	steps := k.Steps
	if steps == 0 {
		steps = 400
	}
	for i := range steps {
		var ops []storage.Op
		for range 1 + rng.IntN(5) {
			at := key()
			if rng.IntN(3) == 0 {
				ops = append(ops, storage.Delete(at))
				delete(model, at)
				continue
			}
			v := fmt.Sprint(i, rng.IntN(100))
			ops = append(ops, storage.Put(at, []byte(v)))
			model[at] = v
		}
		must(t, b.Commit(ctx, 0, ops))
		if prefix := []string{"", "a/", "d/e/", "b/c-/"}[rng.IntN(4)]; i%4 == 0 {
			compareList(t, ctx, b, model, prefix)
		}
	}
	compareScan(t, ctx, b, model)
}

func compareList(t *testing.T, ctx context.Context, b storage.Backend, model map[string]string, prefix string) {
	t.Helper()
	want := map[string]bool{}
	for key := range model {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			if folder, _, deep := strings.Cut(rest, "/"); deep {
				rest = folder + "/"
			}
			want[rest] = true
		}
	}
	var got []string
	for after := ""; ; after = got[len(got)-1] { // by pages of 3
		page, err := b.List(ctx, prefix, after, 3)
		must(t, err)
		got = append(got, page...)
		if len(page) < 3 {
			break
		}
	}
	if len(got) != len(want) || !slices.IsSorted(got) ||
		slices.ContainsFunc(got, func(n string) bool { return !want[n] }) {
		t.Fatalf("List(%q) = %q, want %v", prefix, got, want)
	}
}

func compareScan(t *testing.T, ctx context.Context, b storage.Backend, model map[string]string) {
	t.Helper()
	list, err := b.Scan(ctx, "", "", 0)
	must(t, err)
	if len(list) != len(model) {
		t.Fatalf("%d records, want %d", len(list), len(model))
	}
	for i, r := range list {
		if model[r.Key] != string(r.Value) || (i > 0 && list[i-1].Key >= r.Key) {
			t.Fatalf("record %d is %q=%q, want %q, in order", i, r.Key, r.Value, model[r.Key])
		}
	}
}

// testConcurrent: commits from many goroutines are all there.
func testConcurrent(t *testing.T, k Kit) {
	ctx, b := k.open(t)
	const writers, each = 8, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := b.Commit(ctx, 0, []storage.Op{storage.Put(fmt.Sprintf("c/%d/%d", w, i), []byte("v"))}); err != nil {
					t.Errorf("Commit: %v", err)
					return
				}
				if _, ok, err := b.Get(ctx, fmt.Sprintf("c/%d/%d", w, i)); !ok || err != nil {
					t.Errorf("a commit that returned is not seen: %t, %v", ok, err)
				}
			}
		})
	}
	wg.Wait()
	if list, err := b.Scan(ctx, "c/", storage.After("c/"), 0); err != nil || len(list) != writers*each {
		t.Errorf("%d records, %v; want %d", len(list), err, writers*each)
	}
}

func testReopen(t *testing.T, k Kit) {
	if k.Reopen == nil {
		t.Log("nothing outlives this backend: that is what it says of itself")
		return
	}
	ctx, b := k.open(t)
	must(t, b.Fence(ctx, 5))
	must(t, b.Commit(ctx, 5, []storage.Op{storage.Put("r/1", []byte("one")), storage.Put("r/2", []byte("two"))}))
	must(t, b.Commit(ctx, 5, []storage.Op{storage.Delete("r/1")}))
	must(t, b.Close())
	again := k.Reopen(t)
	defer func() { must(t, again.Close()) }()
	if list, err := again.Scan(ctx, "", "", 0); err != nil || len(list) != 1 || list[0].Key != "r/2" ||
		string(list[0].Value) != "two" {
		t.Errorf("after reopening: %q, %v", list, err)
	}
	if err := again.Commit(ctx, 4, []storage.Op{storage.Delete("r/2")}); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("the fence did not outlive the backend: %v", err)
	}
	must(t, again.Commit(ctx, 5, []storage.Op{storage.Put("r/3", nil)}))
}

func testClosed(t *testing.T, k Kit) {
	ctx, b := k.open(t)
	must(t, b.Close())
	must(t, b.Close())
	if err := b.Commit(ctx, 0, []storage.Op{storage.Put("a", nil)}); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("Commit after Close: %v", err)
	}
	if _, _, err := b.Get(ctx, "a"); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("Get after Close: %v", err)
	}
}
