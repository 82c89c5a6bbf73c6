package shardrouter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/frame"
	"corbel.dev/corbel/monitor/ingest"
)

// The way of events to their owners. Shards are dealt over a few send queues for each server; a queue has one call at a
// time. While an event of a shard waits in a send queue, all later ones of that shard go behind it, whoever owns the
// shard by then; together they move to the queue of another owner, or are taken here. So events of an entity that came
// to one server keep their order. A call whose outcome is unknown is made again under its number, and is taken once;
// only when its owner died meanwhile may another one take what that one took.
//
// An event of a shard that is this server's, and takes nothing at the moment since it is to be handed over, waits on
// a queue of its own (parked), with those of its shard behind it: neither who brought it waits with other events, nor
// does a queue with those of other shards.
//
// What an owner was sent once of a check and its entity it is not sent again: events go in brief (known). The event
// itself is kept until it is taken, since the owner may ask for it.

const (
	queueCount = 2
	sendBytes  = 512 << 10            // about how much one call carries
	sendPace   = 5 * time.Millisecond // between the beginnings of two calls, unless there is more than one call carries
	sendTime   = 15 * time.Second     // for one call
	reqKept    = 64 << 10             // of a call's memory, for the next one
	itemTime   = 30 * time.Second     // for an event to find its owner; agents wait as long for their own server
)

// item is an event on its way.
type item struct {
	shard     uint16
	namespace string
	event     []byte
	brief     []byte
	memory    *[]byte // where both are; it is used again once the event is taken
	rest      uint64  // what the rest of the event is known by
	whole     bool    // it goes as it came with the call under way
	until     time.Time
	left      chan struct{} // closed when the event leaves the queue; nil where nobody waits for it
}

// size is what the event counts for.
func (it *item) size() int { return len(it.event) + len(it.brief) }

// release lets go who waits for the event's turn.
func (it *item) release() {
	if it.left != nil {
		close(it.left)
		it.left = nil
	}
}

// pending is what waits of one shard: n events, all in one queue, or under way from there.
type pending struct {
	mu    sync.Mutex // taken before a queue's
	queue *sendQueue
	n     int
}

type queueKey struct {
	server string
	number int
}

// sendQueue is what waits for one server in one of its queues.
type sendQueue struct {
	key   queueKey
	name  string // by which the receiver knows it
	token chan struct{}
	mu    sync.Mutex
	items []item
	bytes int
	spare []item // for use again
	req   []byte // of the newest call, for use again; its sender's
}

type sendQueues struct {
	s       *Router
	self    string // of this process: numbers begin anew with it
	mu      sync.Mutex
	all     map[queueKey]*sendQueue
	spawn   chan *sendQueue
	pending [ingest.Shards]pending
	known   known

	waiting                   atomic.Int64
	forwarded, brief, dropped atomic.Uint64
}

func newSendQueues(s *Router) *sendQueues {
	return &sendQueues{s: s, self: uuid.NewString(), all: map[queueKey]*sendQueue{}, spawn: make(chan *sendQueue, 256)}
}

// Frame takes an event as an agent sent it, here or at its owner. It returns once the event is taken, or is on its
// way. ctx bounds the wait. Errors are those of ingest.Ingest.Frame; Overloaded, no owner took it in time.
func (s *Router) Frame(ctx context.Context, namespace string, b []byte) error {
	f := frames.Get().(*frame.Frame)
	defer frames.Put(f)
	shard, err := s.cfg.Ingest.Take(ctx, namespace, b, f, false)
	if err != ingest.ErrElsewhere {
		return err
	}
	m := pieces.Get().(*[]byte)
	both, rest := ingest.AppendBrief(append((*m)[:0], b...), f)
	*m = both
	return s.queues.route(ctx, item{shard: shard, namespace: namespace, event: both[:len(b):len(b)],
		brief: both[len(b):], memory: m,
		rest: rest ^ xxhash.Sum64String(namespace), until: s.cfg.Now().Add(itemTime)})
}

// pieces are memory for events and their briefs, and for records.
var pieces = sync.Pool{New: func() any { return new([]byte) }}

// pieceMost is how large a piece may be that is kept.
const pieceMost = 16 << 10

func putPiece(m *[]byte) {
	if cap(*m) <= pieceMost {
		pieces.Put(m)
	}
}

