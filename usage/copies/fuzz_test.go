package copies

import (
	"context"
	"hash/maphash"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/cache"
	"corbel.dev/corbel/usage/slots"
)

// FuzzMethods: nothing that another host asks for harms this one.
func FuzzMethods(f *testing.F) {
	methods := []string{MethodReset, MethodCopy, MethodWhole, MethodForget, MethodRelease, MethodGive}
	head := pack.Uint(pack.String(nil, "b"), 7)
	var changes []byte
	from := cache.New(cache.Config{Follower: follower(func(change []byte) { changes = pack.Bytes(changes, change) })})
	for _, key := range []string{"x", "y"} {
		from.Do([]byte(key), func(e *cache.Entry) { s, _ := e.Set(true); s.Add([]byte("m")) })
	}
	chunk, _ := from.Dump(nil, 0, 1<<20, func(string) bool { return true })
	all := appendBlocks(head, []int{blockOf("x"), blockOf("y")})
	for i, req := range [][]byte{all, append(pack.Uint(pack.Uint(slices.Clone(head), 0), 2), changes...), all, all,
		pack.Bool(pack.Uint(pack.Uint(pack.Uint(pack.Uint(pack.String(nil, "b"), 1), 0), 1), 3), true),
		append(pack.Bool(pack.String(nil, "b"), true), chunk...)} {
		f.Add(uint8(i), req)
	}
	view := &View{Map: slots.Assign([]slots.Node{{ID: "b", Host: "b", Port: 1}}, 2), Index: 1}
	f.Fuzz(func(t *testing.T, method uint8, req []byte) {
		h := New(Config{Self: "a", View: func() *View { return view }, Age: func() time.Duration { return 0 }})
		c := cache.New(cache.Config{MaxBytes: 1 << 20, Follower: h})
		h.Use(c)
		if _, err := h.serveReset(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if methods[int(method)%len(methods)] == MethodGive {
			h.change(func(t *table) {
				t.imports[blockOf("x")] = &imported{from: "b", seed: maphash.MakeSeed(), buried: map[uint64]bool{}}
			})
		}
		_, _ = h.Methods()[methods[int(method)%len(methods)]](ctx, req)
		if st := c.Stats(); st.Bytes > st.Most {
			t.Fatalf("it takes %d of %d bytes", st.Bytes, st.Most)
		}
	})
}

type follower func(change []byte)

func (f follower) Follows(string, bool) bool { return true }

func (f follower) Changed(_ string, change []byte) { f(change) }

func (f follower) Cleared() {}
