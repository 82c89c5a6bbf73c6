package shardrouter

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/ingest/ingesttest"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/shards"
)

// alone is a Router called "a" over an empty store, which nothing runs; "b" is the other server.
func alone(t *testing.T, call func(method string, req []byte) ([]byte, error)) *Router {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s := New(Config{Self: "a", Resources: resources.New(log), Log: log, Now: time.Now, Leads: func() bool { return true },
		Ready:   func() bool { return true },
		Members: func() []Member { return []Member{{ID: "a"}, {ID: "b", Addr: "b"}} },
		Call:    func(_ context.Context, _, method string, req []byte) ([]byte, error) { return call(method, req) }})
	cfg := ingesttest.Config(log, nil)
	cfg.Shared = true
	in, err := ingest.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Use(in)
	return s
}

func tableItem(table *shards.Table, index uint64) *objects.Item {
	return objects.NewItem("", "", index, objectOf(table))
}

// A server whose store is gone takes nothing of what the table says it has, tells the leader, and begins when the
// table says so anew.
func TestEmptyStore(t *testing.T) {
	s := alone(t, nil)
	var table shards.Table
	for i := range table {
		table[i] = shards.Shard{Owner: "a", Replica: "b", Epoch: 7, Complete: true}
	}
	table[1].Replica = "" // nobody else has anything: it goes on with what there is
	table[2] = shards.Shard{Owner: "b", Replica: "a", Epoch: 7}
	table[3] = shards.Shard{Owner: "b", Epoch: 7}
	s.become(tableItem(&table, 1))
	s.followed.Store(1)
	told := s.roles()
	for i, want := range map[int]bool{0: true, 1: false, 2: true, 3: false, 4: true} {
		if told.void.has(i) != want || s.cfg.Ingest.Owns(uint16(i)) != (table[i].Owner == "a" && !want) {
			t.Errorf("shard %d: void %v, owned %v", i, told.void.has(i), s.cfg.Ingest.Owns(uint16(i)))
		}
	}
	s.watch.heard = map[string]*heard{"a": {}, "b": {}}
	servers, sync := leader{s}.judge(s.cfg.Members(), 1)
	if servers[0].Lacks != nil {
		t.Error("it was not asked yet")
	}
	leader{s}.ping(t.Context(), s.cfg.Members()[:1])
	servers, _ = leader{s}.judge(s.cfg.Members(), 1)
	if servers[0].Lacks == nil || !servers[0].Lacks(0) || servers[0].Lacks(1) ||
		sync(table[0], 0, "b") == shards.Complete {
		t.Error("the leader does not know what it lacks")
	}
	if servers, _ = (leader{s}).judge(s.cfg.Members(), 2); servers[0].Lacks != nil {
		t.Error("what was told of another table counts")
	}
	table[0] = shards.Shard{Owner: "b", Epoch: 8}
	table[4] = shards.Shard{Owner: "a", Epoch: 8}
	s.become(tableItem(&table, 2))
	if s.cfg.Ingest.Owns(0) || !s.cfg.Ingest.Owns(4) || s.cfg.Ingest.Owns(5) || s.voids.has(0) || s.voids.has(4) ||
		!s.voids.has(5) {
		t.Error("what the table says anew does not hold")
	}
	founder := alone(t, nil)
	founder.voids.founding = true
	founder.become(tableItem(&table, 1))
	if founder.roles().void != (bitmap{}) {
		t.Error("who was there before the first table lacks nothing of it")
	}
	whole := pack.Bytes(pack.Uint(pack.Uint(pack.Bool(pack.Uint(pack.String(nil, "b"), 2), true), 7), 0), nil)
	if _, err := s.takeReplica(t.Context(), whole); err != nil || s.voids.has(2) {
		t.Error("it has all of a shard again", err)
	}
}

// A server whose store is gone is made the owner by who has not noticed: it takes nothing, refuses what builds upon
// what it had, and goes on telling the leader, who gives the shard back to the former owner. Nothing counts as
// complete, or is taken over, by a word of before.
func TestEmptyReplica(t *testing.T) {
	s := alone(t, nil)
	var table shards.Table
	for i := range table {
		table[i] = shards.Shard{Owner: "b", Replica: "a", Epoch: 7, Complete: true}
	}
	s.become(tableItem(&table, 1))
	s.followed.Store(1)
	changes := pack.Bytes(pack.Uint(pack.Uint(pack.Bool(pack.Uint(pack.String(nil, "b"), 1), false), 7), 9), nil)
	reply, err := s.takeReplica(t.Context(), changes)
	if r := pack.Read(reply); err != nil || r.String() == "" || r.Uint() != 1 || !s.voids.has(1) {
		t.Error("changes of what is gone are taken", err)
	}
	var full bitmap
	for i := range table {
		full.set(i)
	}
	s.watch.heard = map[string]*heard{"a": {}, "b": {roles: roles{index: 1, synced: full}}}
	plan := func() (shards.Table, []int) {
		servers, told := leader{s}.judge(s.cfg.Members(), s.followed.Load())
		return shards.Plan(table, servers, func(i int, who string) shards.Sync { return told(table[i], i, who) })
	}
	if next, hand := plan(); next != table || len(hand) > 0 {
		t.Error("a replica without a word of its own counts as complete")
	}
	leader{s}.ping(t.Context(), s.cfg.Members()[:1])
	next, hand := plan()
	if len(hand) > 0 || next[0].Owner != "b" || next[0].Complete {
		t.Errorf("its owner's word counts for more than its own: %+v, %d handed over", next[0], len(hand))
	}
	table = shards.HandOver(table, []int{0}) // decided before it was known
	s.become(tableItem(&table, 2))
	s.followed.Store(2)
	if s.cfg.Ingest.Owns(0) || !s.voids.has(0) {
		t.Fatal("it owns what it has nothing of")
	}
	leader{s}.ping(t.Context(), s.cfg.Members()[:1])
	if next, _ := plan(); next[0].Owner != "b" || next[0].Epoch != 9 {
		t.Errorf("who has everything does not get it back: %+v", next[0])
	}
}

