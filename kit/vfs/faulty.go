package vfs

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Op is a set of operation kinds.
type Op uint16

// The operation kinds that a Rule can name.
const (
	OpOpen Op = 1 << iota
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpPreallocate
	OpClose
	OpRename
	OpRemove
	OpMkdir
	OpList
	OpStat
	OpSyncDir
	OpAll Op = 1<<iota - 1
)

var opNames = []string{"open", "read", "write", "sync", "truncate", "preallocate", "close",
	"rename", "remove", "mkdir", "list", "stat", "syncdir"}

// String names the kinds, separated by commas; all of them are "all".
func (o Op) String() string {
	if o == OpAll {
		return "all"
	}
	var parts []string
	for i, name := range opNames {
		if o&(1<<i) != 0 {
			parts = append(parts, name)
		}
	}
	return strings.Join(parts, ",")
}

// ParseOp reads what String prints; the empty text means all.
func ParseOp(text string) (Op, error) {
	if text == "" || text == "all" {
		return OpAll, nil
	}
	var set Op
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(opNames, strings.TrimSpace(name))
		if i < 0 {
			return 0, fmt.Errorf("vfs: unknown operation %q (know %s)", name, strings.Join(opNames, " "))
		}
		set |= 1 << i
	}
	return set, nil
}

// Rule says which operations break and how. The faults combine: a delay comes
// first, then the stall, then the error.
type Rule struct {
	// Name identifies the rule for Lift; injecting a rule of the same name replaces it.
	Name string
	// Ops are the kinds that it touches; zero means all.
	Ops Op
	// Glob is a path pattern as in Match; empty means all paths.
	Glob string
	// Skip lets so many matching operations pass first, Count limits how many break; zero means all that follow.
	Skip, Count int
	// Err is returned instead of doing the operation, in an fs.PathError.
	Err error
	// Short, with a write: so many bytes are written, then Err (EIO when nil) is returned. Negative means half.
	Short int
	// Delay is waited before the operation.
	Delay time.Duration
	// Stall blocks the operation until the rule is lifted; it then goes on (or fails with Err).
	Stall bool
	// FlipBit, with a read: one bit of what was read is inverted, chosen by the operation's number.
	FlipBit bool
}

// armed is a Rule in force. seen and hits are counted under Faulty.mu.
type armed struct {
	Rule
	seen, hits int
	waiting    int
	released   chan struct{}
}

// Status tells what a rule has done.
type Status struct {
	Name string
	// Seen counts matching operations, Hits those that were broken, Waiting those that stall now.
	Seen, Hits, Waiting int
}

// Faulty wraps an FS and breaks operations by rule. Without rules an operation
// costs one atomic load more. Rules may be injected and lifted at any time from any
// goroutine; an operation that stalls holds no lock of Faulty.
type Faulty struct {
	under FS
	// Observe, when set before use, is called before every operation that
	// passes, with its kind and path: a test crashes a Mem there.
	Observe func(op Op, path string)

	active atomic.Bool
	mu     sync.Mutex // guards rules and what they count
	rules  []*armed
}

var _ FS = (*Faulty)(nil)

// NewFaulty wraps under; it has no rules yet.
func NewFaulty(under FS) *Faulty { return &Faulty{under: under} }

// Inject puts a rule in force, in place of one with the same name.
func (f *Faulty) Inject(r Rule) {
	if r.Ops == 0 {
		r.Ops = OpAll
	}
	f.Lift(r.Name)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &armed{Rule: r, released: make(chan struct{})})
	f.active.Store(true)
}

// Lift ends the rule and releases what stalls on it; false when there is none of that name.
func (f *Faulty) Lift(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.rules, func(r *armed) bool { return r.Name == name })
	if i < 0 {
		return false
	}
	close(f.rules[i].released)
	f.rules = slices.Delete(slices.Clone(f.rules), i, i+1)
	f.active.Store(len(f.rules) > 0)
	return true
}

// LiftAll ends all rules and releases all that stalls.
func (f *Faulty) LiftAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		close(r.released)
	}
	f.rules = nil
	f.active.Store(false)
}

// Status lists the rules in force, oldest first.
func (f *Faulty) Status() []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]Status, 0, len(f.rules))
	for _, r := range f.rules {
		list = append(list, Status{Name: r.Name, Seen: r.seen, Hits: r.hits, Waiting: r.waiting})
	}
	return list
}

// verdict is what the rules say about one operation.
type verdict struct {
	err   error
	short int // bytes to write before err; only with cut
	cut   bool
	flip  bool
	nth   int
}

// judge counts the operation against the rules, waits as they say, and returns what is to happen.
func (f *Faulty) judge(op Op, path string) verdict {
	var v verdict
	if f.active.Load() {
		for _, r := range f.hit(op, path) {
			v.add(op, r.Rule)
			v.nth = r.nth
			f.wait(r.armed)
			if r.Err != nil || v.cut {
				break
			}
		}
	}
	if f.Observe != nil && v.err == nil {
		f.Observe(op, path)
	}
	if v.err != nil {
		v.err = &fs.PathError{Op: op.String(), Path: path, Err: v.err}
	}
	return v
}

func (v *verdict) add(op Op, r Rule) {
	if r.Err != nil {
		v.err = r.Err
	}
	if r.Short != 0 && op == OpWrite {
		v.cut, v.short = true, r.Short
		if v.err == nil {
			v.err = syscall.EIO
		}
	}
	v.flip = v.flip || (r.FlipBit && op == OpRead)
}

type hitRule struct {
	*armed
	nth int
}

func (f *Faulty) hit(op Op, path string) []hitRule {
	f.mu.Lock()
	defer f.mu.Unlock()
	var hits []hitRule
	for _, r := range f.rules {
		if r.Ops&op == 0 || !Match(r.Glob, path) {
			continue
		}
		r.seen++
		if r.seen <= r.Skip || (r.Count > 0 && r.hits >= r.Count) {
			continue
		}
		r.hits++
		hits = append(hits, hitRule{r, r.hits})
	}
	return hits
}

func (f *Faulty) wait(r *armed) {
	if r.Delay > 0 {
		timer := time.NewTimer(r.Delay)
		select {
		case <-timer.C:
		case <-r.released:
		}
		timer.Stop()
	}
	if !r.Stall {
		return
	}
	f.count(r, +1)
	<-r.released
	f.count(r, -1)
}

func (f *Faulty) count(r *armed, by int) {
	f.mu.Lock()
	r.waiting += by
	f.mu.Unlock()
}