var frames = sync.Pool{New: func() any { return new(frame.Frame) }}

// take is ingest.Ingest.Take of an event that waited.
func (l *sendQueues) take(ctx context.Context, it *item, turn bool) error {
	f := frames.Get().(*frame.Frame)
	defer frames.Put(f)
	_, err := l.s.cfg.Ingest.Take(ctx, it.namespace, it.event, f, turn)
	return err
}

// routePause is how long an event waits for the table to say who has it, before it is looked again.
const routePause = 20 * time.Millisecond

// route queues an event for its owner, this server too.
func (l *sendQueues) route(ctx context.Context, it item) error {
	if err := l.put(ctx, it); err != ingest.ErrElsewhere {
		return err
	}
	ctx, cancel := ingest.Patient(ctx)
	defer cancel()
	for {
		changed := l.s.changes()
		if err := l.put(ctx, it); err != ingest.ErrElsewhere {
			return err
		}
		if !lookAgain(ctx, changed) {
			l.dropped.Add(1)
			return errkind.E(errkind.Overloaded, "no server has the entity's events at the moment", ctx.Err())
		}
	}
}

// lookAgain waits until the table may have changed, routePause at most; false says that ctx is over.
func lookAgain(ctx context.Context, changed <-chan struct{}) bool {
	t := time.NewTimer(routePause)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// name returns what the receiver knows the queues to a server by: who sends, and whom they are for. A server that
// comes back as another one has the address of the one that it was, so the queues of both lead to it for a moment, and
// each has numbers of its own.
func (l *sendQueues) name(server string) string { return l.self + server }

// queueOf returns the queue of a shard. Servers that are dealt together get shards in turns, so a queue by the shard's
// remainder would leave queues of an even number of servers without work: the number is mixed first.
func queueOf(shard uint16) int { return int((uint32(shard) * shardMix) >> 16 % queueCount) }

// shardMix spreads numbers that follow each other, and every step of them, over the upper half: 2^32 by the golden
// ratio.
const shardMix = 0x9E3779B1

func (l *sendQueues) queue(server string, shard uint16) *sendQueue {
	key := queueKey{server, queueOf(shard)}
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.all[key]
	if one == nil {
		one = &sendQueue{key: key, name: l.name(server), token: make(chan struct{}, 1)}
		l.all[key] = one
		l.spawn <- one // room for more servers than were ever alive together; run takes them at once
	}
	return one
}

// parked is the server of queues whose events wait for a shard that takes nothing, or that no server has.
const parked = ""

// put queues an event for its owner, behind others of its shard; ErrElsewhere says that no server has the shard.
// Where much waits already it returns when the event leaves the queue, so that what waits is bounded by QueueBytes and
// one event for each who brings them.
func (l *sendQueues) put(ctx context.Context, it item) error {
	left, err := l.enqueue(it)
	if left == nil {
		return err
	}
	ctx, cancel := ingest.Patient(ctx)
	defer cancel()
	select {
	case <-left:
	case <-ctx.Done(): // it stays on its way, and is dropped and counted when its own time is over
	}
	return nil
}

func (l *sendQueues) enqueue(it item) (left chan struct{}, err error) {
	h := &l.pending[it.shard]
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.queue
	if h.n == 0 {
		switch owner := l.s.owner(it.shard); owner {
		case "":
			return nil, ingest.ErrElsewhere
		case l.s.cfg.Self:
			n = l.queue(parked, it.shard)
		default:
			n = l.queue(owner, it.shard)
		}
	}
	n.mu.Lock()
	if n.bytes >= l.s.cfg.QueueBytes {
		left = make(chan struct{})
		it.left = left
	}
	n.items = append(n.items, it)
	n.bytes += it.size()
	n.mu.Unlock()
	if h.queue, h.n = n, h.n+1; h.n == 1 {
		l.s.cfg.Ingest.Queue(it.shard, true)
	}
	l.waiting.Add(int64(it.size()))
	n.notify()
	return left, nil
}

// done takes an event off the books.
func (l *sendQueues) done(it *item) {
	l.waiting.Add(-int64(it.size()))
	putPiece(it.memory)
	it.event, it.brief, it.memory = nil, nil, nil
	h := &l.pending[it.shard]
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n--; h.n == 0 {
		h.queue = nil
		l.s.cfg.Ingest.Queue(it.shard, false)
	}
}

func (n *sendQueue) notify() {
	select {
	case n.token <- struct{}{}:
	default:
	}
}

// take takes what goes with one call.
func (n *sendQueue) take(k *known) (list []item) {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for size := 0; count < len(n.items) && size < sendBytes; count++ {
		it := &n.items[count]
		if it.whole = !k.has(it.rest); it.whole {
			size += len(it.event)
		} else {
			size += len(it.brief)
		}
		n.bytes -= it.size()
		it.release()
	}
	if count == 0 {
		return nil
	}
	list = n.items[:count:count]
	if n.items = n.items[count:]; len(n.items) == 0 {
		n.items, n.spare = n.spare, nil
	}
	return list
}

// give gives back the memory of a list from which everything is gone.
func (n *sendQueue) give(list []item) {
	clear(list)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spare = list[:0]
}

// more reports whether more waits than one call carries.
func (n *sendQueue) more() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bytes > sendBytes
}

