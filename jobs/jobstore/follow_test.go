package jobstore

import (
	"slices"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/state"
)

// TestFollow: a Follower hears of the allocations of its node that change or are swept, and of nothing else; who did
// not ask for long, or was given another state, is told to look at all.
func TestFollow(t *testing.T) {
	s, node := New(Config{}), jobs.ID{9}
	on := func(node jobs.ID, id byte) *jobs.Allocation { return &jobs.Allocation{ID: jobs.ID{id}, NodeID: node} }
	first, second, other := s.Follow(node), s.Follow(node), s.Follow(jobs.ID{8})
	is := func(f *Follower, all bool, want ...jobs.ID) {
		t.Helper()
		if list, _, lost := f.Changed(); lost != all || !slices.Equal(list, want) {
			t.Errorf("changed %v, all %v; want %v, %v", list, lost, want, all)
		}
	}
	for _, f := range []*Follower{first, second, other} {
		is(f, true)
	}
	s.follow.note([]Changed{{Core: []state.Change{{After: on(node, 1)}, {After: &jobs.Evaluation{}}}},
		{Core: []state.Change{{Before: on(node, 2), After: on(node, 2)}, {Before: on(node, 3)}}}})
	is(first, false, jobs.ID{1}, jobs.ID{2}, jobs.ID{3})
	is(first, false)
	is(other, false)
	second.Stop()
	one := []Changed{{Core: []state.Change{{After: on(node, 4)}}}}
	for range mostFollowed + 1 {
		s.follow.note(one)
	}
	is(first, true)
	is(second, false, jobs.ID{1}, jobs.ID{2}, jobs.ID{3})
	s.follow.note(one)
	s.follow.lose(1)
	s.follow.note(one)
	is(first, true)
	is(other, true)
	first.Stop()
	other.Stop()
	if len(s.follow.byNode) != 0 {
		t.Error("somebody follows still")
	}
}

// TestFollowerIsBehindTheView: between the moment in which a View is seen and that in which its changes are noted, a
// Follower knows less than the View has. A node that is told the View's index then, and begins its stream anew from
// there, would never be told of what is missing.
func TestFollowerIsBehindTheView(t *testing.T) {
	s, _, do := restoring(t)
	f := s.Follow(jobs.ID{1})
	defer f.Stop()
	if _, upto, all := f.Changed(); !all || upto != s.View().State.Index() {
		t.Fatalf("follows from %d, all %v", upto, all)
	}
	do(place(s, jobs.ID{4}))
	noted := s.View().State.Index()
	next, _, changes := s.View().Apply([]*Command{place(s, jobs.ID{5})})
	s.view.Store(next) // as ApplyBatch does, which is about to note the changes
	list, upto, all := f.Changed()
	if v := s.View(); v.State.Allocation(jobs.ID{5}) == nil || v.State.Index() == noted {
		t.Fatal("nothing was placed")
	}
	if all || !slices.Equal(list, []jobs.ID{{4}}) || upto != noted {
		t.Errorf("%v up to %d, want up to %d", list, upto, noted)
	}
	s.follow.note(changes)
	if list, upto, _ = f.Changed(); !slices.Equal(list, []jobs.ID{{5}}) || upto != next.State.Index() {
		t.Errorf("%v up to %d, want up to %d", list, upto, next.State.Index())
	}
}
