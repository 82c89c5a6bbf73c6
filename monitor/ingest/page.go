package ingest

import (
	"cmp"
	"slices"
	"strings"
)

// Place is where an event stands in lists: by namespace, entity and check.
type Place struct{ Namespace, Entity, Check string }

// Compare orders places.
func (p Place) Compare(o Place) int {
	return cmp.Or(strings.Compare(p.Namespace, o.Namespace), strings.Compare(p.Entity, o.Entity),
		strings.Compare(p.Check, o.Check))
}

// At is the event's place.
func (p *Published) At() Place { return Place{p.Namespace, p.Entity, p.Check} }

// Range says of which events a list is.
type Range struct {
	Namespace string // "" is all
	Check     string // "" is all
	After     Place  // behind which it begins
	// Most is how many whoever asks is going to take; 0 is all. It keeps pages small, and is no limit.
	Most int
}

// What one page holds at most: entities that are looked at, and events.
const (
	pageEntities = 4096
	PageEvents   = 1024
)

// behindChecks is behind every check of an entity: names are ASCII.
const behindChecks = "\xff"

// Page tells of a part of a list.
type Page struct {
	Upto Place // up to which it goes, this one too
	End  bool  // nothing is behind it
	// Owned are the shards of which the page has everything between its beginning and Upto.
	Owned [Shards]bool
}

// Page calls take with the events of a range that are owned here, in order, until take returns false (the event it
// was given counts as taken) or the page is full. Each entity's shard is locked for a moment.
func (in *Ingest) Page(r Range, take func(*Published) bool) Page {
	names, page := in.first(r)
	for _, n := range names {
		list, err := in.Of(n.Namespace, n.Name)
		if err != nil { // it went to another server since
			page.Owned[ShardOf(n.Namespace, n.Name)] = false
			continue
		}
		for _, p := range list {
			if at := p.At(); at.Compare(r.After) <= 0 || r.Check != "" && p.Check != r.Check {
				continue
			} else if !take(p) {
				page.Upto, page.End = at, false
				return page
			}
		}
	}
	return page
}

// first finds the first entities of a range, and a page that would end with the last of them.
func (in *Ingest) first(r Range) (names []EntityName, page Page) {
	most := pageEntities
	if r.Most > 0 && r.Check == "" {
		most = min(most, r.Most)
	}
	order := func(a, b EntityName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	}
	begin, page := EntityName{r.After.Namespace, r.After.Entity}, Page{End: true}
	cut := func() {
		slices.SortFunc(names, order)
		if len(names) > most {
			names, page.End = names[:most], false
		}
	}
	for i := range page.Owned {
		page.Owned[i] = in.Entities(uint16(i), r.Namespace, func(namespace, entity string) {
			n := EntityName{namespace, entity}
			if o := order(n, begin); o < 0 || o == 0 && r.After.Check == behindChecks ||
				!page.End && order(n, names[most-1]) > 0 {
				return
			}
			names = append(names, n)
			if len(names) >= 2*most+64 {
				cut()
			}
		})
	}
	cut()
	if !page.End {
		last := names[most-1]
		page.Upto = Place{last.Namespace, last.Name, behindChecks}
	}
	return names, page
}
