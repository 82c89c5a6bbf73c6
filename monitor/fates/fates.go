// Package fates remembers what became of events that were to reach a handler: of each check on an entity the newest
// outcome at each workflow, so that somebody who looks at a failing check sees who was told, and which filter kept it
// away. It is no log: an outcome takes the place of the one before, and what nobody wrote to for long is forgotten.
//
// All methods may be called from any goroutine. None waits for anything but another one of them.
package fates

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
)

// The outcomes.
const (
	Handed   = "handed"   // the handler took it
	Failed   = "failed"   // the handler did not take it
	Filtered = "filtered" // a filter kept it away
)

// Key is a check on an entity.
type Key struct{ Namespace, Entity, Check string }

// Fate is what became of the newest event at one workflow.
type Fate struct {
	Workflow string `json:"workflow"` // pipeline/workflow, or the handler's name for one that a check names
	Handler  string `json:"handler"`
	Outcome  string `json:"outcome"`
	Filter   string `json:"filter,omitempty"` // that kept it away
	Error    string `json:"error,omitempty"`  // why the handler did not take it
	At       int64  `json:"at"`               // ms since 1970
	Times    uint64 `json:"times"`            // the same outcome in a row
	Server   string `json:"server,omitempty"` // that it became so on
}

const (
	parts        = 32  // of the book, each with its lock: results of many checks come at once
	maxWorkflows = 32  // of a check
	maxError     = 300 // bytes of what went wrong
	// maxChecks bounds what each part remembers twice over: 2 × 32 × 500 checks, at about 300 bytes a fate.
	maxChecks = 500
)

// Book remembers fates. Its zero value is ready.
type Book struct {
	seed  maphash.Seed
	once  sync.Once
	parts [parts]part
}

// part has two generations: when the young one is full it becomes the old one, whose own end is to be forgotten.
type part struct {
	mu         sync.Mutex
	young, old map[Key][]Fate
}

func (b *Book) part(k Key) *part {
	b.once.Do(func() { b.seed = maphash.MakeSeed() })
	return &b.parts[maphash.Comparable(b.seed, k)%parts]
}

// Note remembers a fate; its Times are counted here. A nil Book remembers nothing.
func (b *Book) Note(k Key, f Fate) {
	if b == nil {
		return
	}
	f.Times, f.Error = 1, cut(f.Error)
	p := b.part(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	list, young := p.young[k]
	if !young {
		list = p.old[k]
		delete(p.old, k)
		if len(p.young) >= maxChecks {
			p.old, p.young = p.young, nil
		}
		if p.young == nil {
			p.young = map[Key][]Fate{}
		}
	}
	at := slices.IndexFunc(list, func(o Fate) bool { return o.Workflow == f.Workflow && o.Handler == f.Handler })
	switch {
	case at < 0 && len(list) < maxWorkflows:
		list = append(list, f)
	case at >= 0:
		if was := list[at]; f.Outcome == was.Outcome && f.Filter == was.Filter {
			f.Times = was.Times + 1
		}
		list[at] = f
	}
	p.young[k] = list
}

// Of are the fates of a check's newest event, by workflow.
func (b *Book) Of(k Key) []Fate {
	p := b.part(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.young[k]
	if list == nil {
		list = p.old[k]
	}
	list = slices.Clone(list)
	Sort(list)
	return list
}

// Sort puts fates in order: by workflow and handler, the newest first.
func Sort(list []Fate) {
	slices.SortStableFunc(list, func(a, b Fate) int {
		return cmp.Or(strings.Compare(a.Workflow, b.Workflow), strings.Compare(a.Handler, b.Handler),
			cmp.Compare(b.At, a.At))
	})
}

// Newest keeps of each workflow and handler the newest fate, whichever server it is of.
func Newest(list []Fate) []Fate {
	Sort(list)
	return slices.CompactFunc(list, func(a, b Fate) bool { return a.Workflow == b.Workflow && a.Handler == b.Handler })
}

func cut(s string) string {
	if len(s) <= maxError {
		return s
	}
	return strings.ToValidUTF8(s[:maxError], "") + "…"
}
