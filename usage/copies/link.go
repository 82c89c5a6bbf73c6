package copies

import (
	"context"
	"errors"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// link is what an owner has to a host with copies. It is over with the first failure; another one begins anew.
type link struct {
	h       *Host
	to      string
	session uint64
	wakes   chan struct{}

	mu sync.Mutex // guards what follows
	extent
	outbox
	forsaken bool
	firm     bool // the catalog names it
	over     bool
	err      error         // of answers that wait when it is over
	moved    chan struct{} // closed when acked or over changes
}

// extent is the blocks of a link.
type extent struct {
	wanted, attached blockSet
	ever             blockSet // those that were attached once
}

// outbox is what a link has to send.
type outbox struct {
	buf   []byte // changes that were not sent
	count uint64 // of them
	next  uint64 // number of the change that comes next
	acked uint64 // so many changes are there
}

func newLink(h *Host, to string, blocks *blockSet) *link {
	return &link{h: h, to: to, session: newSession(), wakes: make(chan struct{}, 1),
		extent: extent{wanted: *blocks}, moved: make(chan struct{})}
}

// The states of a link, as operators see them.
const (
	stateFilling = "is filled"
	stateWhole   = "misses nothing"
	stateOver    = "was given up"
)

func (l *link) state() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over:
		return stateOver
	case l.firm && l.attached == l.wanted:
		return stateWhole
	}
	return stateFilling
}

func (l *link) wake() {
	select {
	case l.wakes <- struct{}{}:
	default:
	}
}

func (l *link) want(blocks *blockSet) {
	l.mu.Lock()
	changed := l.wanted != *blocks
	l.wanted = *blocks
	l.mu.Unlock()
	if changed {
		l.wake()
	}
}

// enqueue adds a change. Answers wait for it, so what waits to be sent is bounded by what clients may have under way.
func (l *link) enqueue(change []byte) {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return
	}
	l.buf = pack.Bytes(l.buf, change)
	l.count++
	l.next++
	l.mu.Unlock()
	l.wake()
}

// await waits until what was enqueued is there, or the host is given up.
func (l *link) await(end time.Time) error {
	l.mu.Lock()
	target := l.next
	for {
		if l.over {
			defer l.mu.Unlock()
			return l.err
		}
		if l.acked >= target {
			l.mu.Unlock()
			return nil
		}
		moved := l.moved
		l.mu.Unlock()
		rest := end.Sub(l.h.cfg.Clock.Now())
		if rest <= 0 {
			return errSlow
		}
		timer := l.h.cfg.Clock.NewTimer(rest)
		select {
		case <-moved:
		case <-timer.C:
		}
		timer.Stop()
		l.mu.Lock()
	}
}

