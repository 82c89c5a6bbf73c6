package spread

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/ingest"
)

// The way of events to their owners. Shards are dealt over a few lanes for each server; a lane has one call under way at a time. While an event of
// a shard waits on a lane, all later ones of that shard go behind it, whoever owns the shard by then; together they move to the lane of
// another owner, or are taken here. So events of an entity that came to one server keep their order. A call whose outcome is unknown is made
// again under its number, and is taken once; only when its owner died meanwhile may another one take what that one took.

const (
	laneCount = 4
	laneBytes = 512 << 10        // about how much one call carries
	laneTime  = 15 * time.Second // for one call
	itemTime  = 30 * time.Second // for an event to find its owner; agents wait as long for their own server
)

// item is an event on its way.
type item struct {
	shard     uint16
	namespace string
	event     []byte
	until     time.Time
}

// hold is what waits of one shard: n events, all on one lane, or under way from there.
type hold struct {
	mu   sync.Mutex // taken before a lane's
	lane *lane
	n    int
}

type laneKey struct {
	server string
	lane   int
}

// lane is what waits for one server on one lane.
type lane struct {
	key   laneKey
	token chan struct{}
	mu    sync.Mutex
	queue []item
	bytes int
	room  chan struct{} // closed when something was taken
}

type lanes struct {
	s     *Spread
	self  string // of this process: numbers begin anew with it
	mu    sync.Mutex
	all   map[laneKey]*lane
	spawn chan *lane
	holds [ingest.Shards]hold

	waiting            atomic.Int64
	forwarded, dropped atomic.Uint64
}

func newLanes(s *Spread) *lanes {
	return &lanes{s: s, self: uuid.NewString(), all: map[laneKey]*lane{}, spawn: make(chan *lane, 256)}
}

// Frame takes an event as an agent sent it, here or at its owner. It returns once the event is taken, or is on its way. ctx bounds the
// wait. Errors are those of ingest.Ingest.Frame; Overloaded, no owner took it in time.
func (s *Spread) Frame(ctx context.Context, namespace string, b []byte) error {
	shard, err := s.cfg.Ingest.Take(ctx, namespace, b, false)
	if err != ingest.ErrElsewhere {
		return err
	}
	return s.lanes.route(ctx, item{shard, namespace, append([]byte(nil), b...), s.cfg.Now().Add(itemTime)})
}

// routePause is how long an event waits for the table to say who has it, before it is looked again.
const routePause = 20 * time.Millisecond

// route takes an event here, or queues it for its owner.
func (l *lanes) route(ctx context.Context, it item) error {
	for {
		changed := l.s.changes()
		room, err := l.put(it)
		if err != ingest.ErrElsewhere {
			return err
		}
		if l.s.owner(it.shard) == l.s.cfg.Self {
			if _, err := l.s.cfg.Ingest.Take(ctx, it.namespace, it.event, false); err != ingest.ErrElsewhere {
				return err
			}
		}
		t := time.NewTimer(routePause)
		select {
		case <-changed:
		case <-room:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			l.dropped.Add(1)
			return errkind.E(errkind.Overloaded, "no server has the entity's events at the moment", ctx.Err())
		}
		t.Stop()
	}
}

func (l *lanes) lane(server string, shard uint16) *lane {
	key := laneKey{server, int(shard % laneCount)}
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.all[key]
	if one == nil {
		one = &lane{key: key, token: make(chan struct{}, 1), room: make(chan struct{})}
		l.all[key] = one
		l.spawn <- one // room for more servers than were ever alive together; run takes them at once
	}
	return one
}

// put queues an event for its owner, behind others of its shard. ErrElsewhere says that there is no such lane, or no room, and room is
// closed when that may be otherwise.
func (l *lanes) put(it item) (room <-chan struct{}, err error) {
	h := &l.holds[it.shard]
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.lane
	if h.n == 0 {
		owner := l.s.owner(it.shard)
		if owner == "" || owner == l.s.cfg.Self {
			return nil, ingest.ErrElsewhere
		}
		n = l.lane(owner, it.shard)
	}
	n.mu.Lock()
	if n.bytes >= l.s.cfg.LaneBytes {
		defer n.mu.Unlock()
		return n.room, ingest.ErrElsewhere
	}
	n.queue = append(n.queue, it)
	n.bytes += len(it.event)
	n.mu.Unlock()
	if h.lane, h.n = n, h.n+1; h.n == 1 {
		l.s.cfg.Ingest.Queue(it.shard, true)
	}
	l.waiting.Add(int64(len(it.event)))
	n.poke()
	return nil, nil
}

// done takes an event off the books.
func (l *lanes) done(it item) {
	l.waiting.Add(-int64(len(it.event)))
	h := &l.holds[it.shard]
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n--; h.n == 0 {
		h.lane = nil
		l.s.cfg.Ingest.Queue(it.shard, false)
	}
}

func (n *lane) poke() {
	select {
	case n.token <- struct{}{}:
	default:
	}
}

// take takes what goes with one call.
func (n *lane) take() (list []item) {
	n.mu.Lock()
	defer n.mu.Unlock()
	size := 0
	for len(n.queue) > len(list) && size < laneBytes {
		size += len(n.queue[len(list)].event)
		list = append(list, n.queue[len(list)])
	}
	n.queue = append(n.queue[:0:0], n.queue[len(list):]...)
	n.bytes -= size
	if len(list) > 0 {
		close(n.room)
		n.room = make(chan struct{})
	}
	return list
}

