package spread

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/ingest"
)

// The way of events to their owners. Shards are dealt over a few lanes for each server; a lane has one call under way at a time, so events
// of an entity keep their order, but for the moment in which their shard moves. A call whose outcome is unknown is made again under its number, and is taken once.

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

	waiting            atomic.Int64
	forwarded, dropped atomic.Uint64
}

func newLanes(s *Spread) *lanes {
	return &lanes{s: s, self: uuid.NewString(), all: map[laneKey]*lane{}, spawn: make(chan *lane, 256)}
}

// Frame takes an event as an agent sent it, here or at its owner. It returns once the event is taken, or is on its way. ctx bounds the
// wait. Errors are those of ingest.Ingest.Frame; Overloaded, no owner took it in time.
func (s *Spread) Frame(ctx context.Context, namespace string, b []byte) error {
	shard, err := s.cfg.Ingest.Take(ctx, namespace, b)
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
		owner := l.s.owner(it.shard)
		switch owner {
		case "":
		case l.s.cfg.Self:
			if _, err := l.s.cfg.Ingest.Take(ctx, it.namespace, it.event); err != ingest.ErrElsewhere {
				return err
			}
		default:
			return l.lane(owner, it.shard).put(ctx, l, it)
		}
		t := time.NewTimer(routePause)
		select {
		case <-changed:
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

func (n *lane) put(ctx context.Context, l *lanes, it item) error {
	for {
		n.mu.Lock()
		if n.bytes < l.s.cfg.LaneBytes {
			n.queue = append(n.queue, it)
			n.bytes += len(it.event)
			n.mu.Unlock()
			l.waiting.Add(int64(len(it.event)))
			n.poke()
			return nil
		}
		room := n.room
		n.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			l.dropped.Add(1)
			return errkind.E(errkind.Overloaded, "the server that has the entity's events does not keep up", ctx.Err())
		}
	}
}

func (n *lane) poke() {
	select {
	case n.token <- struct{}{}:
	default:
	}
}

// take takes what goes with one call.
func (n *lane) take(l *lanes) (list []item) {
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
	for number := uint64(1); ; {
		select {
		case <-ctx.Done():
			return
		case <-n.token:
		}
		for {
			list := n.take(l)
			if len(list) == 0 {
				break
			}
			l.deliver(ctx, n.key, number, list)
			number++
			for _, it := range list {
				l.waiting.Add(-int64(len(it.event)))
			}
		}
	}
}

// deliver brings events to a server, again and again until it answers or is not their owner any more; what it refuses, and what became another's,
// is routed anew.
func (l *lanes) deliver(ctx context.Context, to laneKey, number uint64, list []item) {
	req := pack.Uint(pack.Uint(pack.String(nil, l.self), uint64(to.lane)), number)
	for _, it := range list {
		req = pack.Bytes(pack.String(req, it.namespace), it.event)
	}
	pause := backoff.Backoff{Min: 10 * time.Millisecond, Max: 250 * time.Millisecond}
	for ctx.Err() == nil {
		changed := l.s.changes()
		refused, err := l.call(ctx, to.server, req, len(list))
		if err == nil {
			l.forwarded.Add(uint64(len(list) - len(refused)))
			for _, i := range refused {
				l.anew(ctx, list[i])
			}
			return
		}
		var still []item
		for _, it := range list {
			if l.s.owner(it.shard) == to.server && l.s.cfg.Now().Before(it.until) {
				still = append(still, it)
			}
		}
		if len(still) < len(list) { // one has gone, or waited too long: those that stay go under another number
			for _, it := range list {
				l.anew(ctx, it)
			}
			return
		}
		t := time.NewTimer(pause.Next())
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// anew routes an event again.
func (l *lanes) anew(ctx context.Context, it item) {
	left := it.until.Sub(l.s.cfg.Now())
	if left <= 0 {
		l.dropped.Add(1)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	if l.s.owner(it.shard) == l.s.cfg.Self || l.s.owner(it.shard) == "" {
		if err := l.route(ctx, it); err != nil && !errkind.Is(err, errkind.Overloaded) {
			l.s.cfg.Log.Warn("an event is dropped", "error", err)
		}
		return
	}
	n := l.lane(l.s.owner(it.shard), it.shard)
	n.mu.Lock() // it was admitted before: it does not wait for room, which only this goroutine might make
	n.queue = append(n.queue, it)
	n.bytes += len(it.event)
	n.mu.Unlock()
	l.waiting.Add(int64(len(it.event)))
	n.poke()
}

func (l *lanes) call(ctx context.Context, server string, req []byte, n int) (refused []int, err error) {
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
	for r := pack.Read(reply); r.More(); {
		if i := r.Uint(); i < uint64(n) {
			refused = append(refused, int(i))
		}
	}
	return refused, nil
}

// inbound is what keeps a call that is made again from being taken twice.
type inbound struct {
	mu   sync.Mutex
	last map[laneKey]*answered
}

// answered is the newest call of a lane.
type answered struct {
	mu     sync.Mutex
	number uint64
	reply  []byte
	at     time.Time
}

// inboundMost bounds how many lanes of other processes are remembered.
const inboundMost = 1024

func (x *inbound) of(key laneKey, now time.Time) *answered {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.last[key]
	if a == nil {
		if len(x.last) >= inboundMost {
			for k, old := range x.last {
				if now.Sub(old.at) > itemTime {
					delete(x.last, k)
				}
			}
		}
		a = &answered{}
		x.last[key] = a
	}
	a.at = now
	return a
}

// takeEvents takes events that another server brings, and answers with those that it does not take: they belong elsewhere.
func (s *Spread) takeEvents(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	key := laneKey{r.String(), int(r.Uint())}
	number := r.Uint()
	if r.Err() != nil {
		return nil, errkind.E(errkind.Invalid, methodEvents, r.Err())
	}
	a := s.inbound.of(key, s.cfg.Now())
	a.mu.Lock()
	defer a.mu.Unlock()
	if number <= a.number {
		return a.reply, nil
	}
	var refused []byte
	for i := uint64(0); r.More(); i++ {
		namespace, event := r.String(), r.Bytes()
		if r.Err() != nil {
			return nil, errkind.E(errkind.Invalid, methodEvents, r.Err())
		}
		_, err := s.cfg.Ingest.Take(ctx, namespace, event)
		switch {
		case err == nil:
		case err == ingest.ErrElsewhere, errkind.Is(err, errkind.Overloaded), errkind.Is(err, errkind.Unavailable):
			refused = pack.Uint(refused, i)
		default:
			s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "an event of an agent is dropped", slog.String("namespace", namespace), slog.Any("error", err))
		}
	}
	a.number, a.reply = number, refused
	return refused, nil
}
