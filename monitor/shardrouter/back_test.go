package shardrouter

import "testing"

// A shard's next replica is sent what the replica is, and takes its place with what it has; what one of them lacks is
// sent to that one alone.
func TestNextReplica(t *testing.T) {
	s := alone(t, nil)
	b := s.back
	carry := func(id string, want ...bool) { // resets or not, as they are to be
		t.Helper()
		list := b.take(id)
		b.settle(id, list, map[uint16]bool{})
		var got []bool
		for _, c := range list {
			got = append(got, c.reset)
		}
		if len(got) != len(want) {
			t.Fatalf("%s was sent %v, want %v", id, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s was sent %v, want %v", id, got, want)
			}
		}
	}
	b.assign(7, "b", "")
	s.Replicate(7, false, 1, []byte("change")) // of before
	s.Replicate(7, true, 1, []byte("all"))
	carry("b", true)
	b.assign(7, "b", "c")
	if !b.synced(7) || b.nextSynced(7) {
		t.Fatal("the replica has everything, and the next one nothing")
	}
	s.Replicate(7, false, 2, []byte("change"))
	s.Replicate(7, true, 2, []byte("all"))
	carry("b", false)
	carry("c", true)
	s.Replicate(7, false, 3, []byte("change"))
	carry("b", false)
	if !b.synced(7) || !b.nextSynced(7) || !b.drained(7) {
		t.Fatal("both have everything")
	}
	list := b.take("c") // on its way, while it becomes the replica
	b.assign(7, "c", "")
	if !b.synced(7) || b.drained(7) || b.follows("b") {
		t.Fatal("the next one does not go on as it was")
	}
	b.settle("c", list, map[uint16]bool{})
	s.Replicate(7, false, 4, []byte("change"))
	if b.drained(7) {
		t.Fatal("there is something on its way")
	}
	carry("c", false)
	if !b.drained(7) || s.back.waiting.Load() != 0 {
		t.Fatal("all has been sent")
	}
	b.assign(7, "c", "b") // who was the replica begins anew
	s.Replicate(7, true, 4, []byte("all"))
	carry("c")
	carry("b", true)
	b.assign(7, "c", "")
	b.assign(7, "", "")
	s.Replicate(7, true, 5, []byte("all"))
	if b.follows("b") || b.follows("c") || b.waiting.Load() != 0 {
		t.Fatal("nobody follows")
	}
}
