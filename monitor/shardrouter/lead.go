package shardrouter

import (
	"context"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/shards"
)

// The leader's part: it pings all servers, and plans the table by what it hears.

const (
	pingEvery   = 250 * time.Millisecond
	pingTime    = time.Second
	writeTime   = 5 * time.Second
	releaseTime = 3 * time.Second
	// handOverMost is how many shards are handed over together.
	handOverMost = 16
)

// heard is what the leader knows of one server.
type heard struct {
	// since is when the oldest question was asked that has no answer; zero is none: a leader that pauses takes nobody's
	// silence for it.
	since  time.Time
	asking bool
	failed bool // the newest question could not be asked, or was refused
	roles
}

// roles is what a server tells of the shards that it owns under a table.
type roles struct {
	synced bitmap // whose replica has everything
	index  uint64 // of the table
	void   bitmap // what it has nothing of
	next   bitmap // whose next replica has everything
	// stalled says that its event store does not answer: its shards go to others in order, as if it was leaving.
	stalled bool
}

type watch struct {
	mu    sync.Mutex
	heard map[string]*heard
	pings sync.WaitGroup
	// Of lead alone:
	turn    int              // from which shard on others are handed over
	kept    map[string]*kept // by server
	refused map[string]error // why a server did not release all it was asked for the last time; nil is that it did
}

// leader is the router of the server that leads: it says who owns which shard.
type leader struct{ *Router }

