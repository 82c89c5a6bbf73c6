package shards

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func servers(n int) (list []Server) {
	for i := range n {
		list = append(list, Server{ID: fmt.Sprintf("s%d", i)})
	}
	return list
}

func all(int, string) Sync { return Complete }

func told(synced bool) Sync {
	if synced {
		return Complete
	}
	return Behind
}

// settle plans until nothing changes, with replicas that catch up at once.
func settle(t testing.TB, table Table, list []Server) Table {
	t.Helper()
	for range 2000 {
		next, hand := Plan(table, list, all)
		check(t, table, next, list)
		done := HandOver(next, hand)
		check(t, next, done, list)
		if done == table {
			return done
		}
		table = done
	}
	t.Fatal("the plan does not come to rest")
	return table
}

type failer interface {
	Helper()
	Fatalf(string, ...any)
}

// check holds what always holds from one table to the next.
func check(t failer, old, next Table, list []Server) {
	t.Helper()
	gone := map[string]bool{"": true}
	lost := map[string]bool{}
	void := map[string]func(int) bool{}
	alive := false
	for _, s := range list {
		gone[s.ID], lost[s.ID] = s.Gone, s.Lost
		if void[s.ID] = s.Lacks; s.Lacks == nil || s.Gone {
			void[s.ID] = func(int) bool { return false }
		}
		alive = alive || !s.Gone
	}
	for i, s := range next {
		if s.Owner != "" && s.Owner == s.Replica {
			t.Fatalf("shard %d has %s twice", i, s.Owner)
		}
		if s.Next != "" && (s.Next == s.Owner || s.Next == s.Replica || s.Replica == "" || gone[s.Next]) {
			t.Fatalf("shard %d: %+v", i, s)
		}
		if was := old[i]; was.Complete && !gone[was.Replica] && !void[was.Replica](i) && s.Owner == was.Owner &&
			s.Epoch == was.Epoch &&
			s.Replica != was.Replica && (s.Replica != was.Next || !s.Complete) {
			t.Fatalf("shard %d: a replica that has everything is given up: %+v after %+v", i, s, was)
		}
		empty := void[old[i].Owner] != nil && void[old[i].Owner](i)
		if rose := s.Epoch - old[i].Epoch; rose > 1 || !empty && (rose == 1) != (s.Owner != old[i].Owner) {
			t.Fatalf("shard %d: %+v after %+v", i, s, old[i])
		}
		if was := old[i]; s.Owner != was.Owner && was.Owner != "" && s.Owner == was.Replica && gone[was.Owner] &&
			!lost[was.Owner] && !was.Complete {
			t.Fatalf("shard %d went to %s, which lacked something, while %s may come back", i, s.Owner, was.Owner)
		}
		if full := old[i].Replica; empty && s.Owner != full && s.Epoch != old[i].Epoch && full != "" && !lost[full] &&
			!void[full](i) {
			t.Fatalf("shard %d begins anew, though %s has it: %+v after %+v", i, full, s, old[i])
		}
		if s.Complete && s.Replica == "" {
			t.Fatalf("shard %d has no replica that has everything: %+v", i, s)
		}
		if s.Owner != old[i].Owner && gone[s.Owner] {
			t.Fatalf("shard %d went to %s, which is gone", i, s.Owner)
		}
		if g, known := gone[old[i].Owner]; known && !g && s.Owner != old[i].Owner && s.Owner != old[i].Replica {
			t.Fatalf("shard %d was taken from %s, which is there, for %s, which was not its replica", i, old[i].Owner, s.Owner)
		}
	}
}

func counts(table Table) (owners, replicas map[string]int) {
	owners, replicas = map[string]int{}, map[string]int{}
	for _, s := range table {
		owners[s.Owner]++
		replicas[s.Replica]++
	}
	return owners, replicas
}

func even(t testing.TB, table Table, list []Server) {
	t.Helper()
	owners, replicas := counts(table)
	for _, count := range []map[string]int{owners, replicas} {
		least, most := Count, 0
		for _, s := range list {
			if !s.Gone && !s.Leaving {
				least, most = min(least, count[s.ID]), max(most, count[s.ID])
			}
		}
		if most-least > 1 {
			t.Errorf("uneven: %v, %v", owners, replicas)
		}
	}
}