// run feeds the host until ctx ends or something fails.
func (l *link) run(ctx context.Context) {
	var err error
	idle := 0 // rounds with nothing to have copies of
	for err == nil && ctx.Err() == nil {
		l.mu.Lock()
		var add, drop blockSet
		more, less, empty := false, false, l.wanted == blockSet{}
		for b := range l.wanted {
			add[b], drop[b] = l.wanted[b] && !l.attached[b], l.attached[b] && !l.wanted[b]
			more, less = more || add[b], less || drop[b]
		}
		waits, forsaken := l.count > 0, l.forsaken
		l.mu.Unlock()
		switch {
		case forsaken:
			err = errForsaken
		case waits:
			err = l.send(ctx)
		case less:
			err = l.forget(ctx, &drop)
		case more:
			err = l.begin(ctx, &add)
		case idle > idleBeats:
			err = errIdle
		default:
			if idle++; !empty {
				idle = 0
			}
			err = l.rest(ctx)
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	l.end(ctx, err)
}

var (
	errIdle     = errors.New("it is to have no copies any more")
	errForsaken = errors.New("this host lost its keys meanwhile, and has them again")
)

// A link that has nothing to say asks each beat whether its session is known still. It stays idleBeats without anything
// to have copies of: whoever takes over what this host owned has seen by then that the catalog named it.
const (
	beat      = time.Second
	idleBeats = 5
)

// rest waits until there is something to do.
func (l *link) rest(ctx context.Context) error {
	timer := l.h.cfg.Clock.NewTimer(beat)
	defer timer.Stop()
	select {
	case <-l.wakes:
		return nil
	case <-ctx.Done():
		return nil
	case <-timer.C:
	}
	l.mu.Lock()
	next := l.next - l.count
	l.mu.Unlock()
	return l.call(ctx, MethodCopy, pack.Uint(pack.Uint(l.head(), next), 0))
}

// quit has the link end.
func (l *link) quit() {
	l.mu.Lock()
	l.forsaken = true
	l.mu.Unlock()
	l.wake()
}

func (l *link) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// hadAny says whether the host may have copies of any of these blocks, although it is told nothing of them.
func (l *link) hadAny(blocks []int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range blocks {
		if l.ever[b] {
			return true
		}
	}
	return false
}

// head begins a request about the copies of this session.
func (l *link) head() []byte { return pack.Uint(pack.String(nil, l.h.cfg.Self), l.session) }

// call asks the host, again where it does not answer, until patience ends.
func (l *link) call(ctx context.Context, method string, req []byte) error {
	began := l.h.cfg.Clock.Now()
	for {
		one, cancel := context.WithTimeout(ctx, max(l.h.cfg.Patience, 100*time.Millisecond))
		_, err := l.h.cfg.Call(one, l.to, method, req)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, !errkind.Is(err, errkind.Unavailable) && !errkind.Is(err, errkind.Unknown),
			l.h.cfg.Clock.Since(began) >= l.h.cfg.Patience:
			return err
		}
		pause(ctx, l.h.cfg.Clock, 10*time.Millisecond)
	}
}

// send sends what waits.
func (l *link) send(ctx context.Context) error {
	l.mu.Lock()
	data, count := l.buf, l.count
	from := l.next - count
	l.buf, l.count = nil, 0
	l.mu.Unlock()
	if count == 0 {
		return nil
	}
	req := pack.Uint(pack.Uint(l.head(), from), count)
	if err := l.call(ctx, MethodCopy, append(req, data...)); err != nil {
		if errkind.Is(err, errkind.Conflict) {
			l.overtaken()
		}
		return err
	}
	l.h.meters.copied.Add(count)
	l.mu.Lock()
	l.acked = from + count
	close(l.moved)
	l.moved = make(chan struct{})
	if l.buf == nil && cap(data) <= 1<<20 {
		l.buf = data[:0]
	}
	l.mu.Unlock()
	return nil
}

// overtaken notes that the host owns by now what it had copies of: the catalog told it so first.
func (l *link) overtaken() {
	l.mu.Lock()
	attached := l.attached
	l.mu.Unlock()
	v := l.h.cfg.View()
	l.h.change(func(t *table) {
		for b, is := range attached {
			if is && t.own[b] == mine {
				t.own[b], t.givenTo[b], t.asOf[b], t.imports[b] = given, l.to, v.Index, nil
			}
		}
	})
	l.finish(ErrMoved)
	l.h.wake()
}

// fillBytes is about how much a new copy is filled with at once.
const fillBytes = 256 << 10

// begin makes the host's copies of some blocks: it empties them, hears all changes from then on, and then all values.
func (l *link) begin(ctx context.Context, add *blockSet) error {
	list := add.list()
	if err := l.call(ctx, MethodReset, appendBlocks(l.head(), list)); err != nil {
		l.mu.Lock()
		firm := l.firm
		l.mu.Unlock()
		if firm && errkind.Is(err, errkind.Conflict) { // it knows less of the catalog yet
			pause(ctx, l.h.cfg.Clock, look)
			return nil
		}
		return err
	}
	l.attach(add)
	sent, began := 0, l.h.cfg.Clock.Now()
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		cursor = l.h.cache.Replay(cursor, fillBytes, func(key string) bool { return add.has(key) })
		l.mu.Lock()
		sent += len(l.buf)
		l.mu.Unlock()
		if err := l.send(ctx); err != nil {
			return err
		}
		due := time.Duration(float64(sent) / float64(l.h.cfg.Rate) * float64(time.Second))
		for rest := due - l.h.cfg.Clock.Since(began); rest > 0 && ctx.Err() == nil; {
			pause(ctx, l.h.cfg.Clock, min(rest, 5*time.Millisecond))
			if err := l.send(ctx); err != nil { // answers wait for what comes meanwhile
				return err
			}
			rest = due - l.h.cfg.Clock.Since(began)
		}
	}
	if err := l.call(ctx, MethodWhole, appendBlocks(l.head(), list)); err != nil {
		return err
	}
	l.mu.Lock()
	firm := l.firm
	l.firm = true // before the catalog says so: who may be named is given up by the catalog alone
	l.mu.Unlock()
	if firm {
		return nil
	}
	named := make(chan error, 1)
	l.h.group.Go(func() {
		named <- l.h.name(ctx, func(named map[string]uint64) { named[l.to] = l.session })
	})
	for {
		select {
		case err := <-named:
			if err == nil {
				l.h.cfg.Log.Info("a host has copies of this cache's keys", "host", l.to, "blocks", len(list))
			}
			return err
		case <-l.wakes:
			if err := l.send(ctx); err != nil {
				<-named
				return err
			}
		}
	}
}

