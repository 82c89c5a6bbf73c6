package shardrouter

import (
	"fmt"
	"testing"
	"time"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/shards"
)

// entityOf returns an entity of a shard that a server owns and that takes a queue. It waits for one, as the deal may
// change meanwhile.
func (c *cluster) entityOf(t *testing.T, owner *server, queue int) (name string) {
	t.Helper()
	polltest.NoError(t, time.Minute, func() error {
		for e := range 100 * ingest.Shards {
			name = fmt.Sprint("e", e)
			if n := ingest.ShardOf("default", name); queueOf(n) == queue && c.servers[0].owner(n) == owner.id {
				return nil
			}
		}
		return fmt.Errorf("%s has no shard of queue %d", owner.id, queue)
	}, "an entity of %s on queue %d", owner.id, queue)
	return name
}

// TestSendQueuesInUse: whatever number of servers is dealt the shards together, all queues to each of them have work.
func TestSendQueuesInUse(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 9; n++ {
		var members []shards.Server
		for i := range n {
			members = append(members, shards.Server{ID: fmt.Sprint("s", i)})
		}
		table, _ := shards.Plan(shards.Table{}, members, func(int, string) shards.Sync { return shards.Complete })
		uses := map[string][]int{}
		for i, one := range table {
			if uses[one.Owner] == nil {
				uses[one.Owner] = make([]int, queueCount)
			}
			uses[one.Owner][queueOf(uint16(i))]++
		}
		for _, m := range members {
			for queue, count := range uses[m.ID] {
				if fair := ingest.Shards / n / queueCount; count < fair/2 {
					t.Errorf("%d servers: %s has %d shards on queue %d, want about %d", n, m.ID, count, queue, fair)
				}
			}
		}
	}
}

// has waits until a server has so many results of an entity, the newest of which is the last one.
func (s *server) has(t *testing.T, entity string, runs int64) {
	t.Helper()
	polltest.NoError(t, time.Minute, func() error {
		ev, err := s.in.Get("default", entity, "c")
		if err == nil && (ev.Check.Occurrences != runs || ev.Check.Executed != runs) {
			err = fmt.Errorf("%d results, the newest is %d", ev.Check.Occurrences, ev.Check.Executed)
		}
		return err
	}, "%d results of %s at %s", runs, entity, s.id)
}

// TestFormerSelf: a server that lost its disk comes back as another one, at the same address. Calls for the one that
// it was reach it until all know that; their numbers are not those of the calls for itself, or it would answer these
// without taking anything.
func TestFormerSelf(t *testing.T) {
	c := newCluster(t, 2)
	c.even(t, 2)
	from, to := c.servers[0], c.servers[1]
	entity, elsewhere := c.entityOf(t, to, 0), c.entityOf(t, from, 0)
	req := pack.Uint(pack.Uint(pack.String(nil, from.queues.name("former")), 0), 1000)
	req = pack.String(pack.Uint(req, uint64(ingest.ShardOf("default", elsewhere))), "default")
	req = pack.Bytes(pack.Bool(req, false), failing(elsewhere, 1))
	if reply, err := c.call(t.Context(), from, to.id, methodEvents, req); err != nil || len(reply) == 0 {
		t.Fatalf("an event of another server is answered with %v, %v", reply, err)
	}
	for run := range int64(5) {
		if err := from.Frame(t.Context(), "default", failing(entity, run+1)); err != nil {
			t.Fatal(err)
		}
	}
	to.has(t, entity, 5)
	h := &heard{since: time.Now()}
	if (leader{from.Router}).pingOne(t.Context(), Member{ID: "former", Addr: to.id}, h); !h.failed || h.since.IsZero() {
		t.Errorf("a server that is there no more has answered a ping: %+v", h)
	}
	if (leader{from.Router}).pingOne(t.Context(), Member{ID: to.id, Addr: to.id}, h); h.failed || !h.since.IsZero() {
		t.Errorf("a server has not answered a ping: %+v", h)
	}
}

// TestFrozenShardHoldsUpNobody: while a shard takes nothing since it is to be handed over, who brings an event of it
// goes on with others, here and in the queues of other servers, and what waited counts afterwards, in its order.
func TestFrozenShardHoldsUpNobody(t *testing.T) {
	c := newCluster(t, 2)
	c.even(t, 2)
	here, there := c.servers[0], c.servers[1]
	frozen, elsewhere := c.entityOf(t, here, 0), c.entityOf(t, there, 0)
	shard := ingest.ShardOf("default", frozen)
	other := frozen
	for e := 0; ingest.ShardOf("default", other) == shard || here.owner(ingest.ShardOf("default", other)) != here.id; e++ {
		other = fmt.Sprint("other", e)
	}
	send := func(entity string, run int64) {
		t.Helper()
		if err := here.Frame(t.Context(), "default", failing(entity, run)); err != nil {
			t.Fatal(err)
		}
	}
	here.in.Freeze(shard) // its release is under way
	for run := range int64(5) {
		send(frozen, run+1) // one session brings them one after the other: none of them waits
		send(other, run+1)
		send(elsewhere, run+1)
	}
	here.has(t, other, 5)
	there.has(t, elsewhere, 5)
	if ev, err := here.in.Get("default", frozen, "c"); err == nil {
		t.Errorf("a frozen shard took results: %+v", ev.Check)
	}
	here.in.Own(shard) // it was not handed over after all
	here.has(t, frozen, 5)
	send(frozen, 6)
	here.has(t, frozen, 6)
}

// TestSendQueueGoesOnBesideAFrozenShard: events in a send queue to another server, whose shard is this server's by
// now and takes nothing, keep nobody else in that queue.
func TestSendQueueGoesOnBesideAFrozenShard(t *testing.T) {
	c := newCluster(t, 2)
	c.even(t, 2)
	here, there := c.servers[0], c.servers[1]
	frozen, elsewhere := c.entityOf(t, here, 0), c.entityOf(t, there, 0)
	shard := ingest.ShardOf("default", frozen)
	here.in.Freeze(shard)
	n := here.queues.queue(there.id, ingest.ShardOf("default", elsewhere))
	event := failing(frozen, 1)
	it := item{shard: shard, namespace: "default", event: event, memory: new([]byte), until: time.Now().Add(time.Minute)}
	h := &here.queues.pending[shard] // as if it had been queued while the shard was the other server's
	h.mu.Lock()
	n.mu.Lock()
	n.items, n.bytes = append(n.items, it), n.bytes+it.size()
	n.mu.Unlock()
	h.queue, h.n = n, 1
	here.in.Queue(shard, true)
	h.mu.Unlock()
	here.queues.waiting.Add(int64(it.size()))
	for run := range int64(3) {
		if err := here.Frame(t.Context(), "default", failing(elsewhere, run+1)); err != nil {
			t.Fatal(err)
		}
	}
	there.has(t, elsewhere, 3)
	here.in.Own(shard)
	here.has(t, frozen, 1)
}