// wake has all lanes look again at whom their events belong to.
func (l *lanes) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.all {
		n.poke()
	}
}

func (l *lanes) run(ctx context.Context) error {
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

// send is the sender of a lane.
func (n *lane) send(ctx context.Context, l *lanes) {
	for number := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-n.token:
		}
		for ctx.Err() == nil {
			list := n.take()
			number++
			if len(list) == 0 {
				break
			}
			if l.deliver(ctx, n, number, list) {
				continue
			}
			t := time.NewTimer(routePause)
			select {
			case <-n.token:
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
		}
	}
}

// deliver brings events to a lane's server, again and again until it answers or has one of them no more. What it refuses, and what is another's,
// is sorted anew; it reports whether anything was settled.
func (l *lanes) deliver(ctx context.Context, n *lane, number uint64, list []item) bool {
	to := n.key.server
	req := pack.Uint(pack.Uint(pack.String(nil, l.self), uint64(n.key.lane)), number)
	for _, it := range list {
		if !l.stays(it, to) {
			return l.sort(ctx, n, list)
		}
		req = pack.Bytes(pack.String(pack.Uint(req, uint64(it.shard)), it.namespace), it.event)
	}
	pause := backoff.Backoff{Min: 10 * time.Millisecond, Max: 250 * time.Millisecond}
	for ctx.Err() == nil {
		changed := l.s.changes()
		refused, err := l.call(ctx, to, req, len(list))
		if err == nil {
			return l.answered(ctx, n, list, refused)
		}
		for _, it := range list {
			if !l.stays(it, to) {
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
func (l *lanes) stays(it item, server string) bool {
	return l.s.owner(it.shard) == server && l.s.cfg.Now().Before(it.until)
}

// answered ends a call.
func (l *lanes) answered(ctx context.Context, n *lane, list []item, refused map[int]bool) bool {
	var back []item
	for i, it := range list {
		if refused[i] {
			back = append(back, it)
			continue
		}
		l.done(it)
		l.forwarded.Add(1)
	}
	sorted := len(back) > 0 && l.sort(ctx, n, back)
	return sorted || len(back) < len(list)
}

// sort finds the way of events that a lane's sender holds, in their order: they end, are taken here, move to another lane with all that
// waits of their shard, or go back to the front of the lane. It reports whether any left the lane.
func (l *lanes) sort(ctx context.Context, n *lane, list []item) (left bool) {
	var stay []item
	staying := map[uint16]bool{}
	for len(list) > 0 {
		it := list[0]
		owner := l.s.owner(it.shard)
		switch {
		case !l.s.cfg.Now().Before(it.until):
			l.dropped.Add(1)
			l.done(it)
		case staying[it.shard] || owner == "" || owner == n.key.server || owner == l.s.cfg.Self && !l.here(ctx, it):
			stay, staying[it.shard] = append(stay, it), true
			list = list[1:]
			continue
		case owner == l.s.cfg.Self:
			l.done(it)
		default:
			list = l.move(n, l.lane(owner, it.shard), it.shard, list)
			left = true
			continue
		}
		left = true
		list = list[1:]
	}
	if len(stay) > 0 {
		n.mu.Lock()
		n.queue = append(stay, n.queue...)
		for _, it := range stay {
			n.bytes += len(it.event)
		}
		n.mu.Unlock()
	}
	return left
}

// here takes an event whose shard is this server's by now; false says that it does not take it yet.
func (l *lanes) here(ctx context.Context, it item) bool {
	_, err := l.s.cfg.Ingest.Take(ctx, it.namespace, it.event, true)
	if err == ingest.ErrElsewhere || errkind.Is(err, errkind.Overloaded) || errkind.Is(err, errkind.Unavailable) {
		return false
	}
	if err != nil {
		l.s.cfg.Log.Warn("an event is dropped", "error", err)
	}
	return true
}

// move moves all events of a shard from a lane, and from the list that its sender holds, to another lane; it returns the rest of the list.
// They were admitted before, so they wait for no room.
func (l *lanes) move(from, to *lane, shard uint16, list []item) (rest []item) {
	h := &l.holds[shard]
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
	from.queue = pick(from.queue)
	for _, it := range moved[held:] {
		from.bytes -= len(it.event)
	}
	from.mu.Unlock()
	to.mu.Lock()
	to.queue = append(to.queue, moved...)
	for _, it := range moved {
		to.bytes += len(it.event)
	}
	to.mu.Unlock()
	h.lane = to
	to.poke()
	return rest
}

func (l *lanes) call(ctx context.Context, server string, req []byte, n int) (refused map[int]bool, err error) {
	m, err := l.s.member(server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, laneTime)
	defer cancel()
	reply, err := l.s.cfg.Call(ctx, m.Addr, methodEvents, req)
	if err != nil {
		return nil, err
	}
	refused = map[int]bool{}
	for r := pack.Read(reply); r.More(); {
		if i := r.Uint(); i < uint64(n) {
			refused[int(i)] = true
		}
	}
	return refused, nil
}