// attach has the host hear the changes of some blocks.
func (l *link) attach(add *blockSet) {
	l.h.change(func(t *table) {
		for b, is := range add {
			if is && t.own[b] == mine {
				t.feeds[b] = append(t.feeds[b][:len(t.feeds[b]):len(t.feeds[b])], l)
			}
		}
	})
	l.mu.Lock()
	for b, is := range add {
		l.attached[b], l.ever[b] = l.attached[b] || is, l.ever[b] || is
	}
	l.mu.Unlock()
}

func (l *link) detach(drop *blockSet) {
	l.h.change(func(t *table) {
		for b, is := range drop {
			if !is {
				continue
			}
			var rest []*link
			for _, other := range t.feeds[b] {
				if other != l {
					rest = append(rest, other)
				}
			}
			t.feeds[b] = rest
		}
	})
	l.mu.Lock()
	for b, is := range drop {
		l.attached[b] = l.attached[b] && !is
	}
	l.mu.Unlock()
}

// forget ends the host's copies of some blocks of which others have copies now. What another host owns now stays: the
// copy may be what that goes on with.
func (l *link) forget(ctx context.Context, drop *blockSet) error {
	t, kept := l.h.table.Load(), *drop
	for b := range kept {
		kept[b] = drop[b] && t.own[b] == mine
	}
	if kept != (blockSet{}) {
		if err := l.call(ctx, MethodForget, appendBlocks(l.head(), kept.list())); err != nil {
			return err
		}
	}
	l.detach(drop)
	l.mu.Lock()
	for b, is := range kept {
		l.ever[b] = l.ever[b] && !is
	}
	l.mu.Unlock()
	return nil
}

// end gives the host up: answers go on without it once the catalog does not name it any more, and only where this host
// owns its keys still then.
func (l *link) end(ctx context.Context, cause error) {
	h := l.h
	l.mu.Lock()
	firm, over := l.firm, l.over
	l.mu.Unlock()
	switch quiet := errors.Is(cause, errIdle) || errors.Is(cause, errForsaken) || ctx.Err() != nil; {
	case quiet:
	case firm:
		h.meters.dropped.Add(1)
		h.cfg.Log.Warn("a host is given up as the copy of this cache's keys", "host", l.to, "error", cause)
	default:
		h.cfg.Log.Info("a host has no copy of this cache's keys", "host", l.to, "error", cause)
	}
	if over { // it owns the keys: it goes on with its copy, which the catalog names
		pause(ctx, h.cfg.Clock, idleBeats*beat)
	}
	for firm && ctx.Err() == nil {
		err := h.name(ctx, func(named map[string]uint64) {
			if named[l.to] == l.session {
				delete(named, l.to)
			}
		})
		if err == nil {
			break
		}
		pause(ctx, h.cfg.Clock, look)
	}
	h.mu.Lock()
	f := h.fails[l.to]
	if firm {
		f = failure{}
	}
	h.fails[l.to] = failure{at: h.cfg.Clock.Now(), times: f.times + 1}
	h.mu.Unlock()
	v, t := h.cfg.View(), h.table.Load()
	l.mu.Lock()
	attached := l.attached
	l.mu.Unlock()
	result := error(nil)
	for b, is := range attached {
		if is && (v.owner(b) != h.cfg.Self || t.own[b] != mine || t.view != v && v.Since > t.view.Index) {
			result = ErrMoved
		}
	}
	if ctx.Err() != nil {
		result = ErrDown
	}
	h.change(func(t *table) {
		if t.links[l.to] == l {
			delete(t.links, l.to)
		}
	})
	l.detach(&attached)
	l.finish(result)
}

// finish has all that wait go on, or fail.
func (l *link) finish(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.over, l.err, l.buf = true, err, nil
	close(l.moved)
	l.moved = make(chan struct{})
}
