package rowlists

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
)

type word string

func (w word) Words() []string        { return []string{string(w)} }
func (w word) Values(string) []string { return nil }

// TestFiltersAreBounded: typing makes a filter with each key; those that nobody looks at any more are let go.
func TestFiltersAreBounded(t *testing.T) {
	l := &Rolls[word]{Order: func(*word, *word) int { return 0 }}
	from := Maker[word]{Each: func(yield func(string, uint64) bool) { yield("n", 1) },
		Make: func(string) []word { return []word{"web"} }}
	ask := func(text string, n int) Page[word] {
		of := Scope[word]{}
		if n%2 == 1 {
			of = Scope[word]{"web", func(*word) bool { return true }}
		}
		return l.Page("all", 1, from, url.Values{"q": {text}}, of)
	}
	for i := range 5 * maxViews {
		if got := ask("w", i); got.Matching != 1 {
			t.Fatalf("%+v", got)
		}
		if got := ask(fmt.Sprint("x", i), 0); got.Matching != 0 || got.All != 1 {
			t.Fatalf("%+v", got)
		}
	}
	keys := []string{}
	for key := range l.kept["all"].views {
		keys = append(keys, key)
	}
	if len(keys) > maxViews || !slices.Contains(keys, "") || l.Made() != 1 {
		t.Errorf("%d filters are kept: %q; %d rows were made", len(keys), keys, l.Made())
	}
}
