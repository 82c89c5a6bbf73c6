package shardrouter

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/shards"
)

// The way to the replicas. Each owned shard is sent whole once its replica is named, and then as it changes. One
// goroutine for each server that has replicas of ours sends what waits for it, one call at a time: an answer says
// that it was applied.

// callBytes is about how much one call carries, callTime how long it may take.
const (
	callBytes = 2 << 20
	callTime  = 10 * time.Second
)

// chunk is a piece of a shard's changes.
type chunk struct {
	shard   uint16
	reset   bool
	until   uint64
	epoch   uint64
	records *[]byte // of pieces
}

// link is the state of one owned shard towards its replica, or the next one.
type link struct {
	replica string // "" is none
	whole   bool   // the replica was sent all, and everything since: false drops changes until all is sent again
	acked   bool   // it answered since it was sent all
	wanted  bool   // all of it was asked for
	flight  bool   // a call with changes of it is under way
	queue   []chunk
}

type back struct {
	s *Router

	mu    sync.Mutex
	links [2 * shards.Count]link   // by shard, those to the next replicas behind all others
	peers map[string]chan struct{} // by id; a token: something waits for it
	// processes are those that answered last, by id.
	processes map[string]string
	spawn     chan string // peers that need a goroutine; as many as there may ever be

	waiting      atomic.Int64
	sent, resent atomic.Uint64
}

func newBack(s *Router) *back {
	return &back{s: s, peers: map[string]chan struct{}{}, processes: map[string]string{}, spawn: make(chan string, 256)}
}

// assign says who follows a shard, and who is to be its replica next.
func (b *back) assign(shard uint16, replica, next string) {
	b.mu.Lock()
	now, then := &b.links[shard], &b.links[shards.Count+int(shard)]
	if replica != "" && then.replica == replica { // it goes on, as the replica
		b.clear(now)
		*now, *then = *then, link{}
	}
	whole := b.lead(now, replica)
	whole = b.lead(then, next) || whole
	b.mu.Unlock()
	if whole {
		b.s.cfg.Ingest.Resend(shard)
	}
}

// lead says to whom a link leads; true is that all is to be sent. The lock is held.
func (b *back) lead(l *link, id string) bool {
	if l.replica == id {
		return false
	}
	b.clear(l)
	*l = link{replica: id, wanted: id != ""}
	if id != "" && b.peers[id] == nil {
		b.peers[id] = make(chan struct{}, 1)
		select {
		case b.spawn <- id:
		default: // more servers than there are shards were never alive together
		}
	}
	return id != ""
}

// clear drops what waits of a shard. The lock is held.
func (b *back) clear(l *link) {
	for _, c := range l.queue {
		b.waiting.Add(-int64(len(*c.records)))
		putPiece(c.records)
	}
	l.queue = nil
}

// Replicate is for ingest.Config. What is reset goes to those alone who lack something; others were given what it is
// made of.
func (s *Router) Replicate(shard uint16, reset bool, until uint64, records []byte) {
	b := s.back
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range []*link{&b.links[shard], &b.links[shards.Count+int(shard)]} {
		if l.replica != "" && l.whole != reset { // else it has it, or all of it is on its way
			b.put(l, chunk{shard: shard, reset: reset, until: until}, records)
		}
	}
}

// put queues a piece. The lock is held.
func (b *back) put(l *link, c chunk, records []byte) {
	switch {
	case c.reset:
		b.clear(l)
		l.whole, l.acked, l.wanted = true, false, false
		b.resent.Add(1)
	case b.waiting.Load()+int64(len(records)) > int64(b.s.cfg.BackBytes):
		b.clear(l)
		l.whole, l.wanted = false, true // asked for by the sender, once there is room
		return
	}
	if t := b.s.table.Load(); t != nil {
		c.epoch = t[c.shard].Epoch
	}
	c.records = pieces.Get().(*[]byte)
	*c.records = append((*c.records)[:0], records...)
	l.queue = append(l.queue, c)
	b.waiting.Add(int64(len(records)))
	select {
	case b.peers[l.replica] <- struct{}{}:
	default:
	}
}

// synced reports whether the replica of an owned shard has everything but what is on its way; nextSynced is of the
// next one.
func (b *back) synced(shard uint16) bool     { return b.has(int(shard)) }
func (b *back) nextSynced(shard uint16) bool { return b.has(shards.Count + int(shard)) }

func (b *back) has(at int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &b.links[at]
	return l.replica != "" && l.whole && l.acked
}

// drained reports whether nothing of a shard is on its way.
func (b *back) drained(shard uint16) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &b.links[shard]
	return l.replica != "" && l.whole && l.acked && len(l.queue) == 0 && !l.flight
}

// run sends until ctx ends.
func (b *back) run(ctx context.Context) error {
	var senders sync.WaitGroup
	defer senders.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case id := <-b.spawn:
			senders.Go(func() { b.send(ctx, id) })
		}
	}
}

