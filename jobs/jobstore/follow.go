package jobstore

import (
	"slices"
	"sync"

	"corbel.dev/corbel/jobs"
)

// mostFollowed bounds how many changes are kept for a Follower that does not ask: more than a node is given at once. A
// Follower that missed some is told to look at all allocations of its node.
const mostFollowed = 4096

// Follower hears by name which allocations of one node change. Who tells a node of them looks at those alone: most of
// what a node had has ended and changes no more, and a busy node has thousands of it. One goroutine uses it.
type Follower struct {
	of   *followers
	node jobs.ID
	list []jobs.ID // since Changed was called last; guarded by of.mu
	lost bool      // some are not in list; guarded by of.mu
}

// followers are all Followers of a Store.
type followers struct {
	mu     sync.Mutex // guards what follows, and what the Followers keep
	byNode map[jobs.ID][]*Follower
	noted  uint64 // the index up to which all changes were
}

// Follow begins to follow the allocations of a node. The first call of Changed says that all are to be looked at. Stop
// it.
func (s *Store) Follow(node jobs.ID) *Follower {
	f := &Follower{of: &s.follow, node: node, lost: true}
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.of.byNode == nil {
		f.of.byNode = map[jobs.ID][]*Follower{}
	}
	f.of.byNode[node] = append(f.of.byNode[node], f)
	return f
}

// Changed are the allocations of the node that were changed or swept since it was called last, some of them twice; all
// says that any may have been. Every View that is asked for afterwards has these changes. It may have later ones,
// which the next call tells: upto is the index up to which nothing is missing. Whoever watches the node's allocations
// is woken after it is kept here.
func (f *Follower) Changed() (list []jobs.ID, upto uint64, all bool) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	list, all = f.list, f.lost
	f.list, f.lost = nil, false
	return list, f.of.noted, all
}

// Stop ends it.
func (f *Follower) Stop() {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	left := slices.DeleteFunc(f.of.byNode[f.node], func(other *Follower) bool { return other == f })
	if f.of.byNode[f.node] = left; len(left) == 0 {
		delete(f.of.byNode, f.node)
	}
}

// note keeps what a batch changed for those who follow it. The View that has it is visible.
func (s *followers) note(changes []Changed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(changes); n > 0 {
		s.noted = changes[n-1].Index
	}
	if len(s.byNode) == 0 {
		return
	}
	for i := range changes {
		for _, c := range changes[i].Core {
			a, ok := c.After.(*jobs.Allocation)
			if !ok {
				a, ok = c.Before.(*jobs.Allocation)
			}
			if !ok {
				continue
			}
			for _, f := range s.byNode[a.NodeID] {
				switch {
				case f.lost:
				case len(f.list) == mostFollowed:
					f.list, f.lost = nil, true
				default:
					f.list = append(f.list, a.ID)
				}
			}
		}
	}
}

// lose says that everything may have changed, up to index.
func (s *followers) lose(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noted = index
	for _, list := range s.byNode {
		for _, f := range list {
			f.list, f.lost = nil, true
		}
	}
}