// wake has all queues look again at whom their events belong to.
func (l *sendQueues) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.all {
		n.notify()
	}
}

func (l *sendQueues) run(ctx context.Context) error {
	var senders sync.WaitGroup
	defer senders.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-l.spawn:
			senders.Go(func() { n.send(ctx, l) })
		}
	}
}

// send is the sender of a queue.
func (n *sendQueue) send(ctx context.Context, l *sendQueues) {
	for number := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-n.token:
		}
		for ctx.Err() == nil {
			began, pause := time.Now(), sendPace
			list := n.take(&l.known)
			number++
			if len(list) == 0 {
				break
			}
			settled := n.key.server == parked && l.sort(ctx, n, list) ||
				n.key.server != parked && l.deliver(ctx, n, number, list)
			n.give(list)
			if !settled {
				began, pause = time.Now(), routePause
			} else if n.more() {
				continue
			}
			t := time.NewTimer(pause - time.Since(began))
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
		}
	}
}

// deliver brings events to a queue's server, again and again until it answers or has one of them no more. What it
// refuses, and what is another's, is sorted anew; it reports whether anything was settled.
func (l *sendQueues) deliver(ctx context.Context, n *sendQueue, number uint64, list []item) bool {
	to, now := n.key.server, l.s.cfg.Now()
	req := pack.Uint(pack.Uint(pack.String(n.req[:0], n.name), uint64(n.key.number)), number)
	for i := range list {
		it := &list[i]
		if !l.stays(it, to, now) {
			return l.sort(ctx, n, list)
		}
		req = pack.String(pack.Uint(req, uint64(it.shard)), it.namespace)
		if it.whole {
			req = pack.Bytes(pack.Bool(req, false), it.event)
		} else {
			req = pack.Bytes(pack.Bool(req, true), it.brief)
		}
	}
	if n.req = req; cap(req) > reqKept && len(req) < cap(req)/4 {
		n.req = nil // of a storm that is over
	}
	pause := backoff.Backoff{Min: 10 * time.Millisecond, Max: 250 * time.Millisecond}
	for ctx.Err() == nil {
		changed := l.s.changes()
		refused, err := l.call(ctx, to, req, len(list))
		if err == nil {
			return l.answered(ctx, n, list, refused)
		}
		n.req = nil // the connection may still have it
		now := l.s.cfg.Now()
		for i := range list {
			if !l.stays(&list[i], to, now) {
				return l.sort(ctx, n, list)
			}
		}
		t := time.NewTimer(pause.Next())
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return false
}

// stays reports whether an event belongs to a server, as far as is known, and still has time.
func (l *sendQueues) stays(it *item, server string, now time.Time) bool {
	return l.s.owner(it.shard) == server && now.Before(it.until)
}

// answered ends a call.
func (l *sendQueues) answered(ctx context.Context, n *sendQueue, list []item, refused map[int]answer) bool {
	var back []item
	wanted, told := false, l.s.cfg.Forwarded == nil
	for i := range list {
		it := &list[i]
		switch refused[i] {
		case taken:
			if it.whole {
				l.known.add(it.rest)
			} else {
				l.brief.Add(1)
			}
			l.forwarded.Add(1)
			if !told { // the first is the oldest
				told = true
				l.s.cfg.Forwarded(l.s.cfg.Now().Sub(it.until.Add(-itemTime)))
			}
			l.done(it)
			continue
		case wantsWhole:
			wanted = true
			l.known.drop(it.rest)
		}
		back = append(back, *it)
	}
	sorted := len(back) > 0 && l.sort(ctx, n, back)
	return sorted || wanted || len(back) < len(list)
}

// sort finds the way of events that a queue's sender holds, in their order: they end, are taken here, move to another
// queue with all that waits of their shard, or go back to the front of the queue. Those that nobody takes now move to
// the queue of the parked. It reports whether any left the queue.
func (l *sendQueues) sort(ctx context.Context, n *sendQueue, list []item) (left bool) {
	var stay []item
	staying := map[uint16]bool{}
	for len(list) > 0 {
		it := list[0]
		owner := l.s.owner(it.shard)
		switch {
		case !l.s.cfg.Now().Before(it.until):
			l.dropped.Add(1)
			l.done(&it)
		case staying[it.shard] || owner == n.key.server:
			stay, staying[it.shard] = append(stay, it), true
			list = list[1:]
			continue
		case owner == l.s.cfg.Self && l.here(ctx, it):
			l.done(&it)
		case owner == "" || owner == l.s.cfg.Self:
			if n.key.server == parked {
				stay, staying[it.shard] = append(stay, it), true
				list = list[1:]
				continue
			}
			list = l.move(n, l.queue(parked, it.shard), it.shard, list)
			left = true
			continue
		default:
			list = l.move(n, l.queue(owner, it.shard), it.shard, list)
			left = true
			continue
		}
		left = true
		list = list[1:]
	}
	if len(stay) > 0 {
		n.mu.Lock()
		n.items = append(stay, n.items...)
		for _, it := range stay {
			n.bytes += it.size()
		}
		n.mu.Unlock()
	}
	return left
}

// here takes an event whose shard is this server's by now; false says that it does not take it yet.
func (l *sendQueues) here(ctx context.Context, it item) bool {
	err := l.take(ctx, &it, true)
	if err == ingest.ErrElsewhere || errkind.Is(err, errkind.Overloaded) || errkind.Is(err, errkind.Unavailable) {
		return false
	}
	if err != nil {
		l.s.cfg.Log.Warn("an event is dropped", "error", err)
	}
	return true
}

// move moves all events of a shard from a queue, and from the list that its sender holds, to another queue; it returns
// the rest of the list. They were admitted before, so they wait for no room.
func (l *sendQueues) move(from, to *sendQueue, shard uint16, list []item) (rest []item) {
	h := &l.pending[shard]
	h.mu.Lock()
	defer h.mu.Unlock()
	var moved []item
	pick := func(of []item) (others []item) {
		for _, it := range of {
			if it.shard == shard {
				moved = append(moved, it)
			} else {
				others = append(others, it)
			}
		}
		return others
	}
	rest = pick(list)
	held := len(moved)
	from.mu.Lock()
	from.items = pick(from.items)
	for i := range moved[held:] {
		it := &moved[held+i]
		from.bytes -= it.size()
		it.release()
	}
	from.mu.Unlock()
	to.mu.Lock()
	to.items = append(to.items, moved...)
	for _, it := range moved {
		to.bytes += it.size()
	}
	to.mu.Unlock()
	h.queue = to
	to.notify()
	return rest
}

func (l *sendQueues) call(ctx context.Context, server string, req []byte, n int) (refused map[int]answer, err error) {
	m, err := l.s.member(server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	reply, err := l.s.cfg.Call(ctx, m.Addr, methodEvents, req)
	if err != nil {
		return nil, err
	}
	for r := pack.Read(reply); r.More(); {
		v := r.Uint()
		i, a := v>>1, notHere
		if v&1 != 0 {
			a = wantsWhole
		}
		if i < uint64(n) {
			if refused == nil {
				refused = map[int]answer{}
			}
			refused[int(i)] = a
		}
	}
	return refused, nil
}

// answer is what became of one event of a call. Those that are not taken are named in the reply: twice its number,
// and one more for wantsWhole.
type answer uint8

const (
	taken answer = iota
	notHere
	wantsWhole
)