// send is the sender to one server.
func (b *back) send(ctx context.Context, id string) {
	b.mu.Lock()
	token := b.peers[id]
	b.mu.Unlock()
	pause := backoff.Backoff{Min: b.s.cfg.ReplicateEvery, Max: 2 * time.Second}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	quiet := false // nothing was sent for a tick: then a call without changes asks which process it is
	for {
		probe := false
		select {
		case <-ctx.Done():
			return
		case <-token:
		case <-again.C:
			b.ask(id)
			probe, quiet = quiet && b.follows(id), true
		}
		list := b.take(id)
		if len(list) == 0 && !probe {
			continue
		}
		quiet = false
		wait := b.s.cfg.ReplicateEvery
		if refused, err := b.call(ctx, id, list); err != nil {
			if ctx.Err() == nil {
				b.s.cfg.Log.Debug("a replica could not be reached", "server", id, "error", err)
			}
			b.settle(id, list, nil)
			wait = pause.Next()
		} else {
			pause.Reset()
			b.settle(id, list, refused)
			if b.more(id) {
				wait = 0
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		b.ask(id)
		select {
		case token <- struct{}{}: // there may be more
		default:
		}
	}
}

// ask asks for the whole of shards whose replica lacks something, while there is room.
func (b *back) ask(id string) {
	var list []uint16
	b.mu.Lock()
	for i := range b.links {
		if l := &b.links[i]; l.replica == id && l.wanted && b.waiting.Load() < int64(b.s.cfg.BackBytes)/2 {
			list = append(list, uint16(i%shards.Count))
		}
	}
	b.mu.Unlock()
	for _, n := range list {
		b.s.cfg.Ingest.Resend(n)
	}
}

// follows reports whether a server is the replica of anything of ours.
func (b *back) follows(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.links[:], func(l link) bool { return l.replica == id })
}

// take takes what goes with one call.
func (b *back) take(id string) (list []chunk) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := 0
	for i := range b.links {
		l := &b.links[i]
		if l.replica != id {
			continue
		}
		for len(l.queue) > 0 && size < callBytes {
			c := l.queue[0]
			if l.queue = l.queue[1:]; len(l.queue) == 0 {
				l.queue = nil
			}
			l.flight = true
			size += len(*c.records)
			b.waiting.Add(-int64(len(*c.records)))
			list = append(list, c)
		}
	}
	return list
}

// more reports whether more waits for a server than one call carries.
func (b *back) more(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := 0
	for i := range b.links {
		if l := &b.links[i]; l.replica == id {
			for _, c := range l.queue {
				size += len(*c.records)
			}
		}
	}
	return size > callBytes
}

// settle ends a call; refused are the shards that must be sent whole, nil is all.
func (b *back) settle(id string, list []chunk, refused map[uint16]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range list {
		l := &b.links[c.shard]
		if l.replica != id {
			l = &b.links[shards.Count+int(c.shard)]
		}
		if l.replica != id {
			continue // another one follows meanwhile
		}
		l.flight = false
		if refused == nil || refused[c.shard] {
			b.clear(l)
			l.whole, l.acked, l.wanted = false, false, true
		} else if l.whole && (len(l.queue) == 0 || !l.queue[0].reset) {
			l.acked = true
		}
	}
}

// greet notes which process answers for a server. Another one than before has only what its disk kept, which is less
// than it answered for.
func (b *back) greet(id, process string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	former := b.processes[id]
	b.processes[id] = process
	if former == "" || former == process {
		return
	}
	for i := range b.links {
		if l := &b.links[i]; l.replica == id {
			b.clear(l)
			l.whole, l.acked, l.wanted = false, false, true
		}
	}
}

func (b *back) call(ctx context.Context, id string, list []chunk) (refused map[uint16]bool, err error) {
	m, err := b.s.member(id)
	if err != nil {
		return nil, err
	}
	size := 64
	for _, c := range list {
		size += len(*c.records) + 32
	}
	req := pack.String(make([]byte, 0, size), b.s.cfg.Self)
	for _, c := range list {
		req = pack.Uint(req, uint64(c.shard))
		req = pack.Bool(req, c.reset)
		req = pack.Uint(pack.Uint(req, c.epoch), c.until)
		req = pack.Bytes(req, *c.records)
		putPiece(c.records)
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	reply, err := b.s.cfg.Call(ctx, m.Addr, methodReplicate, req)
	if err != nil {
		return nil, err
	}
	b.sent.Add(uint64(len(req)))
	r := pack.Read(reply)
	b.greet(id, r.String())
	refused = map[uint16]bool{}
	for r.More() {
		refused[uint16(r.Uint())] = true
	}
	return refused, nil
}

// takeReplica applies what an owner sent, and answers with its process and the shards of which it wants the whole.
func (s *Router) takeReplica(_ context.Context, req []byte) ([]byte, error) {
	t := s.table.Load()
	if t == nil {
		return nil, errkind.Errorf(errkind.Unavailable, "this server does not know the table yet")
	}
	if s.cfg.Ingest.Full() {
		return nil, errkind.Errorf(errkind.Overloaded, "this server's event store does not answer")
	}
	r := pack.Read(req)
	from := r.String()
	var refused []byte
	for r.More() {
		shard, reset, epoch, until, records := r.Uint(), r.Bool(), r.Uint(), r.Uint(), r.Bytes()
		if r.Err() != nil || shard >= uint64(len(t)) {
			break
		}
		if one := t[shard]; one.Owner != from || one.Replica != s.cfg.Self && one.Next != s.cfg.Self || one.Epoch != epoch {
			refused = pack.Uint(refused, shard) // one of us does not know the newest table
			continue
		}
		if !reset && s.voids.has(uint16(shard)) {
			refused = pack.Uint(refused, shard) // its owner does not know yet what is gone
			continue
		}
		if err := s.cfg.Ingest.Apply(uint16(shard), reset, until, records); err != nil {
			s.cfg.Log.Debug("a replica needs a shard anew", "shard", shard, "error", err)
			refused = pack.Uint(refused, shard)
		} else if reset {
			s.voids.end(uint16(shard))
		}
	}
	if r.Err() != nil {
		return nil, errkind.E(errkind.Invalid, methodReplicate, r.Err())
	}
	return append(pack.String(nil, s.queues.self), refused...), nil
}
