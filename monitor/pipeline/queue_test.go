package pipeline

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
)

// numbered is a task of a key with a number that grows with each of the key.
type numbered struct {
	key    string
	number int
	edge   bool
}

// TestQueue compares the queue with what its doc promises, over random runs: nothing is lost while there is room,
// everything is accounted for, each key's tasks come in order and one at a time, and the newest of a key stays where
// there are not more keys than room.
func TestQueue(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		most := 1 + rng.IntN(8)
		keys := 1 + rng.IntN(2*most)
		q := newQueue(most)
		what := map[*task]numbered{}
		newest, last := map[string]int{}, map[string]int{}
		var inHand []*task
		var put, taken, merged, shed int
		busy := map[string]bool{}
		for range 400 {
			switch rng.IntN(5) {
			case 0, 1, 2:
				k := fmt.Sprint("k", rng.IntN(keys))
				newest[k]++
				edge := rng.IntN(3) == 0
				p := &ingest.Published{Namespace: "n", Entity: k, Outcome: monitor.Outcome{Resolution: edge}}
				x := &task{item: &item{p: p}, w: &workflow{id: "w"}}
				what[x] = numbered{k, newest[k], edge}
				before, _ := q.waiting()
				l := q.put(x)
				put++
				merged, shed = merged+l.merged, shed+l.shed
				if before < most && l != (lost{}) || before == most && l.merged+l.shed != 1 {
					t.Fatalf("seed %d: %d of %d waited, and %+v gave way", seed, before, most, l)
				}
				if keys <= most && l.shed > 0 {
					t.Fatalf("seed %d: shed with %d keys and room for %d", seed, keys, most)
				}
			case 3:
				x := q.take()
				if x == nil {
					break
				}
				taken++
				n := what[x]
				if busy[n.key] || n.number <= last[n.key] {
					t.Fatalf("seed %d: %+v comes after number %d, or beside it", seed, n, last[n.key])
				}
				busy[n.key], last[n.key] = true, n.number
				inHand = append(inHand, x)
			case 4:
				if len(inHand) == 0 {
					break
				}
				n := rng.IntN(len(inHand))
				q.done(inHand[n])
				busy[what[inHand[n]].key] = false
				inHand = append(inHand[:n], inHand[n+1:]...)
			}
			if n, _ := q.waiting(); n > most || put != taken+merged+shed+n {
				t.Fatalf("seed %d: %d put, %d taken, %d merged, %d shed, %d wait of %d", seed, put, taken, merged, shed, n, most)
			}
		}
		for _, x := range inHand {
			q.done(x)
		}
		for x := q.take(); x != nil; x = q.take() {
			last[what[x].key] = what[x].number
			q.done(x)
		}
		if keys <= most {
			for k, n := range newest {
				if last[k] != n {
					t.Fatalf("seed %d: the newest of %s was %d, and %d came last", seed, k, n, last[k])
				}
			}
		}
		if len(q.lanes)+q.ready.Len()+q.plain.Len()+q.all.Len()+q.olderPlain.Len()+q.olderEdges.Len() != 0 {
			t.Fatalf("seed %d: something is left: %d lanes", seed, len(q.lanes))
		}
	}
}

// An event that begins or ends an incident gives way last.
func TestEdgesStay(t *testing.T) {
	q := newQueue(3)
	put := func(entity string, edge bool) lost {
		return q.put(&task{item: &item{p: &ingest.Published{Entity: entity, Outcome: monitor.Outcome{Resolution: edge}}},
			w: &workflow{}})
	}
	put("a", true)
	put("a", false)
	put("b", false)
	for n, c := range []struct {
		entity string
		edge   bool
		want   lost
	}{
		{"a", true, lost{merged: 1}},  // takes the place of its plain one
		{"c", false, lost{merged: 1}}, // a's first gives way, of which a newer one waits
		{"d", true, lost{shed: 1}},    // b's, the oldest plain one
		{"d", true, lost{merged: 1}},  // its own
		{"e", false, lost{shed: 1}},   // c's
		{"e", true, lost{merged: 1}},  // its own
		{"f", false, lost{shed: 1}},   // itself: all others are edges
		{"f", true, lost{shed: 1}},    // a's, the oldest
	} {
		if got := put(c.entity, c.edge); got != c.want {
			t.Errorf("%d: %+v", n, got)
		}
	}
	var left []string
	for x := q.take(); x != nil; x = q.take() {
		left = append(left, x.p.Entity)
		q.done(x)
	}
	if fmt.Sprint(left) != "[d e f]" {
		t.Errorf("%v", left)
	}
}
