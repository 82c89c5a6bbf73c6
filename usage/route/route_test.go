package route

import (
	"fmt"
	"reflect"
	"testing"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"pgregory.net/rapid"
)

func members(n int) (list []Member) {
	for i := range n {
		list = append(list, Member{Name: fmt.Sprintf("counter-%d", i)})
	}
	return list
}

func owners(list []Member) (owner [usage.Shards]string, count map[string]int) {
	count = map[string]int{}
	for shard := range owner {
		owner[shard] = Rank(shard, list)
		count[owner[shard]]++
	}
	return owner, count
}

// TestMinimalMovement is section 5's "rendezvous over counters": even shares, and only what must moves.
func TestMinimalMovement(t *testing.T) {
	for n := 2; n <= 12; n++ {
		before, count := owners(members(n))
		for name, c := range count {
			if even := usage.Shards / n; c < even*8/10 || c > even*12/10 {
				t.Errorf("%d members: %s has %d shards, an even share is %d", n, name, c, even)
			}
		}
		after, _ := owners(members(n + 1))
		joined := members(n + 1)[n].Name
		for shard := range before {
			if after[shard] != before[shard] && after[shard] != joined {
				t.Fatalf("%d members: shard %d moved from %s to %s", n, shard, before[shard], after[shard])
			}
		}
	}
	list := members(3)
	list[0].Weight = 2
	if _, count := owners(list); count["counter-0"] < 1900 || count["counter-0"] > 2200 {
		t.Errorf("a weight of 2 beside two of 1 gives %d of %d shards", count["counter-0"], usage.Shards)
	}
	list[0].Draining = true
	if _, count := owners(list); count["counter-0"] != 0 {
		t.Error("a draining member gets shards")
	}
	if Rank(1, nil) != Nobody || Rank(1, []Member{{Name: "a", Draining: true}}) != "a" {
		t.Error("the last member, or none")
	}
}

// TestRollout is section 7: one by one each member drains and comes back; at most k shards move at once, each shard
// has an owner at every step, and who loads it counts beside it before it switches.
func TestRollout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, k := rapid.IntRange(2, 5).Draw(t, "members"), rapid.SampledFrom([]int{60, 300, 5000}).Draw(t, "k")
		table := Table{}.WithMembers(members(n), true)
		if table.Warm() != usage.Shards {
			t.Fatal("the first owners are cold")
		}
		gone := rapid.IntRange(0, n-1).Draw(t, "who")
		list := members(n)
		list[gone].Draining = true
		table = table.WithMembers(list, false)
		moved := 0
		for {
			moves := table.Plan(k)
			if len(moves) == 0 {
				break
			}
			if len(moves) > k {
				t.Fatalf("%d moves at once, at most %d", len(moves), k)
			}
			next, err := table.Begin(moves...)
			if err != nil {
				t.Fatal(err)
			}
			table = next
			for _, m := range moves {
				if !table.Counts(m.From, m.Shard) || !table.Counts(m.To, m.Shard) {
					t.Fatal("a shard that moves is not counted by both")
				}
			}
			if more := table.Plan(k); len(more) != 0 && len(moves) == k {
				t.Fatalf("%d more moves beside %d", len(more), k)
			}
			if table, err = table.Switch(false, moves...); err != nil {
				t.Fatal(err)
			}
			moved += len(moves)
		}
		if left := table.Owned(list[gone].Name); len(left) != 0 || table.Warm() != usage.Shards {
			t.Fatalf("%d shards are left, %d are warm", len(left), table.Warm())
		}
		if moved > usage.Shards/n*13/10 {
			t.Fatalf("%d shards moved for one of %d members", moved, n)
		}
	})
}

func TestLostMember(t *testing.T) {
	table := Table{}.WithMembers(members(3), true)
	move := Move{Shard: table.Owned("counter-1")[0], From: "counter-1", To: "counter-2"}
	table, err := table.Begin(move)
	if err != nil {
		t.Fatal(err)
	}
	former := table
	table = table.WithMembers([]Member{{Name: "counter-0"}, {Name: "counter-2"}}, false)
	if p := table.At(move.Shard); p != (Place{Owner: "counter-2", Cold: true}) {
		t.Errorf("who was loading it does not have it: %+v", p)
	}
	if cold := usage.Shards - table.Warm(); cold != len(former.Owned("counter-1")) {
		t.Errorf("%d shards are cold, %d were lost", cold, len(former.Owned("counter-1")))
	}
	if table, err = table.Warmed(move.Shard, "counter-2"); err != nil || table.At(move.Shard).Cold {
		t.Errorf("%+v, %v", table.At(move.Shard), err)
	}
	if _, err := table.Warmed(move.Shard, "counter-0"); err == nil {
		t.Error("another one warms a shard")
	}
	// The one that loads is lost: the owner keeps it.
	table = former.WithMembers([]Member{{Name: "counter-0"}, {Name: "counter-1"}}, false)
	if p := table.At(move.Shard); p != (Place{Owner: "counter-1"}) {
		t.Errorf("%+v", p)
	}
	for _, wrong := range []Move{{Shard: -1}, {Shard: usage.Shards}, {move.Shard, "counter-0", "counter-1"},
		{move.Shard, "counter-1", "counter-9"}, {move.Shard, "counter-1", "counter-1"}} {
		if _, err := former.Begin(wrong); err == nil {
			t.Errorf("%+v begins", wrong)
		}
		if _, err := former.Switch(false, wrong); err == nil {
			t.Errorf("%+v switches", wrong)
		}
	}
	if _, err := former.Begin(move); err == nil {
		t.Error("a move begins twice")
	}
	if p := former.Abort(move.Shard).At(move.Shard); p != (Place{Owner: "counter-1"}) {
		t.Errorf("aborted: %+v", p)
	}
}

func TestTableIsEncoded(t *testing.T) {
	table := Table{}.WithMembers(members(3), true)
	table, err := table.Begin(table.withMove(t))
	if err != nil {
		t.Fatal(err)
	}
	table = table.WithMembers(members(2), false)
	r := pack.Read(table.Append(nil))
	got, err := Read(r)
	if err != nil || !reflect.DeepEqual(got, table) {
		t.Errorf("%+v, %v", got.Members, err)
	}
}

func (t Table) withMove(tb testing.TB) Move {
	shards := t.Owned("counter-0")
	if len(shards) == 0 {
		tb.Fatal("no shard")
	}
	return Move{shards[0], "counter-0", "counter-1"}
}

func FuzzRead(f *testing.F) {
	f.Add(Table{}.Append(nil))
	f.Add(Table{}.WithMembers(members(2), true).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := Read(pack.Read(b))
		if err != nil {
			return
		}
		again, err := Read(pack.Read(table.Append(nil)))
		if err != nil || string(again.Append(nil)) != string(table.Append(nil)) {
			t.Fatal("what was read is not written the same way twice")
		}
	})
}
