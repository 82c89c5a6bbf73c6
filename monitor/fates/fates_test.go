package fates

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func TestBook(t *testing.T) {
	var b Book
	web, db := Key{"default", "web-1", "http"}, Key{"default", "db-1", "http"}
	for _, f := range []Fate{{Workflow: "pager", Handler: "pager", Outcome: Filtered, Filter: "hours", At: 1},
		{Workflow: "pager", Handler: "pager", Outcome: Filtered, Filter: "hours", At: 2},
		{Workflow: "chat/all", Handler: "chat", Outcome: Failed, Error: strings.Repeat("é", maxError), At: 2},
		{Workflow: "pager", Handler: "pager", Outcome: Filtered, Filter: "hours", At: 3}} {
		b.Note(web, f)
	}
	got := b.Of(web)
	if len(got) != 2 || got[1] != (Fate{Workflow: "pager", Handler: "pager", Outcome: Filtered, Filter: "hours", At: 3,
		Times: 3}) || len(got[0].Error) > maxError+len("…") || got[0].Times != 1 {
		t.Errorf("%+v", got)
	}
	b.Note(web, Fate{Workflow: "pager", Handler: "pager", Outcome: Handed, At: 4})
	if got := b.Of(web)[1]; got.Outcome != Handed || got.Filter != "" || got.Times != 1 {
		t.Errorf("after it was handed over: %+v", got)
	}
	if got := b.Of(db); len(got) != 0 {
		t.Errorf("of another check: %+v", got)
	}
	(*Book)(nil).Note(web, Fate{})
}

// TestBounded: whatever comes, only so much is remembered, and what is still written to is never forgotten.
func TestBounded(t *testing.T) {
	var b Book
	mine := Key{"default", "mine", "http"}
	for i := range 5 * parts * maxChecks {
		b.Note(Key{"default", fmt.Sprint("host-", i), "http"}, Fate{Workflow: "pager"})
		if i%100 == 0 {
			b.Note(mine, Fate{Workflow: "pager"})
		}
	}
	all := 0
	for i := range b.parts {
		all += len(b.parts[i].young) + len(b.parts[i].old)
	}
	if all > 2*parts*maxChecks || len(b.Of(mine)) != 1 {
		t.Errorf("%d are remembered, mine: %v", all, b.Of(mine))
	}
	for i := range 2 * maxWorkflows {
		b.Note(mine, Fate{Workflow: fmt.Sprint(i)})
	}
	if n := len(b.Of(mine)); n > maxWorkflows {
		t.Errorf("%d workflows are remembered", n)
	}
}

func TestManyAtOnce(t *testing.T) {
	var b Book
	var all sync.WaitGroup
	key := Key{"default", "web-1", "http"}
	for n := range 8 {
		all.Go(func() {
			for range 100 {
				b.Note(key, Fate{Workflow: fmt.Sprint(n), Outcome: Handed})
				b.Of(key)
			}
		})
	}
	all.Wait()
	for _, f := range b.Of(key) {
		if f.Times != 100 {
			t.Errorf("%+v", f)
		}
	}
}

func TestNewest(t *testing.T) {
	got := Newest([]Fate{{Workflow: "a", At: 1, Server: "s1"}, {Workflow: "b", At: 5, Server: "s1"},
		{Workflow: "a", At: 3, Server: "s2"}})
	if want := []Fate{{Workflow: "a", At: 3, Server: "s2"}, {Workflow: "b", At: 5, Server: "s1"}}; !reflect.DeepEqual(got,
		want) {
		t.Errorf("%+v", got)
	}
}