func TestFirstAndOneMore(t *testing.T) {
	one := settle(t, Table{}, servers(1))
	if owners, replicas := counts(one); owners["s0"] != Count || replicas[""] != Count {
		t.Errorf("one server: %v %v", owners, replicas)
	}
	table := one
	for n := 2; n <= 5; n++ {
		table = settle(t, table, servers(n))
		even(t, table, servers(n))
	}
}

func TestTakeOver(t *testing.T) {
	list := servers(3)
	table := settle(t, Table{}, list)
	list[1].Gone = true
	next, hand := Plan(table, list, all)
	for i, s := range next {
		switch {
		case s.Owner == "s1" || s.Replica == "s1":
			t.Fatalf("shard %d still is of the server that is gone: %+v", i, s)
		case table[i].Owner == "s1" && (s.Owner != table[i].Replica || s.Epoch != table[i].Epoch+1):
			t.Fatalf("shard %d went from %+v to %+v", i, table[i], s)
		case table[i].Owner != "s1" && s.Owner != table[i].Owner:
			t.Fatalf("shard %d was taken from %s", i, table[i].Owner)
		}
	}
	even(t, HandOver(next, hand), list)
	list[1].Gone = false
	even(t, settle(t, next, list), list)
}

// TestBothGone: nobody adopts what its owner or its replica may bring back.
func TestBothGone(t *testing.T) {
	list := servers(3)
	table := settle(t, Table{}, list)
	list[0].Gone, list[1].Gone = true, true
	next, _ := Plan(table, list, all)
	for i, s := range next {
		if table[i].Owner != "s2" && table[i].Replica != "s2" && s != table[i] {
			t.Fatalf("shard %d: %+v became %+v", i, table[i], s)
		}
	}
	list[0].Lost, list[1].Lost = true, true
	next, _ = Plan(next, list, all)
	if owners, _ := counts(next); owners["s2"] != Count {
		t.Errorf("owners %v", owners)
	}
}

func TestLeaving(t *testing.T) {
	list := servers(3)
	table := settle(t, Table{}, list)
	list[2].Leaving = true
	table = settle(t, table, list)
	if owners, replicas := counts(table); owners["s2"] != 0 || replicas["s2"] != 0 {
		t.Errorf("%v %v", owners, replicas)
	}
}

// TestBehind: a replica that lacks something gets nothing, and few are behind at a time.
func TestBehind(t *testing.T) {
	table := settle(t, Table{}, servers(2))
	next, hand := Plan(table, servers(3), func(_ int, who string) Sync { return told(who != "s2") })
	changed := 0
	for i := range next {
		if next[i] != table[i] {
			changed++
		}
	}
	if len(hand) != 0 || changed == 0 || changed > moving {
		t.Errorf("%d handed over, %d changed", len(hand), changed)
	}
	if again, hand := Plan(next, servers(3), func(_ int, who string) Sync { return told(who != "s2") }); again != next ||
		len(hand) != 0 {
		t.Error("more were begun while those are behind")
	}
}

// TestRandom: servers come and go as they like; the rules hold at each step, and all is even once they stay.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		list := servers(rapid.IntRange(1, 5).Draw(r, "servers"))
		var table Table
		for range rapid.IntRange(1, 20).Draw(r, "steps") {
			s := &list[rapid.IntRange(0, len(list)-1).Draw(r, "which")]
			s.Gone = rapid.Bool().Draw(r, "gone")
			s.Lost = s.Gone && rapid.Bool().Draw(r, "lost")
			s.Leaving = rapid.Bool().Draw(r, "leaving")
			s.Lacks = nil
			if of := rapid.IntRange(0, 8).Draw(r, "lacks"); of > 5 {
				s.Lacks = func(i int) bool { return i%of == 0 }
			}
			lag := rapid.IntRange(1, 4).Draw(r, "lag")
			next, hand := Plan(table, list, func(i int, _ string) Sync { return []Sync{Complete, Behind, Unknown}[i%lag%3] })
			check(r, table, next, list)
			table = HandOver(next, hand)
			check(r, next, table, list)
		}
		for i := range list {
			list[i] = Server{ID: list[i].ID}
		}
		even(t, settle(t, table, list), list)
	})
}

// TestNobodyLeft: where all who are there leave, nothing moves; who is gone is to be nobody's replica all the same.
func TestNobodyLeft(t *testing.T) {
	list := servers(4)
	table := settle(t, Table{}, list[:3])
	for i := range table {
		table[i].Next = "s3"
	}
	for i := range list {
		list[i].Leaving, list[i].Gone = i < 3, i == 3
	}
	next, hand := Plan(table, list, all)
	check(t, table, next, list)
	for i := range table {
		table[i].Next = ""
	}
	if next != table || len(hand) != 0 {
		t.Error("something moved")
	}
}