// run plans while this server leads.
func (s leader) run(ctx context.Context) error {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	defer s.watch.pings.Wait()
	last := s.cfg.Now()
	for {
		now := s.cfg.Now()
		if late := now.Sub(last); late > s.cfg.GoneAfter/2 {
			s.forgive(now) // this process stood still, and may not have read what the others answered
		}
		last = now
		if s.cfg.Leads() && s.cfg.Ready() {
			members := s.everybody()
			s.ping(ctx, members)
			s.plan(ctx, members)
		} else {
			s.watch.mu.Lock()
			clear(s.watch.heard)
			s.watch.mu.Unlock()
			s.watch.kept = nil
			clear(s.watch.refused)
			s.stuck.Store(0)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// forgive begins to count silences anew.
func (s leader) forgive(now time.Time) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	for _, h := range s.watch.heard {
		if !h.since.IsZero() {
			h.since = now
		}
	}
}

// everybody lists the plane's servers, and those of the table that the pool does not know (yet, or any more).
func (s leader) everybody() []Member {
	list := s.cfg.Members()
	known := map[string]bool{"": true}
	for _, m := range list {
		known[m.ID] = true
	}
	if item := s.item(); item != nil {
		for _, p := range item.Object().(*monitor.ShardTable).Shards {
			for _, id := range []string{p.Owner, p.Replica, p.Next} {
				if !known[id] {
					known[id] = true
					list = append(list, Member{ID: id})
				}
			}
		}
	}
	return list
}

// ping asks each server, one question at a time, without waiting for answers.
func (s leader) ping(ctx context.Context, members []Member) {
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range members {
		h := w.heard[m.ID]
		if h == nil {
			h = &heard{}
			w.heard[m.ID] = h
		}
		switch {
		case m.ID == s.cfg.Self && !s.cfg.Ingest.Failed():
			h.since, h.roles = time.Time{}, s.roles()
			continue
		case h.since.IsZero():
			h.since = s.cfg.Now()
		}
		if !h.asking && !m.Left && m.Addr != "" {
			h.asking = true
			w.pings.Go(func() { s.pingOne(ctx, m, h) })
		}
	}
}

func (s leader) pingOne(ctx context.Context, m Member, h *heard) {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	reply, err := s.cfg.Call(ctx, m.Addr, methodPing, nil)
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	h.asking = false
	if h.failed = err != nil || len(reply) < len(h.synced); h.failed {
		return
	}
	var told roles
	copy(told.synced[:], reply)
	r := pack.Read(reply[len(told.synced):])
	told.index = r.Uint()
	copy(told.void[:], r.Bytes())
	copy(told.next[:], r.Bytes()) // servers of before say nothing, and no more of what follows
	told.stalled = r.More() && r.Bool()
	if h.failed = r.More() && r.String() != m.ID; !h.failed { // else it only has the address that this one had
		h.since, h.roles = time.Time{}, told
	}
}

// pong answers a ping: which of the shards owned here have a replica, or a next one, that has everything, and what
// this server lacks.
func (s *Router) pong(context.Context, []byte) ([]byte, error) {
	if s.table.Load() == nil && !s.cfg.Ready() {
		return nil, errkind.Errorf(errkind.Unavailable, "this server is not ready")
	}
	if s.cfg.Ingest.Failed() { // a server that can store nothing is none
		return nil, errkind.Errorf(errkind.Unavailable, "this server can store no events")
	}
	told := s.roles()
	b := pack.Bytes(pack.Bytes(pack.Uint(told.synced[:], told.index), told.void[:]), told.next[:])
	return pack.String(pack.Bool(b, told.stalled), s.cfg.Self), nil
}

// roles tells of the shards that this server owns. The index is read first: what is told of a newer table counts for
// nothing.
func (s *Router) roles() (told roles) {
	told.index = s.followed.Load()
	for i := range shards.Count {
		if s.back.synced(uint16(i)) {
			told.synced.set(i)
		}
		if s.back.nextSynced(uint16(i)) {
			told.next.set(i)
		}
	}
	told.void, told.stalled = s.voids.list(), s.cfg.Ingest.Stalled()
	return told
}

// lateAfter is after which silence what a server said last is not built upon any more: it may be another process by
// now, with less than the former had.
const lateAfter = 2 * pingEvery

// judge makes of what was heard what the plan needs. told is of a shard as the table of that index has it.
func (s leader) judge(members []Member, index uint64) (list []shards.Server,
	told func(of shards.Shard, shard int, follower string) shards.Sync) {
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	now := s.cfg.Now()
	fresh := map[string]roles{} // of this table, by who is no later than usual
	for _, m := range members {
		h := w.heard[m.ID]
		silent := time.Duration(0)
		if !h.since.IsZero() {
			silent = now.Sub(h.since)
		}
		unsure := h.index != index || h.failed || silent > lateAfter
		if !unsure {
			fresh[m.ID] = h.roles
		}
		var lacks func(int) bool
		if void := h.void; h.index == index && void != (bitmap{}) {
			lacks = func(shard int) bool { return void.has(shard) }
		}
		list = append(list, shards.Server{ID: m.ID, Lacks: lacks, Gone: m.Left || silent > s.cfg.GoneAfter, Lost: m.Left ||
			silent > s.cfg.LostAfter,
			Unsure: unsure, Leaving: m.Leaving || h.stalled})
	}
	if !slices.ContainsFunc(list, func(one shards.Server) bool { return !one.Gone && !one.Leaving }) {
		for i, m := range members { // all are stalled: nobody is better than another
			list[i].Leaving = m.Leaving
		}
	}
	return list, func(of shards.Shard, shard int, follower string) shards.Sync {
		owner, known := fresh[of.Owner]
		if !known {
			return shards.Unknown
		}
		if !(follower == of.Replica && owner.synced.has(shard)) && !(follower == of.Next && owner.next.has(shard)) {
			return shards.Behind
		}
		if _, known := fresh[follower]; !known {
			return shards.Unknown // its owner may not know yet what it lost
		}
		return shards.Complete
	}
}

// plan writes the next table, where it is another.
func (s leader) plan(ctx context.Context, members []Member) {
	item := s.item()
	var table shards.Table
	index := uint64(0)
	if item != nil {
		table, index = tableOf(item.Object().(*monitor.ShardTable)), item.Index
	}
	servers, told := s.judge(members, index)
	next, handOver := shards.Plan(table, servers, func(i int, follower string) shards.Sync {
		return told(table[i], i, follower)
	})
	if next != table {
		for i := range next {
			anew := next[i].Owner == table[i].Owner && next[i].Epoch != table[i].Epoch
			if table[i].Owner != "" && (anew || next[i].Owner != table[i].Owner && (next[i].Owner != table[i].Replica ||
				!table[i].Complete)) {
				s.adopted.Add(1) // with less than everything
			}
		}
	}
	s.watchKeepers(&table, servers, func(i int) bool { return told(table[i], i, table[i].Replica) == shards.Complete })
	released := s.handOver(ctx, index, table, s.turns(shards.Now(table, next, handOver)))
	if next = shards.HandOver(next, released); next != table {
		s.write(ctx, index, &next)
	}
}

// turns returns those of a list that are handed over next: others than at the last time, where it has more, since
// their owner may never release some.
func (s leader) turns(list []int) []int {
	at, _ := slices.BinarySearch(list, s.watch.turn)
	list = slices.Concat(list[at:], list[:at])
	list = list[:min(len(list), handOverMost)]
	if len(list) > 0 {
		s.watch.turn = list[len(list)-1] + 1
	}
	return list
}

func (s leader) write(ctx context.Context, index uint64, t *shards.Table) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	op := objects.Op{Verb: objects.Put, Type: monitor.ShardTableType, Name: monitor.ShardTableName,
		Encoded: tagproto.Append(nil, objectOf(t)), If: index}
	if index == 0 {
		op.Verb = objects.Create
	}
	if err := s.cfg.Resources.Write(ctx, op); err != nil && ctx.Err() == nil && !errkind.Is(err, errkind.Conflict) {
		s.cfg.Log.Warn("cannot write the shard table yet", "error", err)
	}
}

// handOver begins to move shards to their replicas in order: their owners stop taking results, and send what they
// have, before the table changes. It returns those of which the replica has everything.
func (s leader) handOver(ctx context.Context, index uint64, t shards.Table, list []int) (released []int) {
	byOwner := map[string][]int{}
	for _, i := range list {
		byOwner[t[i].Owner] = append(byOwner[t[i].Owner], i)
	}
	for id, of := range byOwner {
		list, err := s.releasedBy(ctx, id, index, of)
		if err == nil && len(list) < len(of) {
			err = errkind.Errorf(errkind.Unavailable,
				"of %d shards it released %d: its replicas do not have all of the others yet", len(of), len(list))
		}
		s.watch.refused[id] = err
		released = append(released, list...)
	}
	s.moved.Add(uint64(len(released)))
	return released
}

// releasedBy asks an owner to release shards, and returns those that it did.
func (s leader) releasedBy(ctx context.Context, id string, index uint64, list []int) (released []int, err error) {
	m, err := s.member(id)
	if err != nil {
		return nil, err
	}
	req := pack.Uint(nil, index)
	for _, i := range list {
		req = pack.Uint(req, uint64(i))
	}
	reply, err := s.ask(ctx, m, methodRelease, req, releaseTime)
	if err != nil {
		s.cfg.Log.Debug("shards were not released", "server", m.Name, "error", err)
		return nil, err
	}
	for r := pack.Read(reply); r.More(); {
		if n := r.Uint(); n < shards.Count && slices.Contains(list, int(n)) {
			released = append(released, int(n))
		}
	}
	return released, nil
}

// ask calls a server, this one too.
func (s *Router) ask(ctx context.Context, m Member, method string, req []byte, within time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if m.ID == s.cfg.Self {
		return s.Handlers()[method](ctx, req)
	}
	return s.cfg.Call(ctx, m.Addr, method, req)
}

// frozenFor is how long a released shard waits for the table that gives it away.
const frozenFor = 2 * releaseTime

// release has shards take no results, waits until the replica has all that was taken, and answers with those of which
// it has.
func (s *Router) release(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	index := r.Uint()
	if item := s.item(); item == nil || item.Index != index {
		return nil, errkind.Errorf(errkind.Conflict, "this server has another table")
	}
	var list []uint16
	for r.More() {
		if n := r.Uint(); n < shards.Count && s.owner(uint16(n)) == s.cfg.Self {
			list = append(list, uint16(n))
		}
	}
	if r.Err() != nil {
		return nil, errkind.E(errkind.Invalid, methodRelease, r.Err())
	}
	s.mu.Lock()
	for _, n := range list {
		s.frozen[n] = s.cfg.Now().Add(frozenFor)
		s.cfg.Ingest.Freeze(n)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, releaseTime*2/3)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	settled := func(n uint16) bool { return s.cfg.Ingest.Settled(n) && s.back.drained(n) }
	for waiting := true; waiting && ctx.Err() == nil; {
		waiting = false
		for _, n := range list {
			waiting = waiting || !settled(n)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	var out []byte
	for _, n := range list {
		if settled(n) {
			s.cfg.Ingest.HandedOver(n)
			out = pack.Uint(out, uint64(n))
		} else {
			s.unfreeze(n)
			s.cfg.Ingest.Own(n)
		}
	}
	return out, nil
}

func (s *Router) unfreeze(n uint16) {
	s.mu.Lock()
	delete(s.frozen, n)
	s.mu.Unlock()
}

// thaw lets shards take results again whose new table did not come.
func (s *Router) thaw() {
	now := s.cfg.Now()
	s.mu.Lock()
	var list []uint16
	for n, until := range s.frozen {
		if now.After(until) {
			list = append(list, n)
			delete(s.frozen, n)
		}
	}
	s.mu.Unlock()
	for _, n := range list {
		if s.owner(n) == s.cfg.Self {
			s.cfg.Ingest.Own(n)
		}
	}
}