// What the process said that was there before is not built upon once a question fails, or has no answer in time.
func TestLateWord(t *testing.T) {
	s := alone(t, func(string, []byte) ([]byte, error) { return nil, errors.New("refused") })
	var table shards.Table
	var full bitmap
	for i := range table {
		table[i] = shards.Shard{Owner: "b", Replica: "a", Epoch: 7, Complete: true}
		full.set(i)
	}
	said := roles{index: 1, synced: full}
	judge := func(h *heard) (shards.Sync, bool) {
		s.watch.heard = map[string]*heard{"a": {roles: roles{index: 1}}, "b": h}
		servers, told := leader{s}.judge(s.cfg.Members(), 1)
		return told(table[0], 0, "a"), servers[1].Unsure
	}
	now := time.Now()
	s.cfg.Now = func() time.Time { return now }
	for want, h := range map[shards.Sync]*heard{
		shards.Complete: {roles: said, since: now.Add(-pingEvery)}, // there is always a question under way
		shards.Unknown:  {roles: said, since: now.Add(-3 * pingEvery)},
	} {
		if got, unsure := judge(h); got != want || unsure != (want == shards.Unknown) {
			t.Errorf("%+v: %v, unsure %v", h.since.Sub(now), got, unsure)
		}
	}
	h := &heard{roles: said}
	leader{s}.pingOne(t.Context(), s.cfg.Members()[1], h)
	if got, unsure := judge(h); got != shards.Unknown || !unsure {
		t.Errorf("after a question that failed: %v, unsure %v", got, unsure)
	}
}

// A replica's process that is another one than before is sent everything again, also when nothing changed meanwhile.
func TestReplicaRestarts(t *testing.T) {
	process := "first"
	s := alone(t, func(string, []byte) ([]byte, error) { return pack.String(nil, process), nil })
	s.back.assign(0, "b", "")
	s.Replicate(0, true, 1, []byte("all"))
	send := func() {
		t.Helper()
		list := s.back.take("b")
		refused, err := s.back.call(t.Context(), "b", list)
		if err != nil {
			t.Fatal(err)
		}
		s.back.settle("b", list, refused)
	}
	send()
	send()
	if !s.back.synced(0) || !s.back.follows("b") {
		t.Fatal("the replica has everything")
	}
	process = "second"
	send()
	if s.back.synced(0) || !s.back.links[0].wanted {
		t.Error("the replica has what its disk kept, and no more")
	}
}

// A list is asked for again while a shard is nobody's.
func TestListWhileShardsMove(t *testing.T) {
	asked := 0
	var of bitmap
	for i := range shards.Count / 2 {
		of.set(i)
	}
	s := alone(t, func(string, []byte) ([]byte, error) {
		asked++
		had := of
		if asked == 1 {
			had[0] = 0
		}
		return pack.Bytes(pack.Bool(appendPlace(nil, ingest.Place{}), true), had[:]), nil
	})
	var table shards.Table
	for i := range table {
		table[i] = shards.Shard{Owner: []string{"b", "a"}[i/(shards.Count/2)], Epoch: 1}
	}
	s.become(tableItem(&table, 1))
	list := func(ctx context.Context) (err error) {
		for _, err = range s.List(ctx, ingest.Range{}) {
		}
		return err
	}
	if err := list(t.Context()); err != nil || asked != 2 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	of[1] = 0
	if err := list(ctx); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("a list is short without a word: %v", err)
	}
}

// TestVoidsBegin: an empty store lacks all that the table counts on; it had only what the table knew to be whole.
func TestVoidsBegin(t *testing.T) {
	table := shards.Table{
		{Owner: "self", Replica: "b", Complete: true},
		{Owner: "b", Replica: "self", Complete: true},
		{Owner: "b", Replica: "self"},
		{Owner: "b", Replica: "c", Next: "self", Complete: true},
		{Owner: "self"},
		{Owner: "b", Replica: "c", Complete: true},
	}
	var v voids
	if had := v.begin(&table, "self"); had != 2 {
		t.Errorf("it had %d shards", had)
	}
	for shard, want := range []bool{true, true, true, true, false, false} {
		if v.has(uint16(shard)) != want {
			t.Errorf("shard %d: %v", shard, !want)
		}
	}
	var fresh voids
	if had := fresh.begin(&shards.Table{{Owner: "self", Replica: "b"}, {Owner: "b", Replica: "self"}}, "self"); had != 0 ||
		!fresh.has(0) || !fresh.has(1) {
		t.Errorf("a new server had %d shards", had)
	}
}