// TestIncompleteReplica: a replica that lacks something waits for the owner, until nobody waits for that any more.
func TestIncompleteReplica(t *testing.T) {
	list := servers(2)
	table := settle(t, Table{}, list)
	for i := range table {
		table[i].Complete = i%2 == 0
	}
	list[0].Gone = true
	next, _ := Plan(table, list, func(int, string) Sync { return Unknown })
	for i, s := range next {
		if table[i].Owner == "s0" && (s.Owner == "s1") != table[i].Complete {
			t.Fatalf("shard %d: %+v became %+v", i, table[i], s)
		}
	}
	list[0].Lost = true
	next, _ = Plan(next, list, func(int, string) Sync { return Unknown })
	if owners, _ := counts(next); owners["s1"] != Count {
		t.Errorf("owners %v", owners)
	}
}

// TestEmptyReplica: a replica that lacks what it is to have gets nothing, whatever its owner says of it; nor does one
// whose word is old. A replica is not given up while its owner lacks something.
func TestEmptyReplica(t *testing.T) {
	list := servers(3)
	table := settle(t, Table{}, list)
	few := table
	for i := range few {
		if few[i].Owner == "s0" && few[i].Replica == "s1" { // as after a takeover: s0 has too few
			few[i].Owner, few[i].Replica = "s1", "s0"
		}
	}
	list[0].Lacks = func(int) bool { return true }
	next, hand := Plan(few, list, all)
	for _, i := range hand {
		if few[i].Replica == "s0" {
			t.Fatalf("shard %d is handed over to who has nothing of it: %+v", i, few[i])
		}
	}
	for i, s := range next {
		if few[i].Replica == "s0" && s.Replica == "s0" && s.Complete {
			t.Fatalf("shard %d: %+v counts as complete", i, s)
		}
	}
	list[0].Lacks, list[0].Unsure, list[1].Gone = nil, true, true
	next, _ = Plan(table, list, all)
	for i, was := range table {
		if was.Owner == "s1" && was.Replica == "s0" && next[i] != was {
			t.Fatalf("shard %d: %+v became %+v by an old word", i, was, next[i])
		}
	}
	list[0].Unsure, list[0].Lacks = false, func(int) bool { return true }
	next, _ = Plan(table, list, all)
	for i, was := range table {
		if was.Owner == "s1" && was.Replica == "s0" && next[i].Owner != "s1" {
			t.Fatalf("shard %d: %+v became %+v, which has nothing, and s1 may come back", i, was, next[i])
		}
		if was.Owner == "s0" && was.Replica == "s1" && next[i].Replica != "s1" {
			t.Fatalf("shard %d: %+v became %+v, and s1 may come back with everything", i, was, next[i])
		}
	}
}

// TestEmptied: who came back without what it had gives it to its replica; where that has nothing either, the shard
// begins anew.
func TestEmptied(t *testing.T) {
	list := servers(3)
	table := settle(t, Table{}, list)
	list[0].Lacks = func(int) bool { return true }
	list[1].Lacks = func(i int) bool { return i%2 == 0 }
	next, hand := Plan(table, list, func(int, string) Sync { return Unknown })
	check(t, table, next, list)
	if len(hand) > 0 {
		t.Errorf("%d are handed over by who has nothing", len(hand))
	}
	for i, was := range table {
		empty := list[0].Lacks
		switch {
		case was.Owner == "s0" && was.Replica == "s1" && i%2 == 0: // nobody has anything
			if next[i].Owner != "s0" || next[i].Epoch != was.Epoch+1 {
				t.Errorf("%+v became %+v", was, next[i])
			}
		case was.Owner == "s0" && empty(i):
			if next[i].Owner != was.Replica || next[i].Epoch != was.Epoch+1 {
				t.Errorf("%+v became %+v", was, next[i])
			}
		}
	}
	list[2].Gone = true
	next, _ = Plan(table, list, func(int, string) Sync { return Unknown })
	for i, was := range table {
		if was.Owner == "s0" && was.Replica == "s2" && (next[i].Owner != "s0" || next[i].Epoch != was.Epoch) {
			t.Errorf("%+v became %+v, and the replica may come back", was, next[i])
		}
	}
}
