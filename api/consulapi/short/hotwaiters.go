package short

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/telemetry"
)

const (
	// maxShared bounds the questions that are watched at a time, and so the goroutines
	// that watch. Past it a blocking query is declined and costs a goroutine of net/http.
	maxShared = 10_000
	// sharedLinger keeps waiters whose members were all answered: they ask again at once.
	sharedLinger = time.Second
)

// sharedWaiters are all parked calls that ask the same. One goroutine watches the subject
// for them; a change costs one wake-up, one encoding and a write for each member.
//
// No wake-up is lost: a member is added before its caller looks at the State once
// more (Hot.park), and the watcher looks at the State before it looks at the members.
// Whatever comes after the watcher's look ends its Await.
type sharedWaiters struct {
	hot   *Path
	asked question
	grant *acl.Grant // of the first member; its class, which decides what is seen, is everybody's

	mu      sync.Mutex // guards what follows; no call is answered under it
	members deadlines
	// entering counts callers who will add themselves: they may not end meanwhile.
	entering int
	// until is when the current wait ends by itself; zero while the watcher does not wait.
	until time.Time
	// interrupt ends the current wait early; interrupted tells that somebody did.
	interrupt   context.CancelFunc
	interrupted bool
}

// parked is one parked call, one of the shared waiters.
type parked struct {
	call     *hothttp.Call
	index    uint64 // what the client has seen
	deadline time.Time
	begun    time.Time
	secret   string // the token, and what it allowed when the call was parked
	grant    *acl.Grant
	place    int  // among the members; -1 when it is not, or no longer, among them
	gone     bool // the client vanished before it was added
}

// park makes the call wait with those of its question.
func (h *Path) park(c *hothttp.Call, k *ask) hothttp.Outcome {
	if r := h.round.Load(); r != nil {
		r.help()
	}
	cr := h.enter(k)
	if cr == nil {
		return hothttp.Decline
	}
	m := &parked{call: c, index: k.block.Index, begun: k.begun, secret: k.secret, grant: k.grant, place: -1,
		deadline: h.api.Clock.Now().Add(httpx.Jitter(k.block.Wait))}
	c.Park(func() { cr.leave(m) })
	cr.add(m)
	if h.api.Registry.State().ServiceIndex(k.name) > m.index && cr.take(m) {
		// It changed before the watcher could know of this member.
		generation, st := h.api.Now()
		cr.answer([]*parked{m}, generation, st)
	}
	return hothttp.Parked
}

// enter finds or begins the waiters of a question; nil when none can be had. The caller must add a member.
func (h *Path) enter(k *ask) *sharedWaiters {
	h.mu.RLock()
	cr := h.shared[k.question]
	if cr != nil && h.ctx != nil {
		cr.mu.Lock()
		cr.entering++
		cr.mu.Unlock()
		h.mu.RUnlock()
		return cr
	}
	h.mu.RUnlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		return nil
	}
	cr = h.shared[k.question]
	if cr == nil {
		if len(h.shared) >= h.SharedLimit {
			return nil
		}
		cr = &sharedWaiters{hot: h, asked: k.question, grant: k.grant}
		h.shared[k.question] = cr
		ctx := h.ctx
		h.wg.Go(func() { cr.watch(ctx) })
	}
	cr.mu.Lock()
	cr.entering++
	cr.mu.Unlock()
	return cr
}

// retire ends the waiters unless there are members or will have.
func (cr *sharedWaiters) retire() bool {
	h := cr.hot
	h.mu.Lock()
	defer h.mu.Unlock()
	cr.mu.Lock()
	defer cr.mu.Unlock()
	if len(cr.members) > 0 || cr.entering > 0 {
		return false
	}
	delete(h.shared, cr.asked)
	return true
}

func (cr *sharedWaiters) add(m *parked) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	cr.entering--
	if m.gone {
		return
	}
	cr.members.push(m)
	cr.hot.api.Parked.Add(1)
	if cr.interrupt != nil && m.deadline.Before(cr.until) {
		cr.interrupted = true
		cr.interrupt()
	}
}

// take removes m; false when somebody else took it.
func (cr *sharedWaiters) take(m *parked) bool {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	if m.place < 0 {
		return false
	}
	cr.members.remove(m)
	cr.hot.api.Parked.Add(-1)
	return true
}

// leave is told that the client of m vanished.
func (cr *sharedWaiters) leave(m *parked) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	if m.place < 0 {
		m.gone = true
		return
	}
	cr.members.remove(m)
	cr.hot.api.Parked.Add(-1)
	cr.hot.lists[cr.asked.list].Observe(cr.hot.api.Clock.Since(m.begun))
}

// watch answers members until there have been none for a while, or ctx ends.
func (cr *sharedWaiters) watch(ctx context.Context) {
	h := cr.hot
	var empty time.Time // since when there are no members
	all := false        // the wait ended for a reason that concerns everybody
	last, _ := h.api.Now()
	for {
		generation, st := h.api.Now()
		index := st.ServiceIndex(cr.asked.name)
		stop := ctx.Err() != nil
		all = all || stop || generation != last
		last = generation
		if due := cr.due(index, h.api.Clock.Now(), all); len(due) > 0 {
			cr.answer(due, generation, st)
			empty, all = time.Time{}, false
			continue // the State may have moved on while that was written
		}
		now := h.api.Clock.Now()
		wait, waiting := cr.plan(ctx, now)
		switch {
		case waiting.members:
			empty = time.Time{}
		case empty.IsZero():
			empty = now
		}
		if !waiting.members && (stop || all || now.Sub(empty) >= sharedLinger) && cr.retire() {
			waiting.end()
			return
		}
		h.api.Registry.Await(waiting.ctx, cr.asked.subject(), index, wait, func(s *statestore.State) uint64 {
			if h.api.Registry.Generation() != generation {
				return ^uint64(0) // a restore between our look and this wait
			}
			return s.ServiceIndex(cr.asked.name)
		})
		waiting.end()
		all = cr.woken(index)
	}
}

// wait is one Await of shared waiters.
type wait struct {
	ctx     context.Context
	end     context.CancelFunc
	members bool // there were some when it began
}

// plan prepares the next wait and says how long it may be.
func (cr *sharedWaiters) plan(ctx context.Context, now time.Time) (time.Duration, wait) {
	w := wait{}
	w.ctx, w.end = context.WithCancel(ctx)
	cr.mu.Lock()
	defer cr.mu.Unlock()
	cr.until, w.members = now.Add(sharedLinger), len(cr.members) > 0
	if w.members {
		cr.until = cr.members[0].deadline
	}
	cr.interrupt, cr.interrupted = w.end, false
	return max(cr.until.Sub(now), 0), w
}

// woken ends a wait. It reports whether the registry ended it for a reason of its
// own (a restore, its end), which concerns all members.
func (cr *sharedWaiters) woken(index uint64) bool {
	a := cr.hot.api
	moved := a.Registry.State().ServiceIndex(cr.asked.name) > index
	now := a.Clock.Now()
	cr.mu.Lock()
	defer cr.mu.Unlock()
	cr.interrupt = nil
	return !moved && !cr.interrupted && now.Before(cr.until)
}

// due takes the members that an answer at index concerns: whose index it passes,
// whose time is over, or all.
func (cr *sharedWaiters) due(index uint64, now time.Time, all bool) []*parked {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	var due []*parked
	for len(cr.members) > 0 && !cr.members[0].deadline.After(now) {
		due = append(due, cr.members[0])
		cr.members.remove(cr.members[0])
	}
	due = cr.members.split(due, func(m *parked) bool { return all || m.index < index })
	cr.hot.api.Parked.Add(-int64(len(due)))
	return due
}

// answer gives the same bytes to all of due. It returns when each has been handed to its socket.
func (cr *sharedWaiters) answer(due []*parked, generation uint64, st *statestore.State) {
	h := cr.hot
	woken := h.api.Clock.Now()
	contact, mode, err := h.contact(&cr.asked)
	if err != nil { // a bounded staleness is what these modes promise; the header tells
		contact = registry.Contact{LastContact: contact.LastContact}
	}
	h.count(len(due))
	if due = cr.authorize(due, generation, st, contact, mode); len(due) == 0 {
		return
	}
	head, body := h.compose(nil, &cr.asked, cr.grant, generation, st, contact, mode)
	r := &round{response: hothttp.Render(head, body), due: due, timing: h.lists[cr.asked.list], clock: h.api.Clock,
		index: st.ServiceIndex(cr.asked.name), notify: h.notify[cr.asked.list]}
	r.committed = wokenBy(r.notify, h.api, r.index, due, woken)
	r.chunks.Add((len(due) + soloReplies - 1) / soloReplies)
	if workers := runtime.GOMAXPROCS(0); len(due) > soloReplies && workers > 1 {
		h.round.CompareAndSwap(nil, r)
		defer h.round.CompareAndSwap(r, nil)
		for range min(workers, len(due)/soloReplies) - 1 {
			h.wg.Go(r.help)
		}
	}
	r.help()
	r.chunks.Wait()
}

// authorize answers the members whose rights are no longer those that they were parked with,
// each for itself, and returns the others.
func (cr *sharedWaiters) authorize(due []*parked, generation uint64, st *statestore.State, contact registry.Contact,
	mode registry.Mode) []*parked {
	h := cr.hot
	if h.api.Open {
		return due
	}
	kept := due[:0]
	for _, m := range due {
		g, err := h.grant(m.secret)
		if err == nil && rightsClass(g) == cr.asked.class {
			kept = append(kept, m)
			continue
		}
		var head, body []byte
		if err != nil {
			head, body = h.failure(err, rows.ClassRead)
		} else {
			head, body = h.compose(nil, &cr.asked, g, generation, st, contact, mode)
		}
		_ = m.call.ReplyRendered(hothttp.Render(head, body)) // a client that left is noticed by hothttp
		h.lists[cr.asked.list].Observe(h.api.Clock.Since(m.begun))
	}
	return kept
}

// rightsClass is equal for grants that get the same bytes: who has no token is not told that
// something was left out.
func rightsClass(g *acl.Grant) string {
	if g.Accessor == acl.AnonymousAccessor {
		return g.Class() + "\x00"
	}
	return g.Class()
}

// deadlines is a heap of members, the earliest deadline first. Each knows its place.
type deadlines []*parked

func (d *deadlines) push(m *parked) {
	m.place = len(*d)
	*d = append(*d, m)
	d.up(m.place)
}

func (d *deadlines) remove(m *parked) {
	i, last := m.place, len(*d)-1
	d.swap(i, last)
	(*d)[last] = nil
	*d = (*d)[:last]
	m.place = -1
	if i < last {
		d.down(i)
		d.up(i)
	}
}

// split moves the members that pick wants to the end of to.
func (d *deadlines) split(to []*parked, pick func(*parked) bool) []*parked {
	kept := (*d)[:0]
	for _, m := range *d {
		if pick(m) {
			m.place = -1
			if to == nil {
				to = make([]*parked, 0, len(*d))
			}
			to = append(to, m)
			continue
		}
		m.place = len(kept)
		kept = append(kept, m)
	}
	if len(kept) == len(*d) {
		return to
	}
	clear((*d)[len(kept):])
	*d = kept
	for i := len(kept)/2 - 1; i >= 0; i-- {
		d.down(i)
	}
	return to
}

func (d deadlines) swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

func (d deadlines) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !d[i].deadline.Before(d[parent].deadline) {
			return
		}
		d.swap(i, parent)
		i = parent
	}
}

func (d deadlines) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(d); child++ {
			if d[child].deadline.Before(d[least].deadline) {
				least = child
			}
		}
		if least == i {
			return
		}
		d.swap(i, least)
		i = least
	}
}

// soloReplies is how many members of a round one goroutine takes at a time.
const soloReplies = 32

// round is one answer on its way to many members.
//
// Whoever is answered asks again at once. On a busy machine those requests wake as
// many goroutines as there are members, and the goroutines that still answer the
// last members get their turn behind them all. So a request that is about to be
// parked first helps the round that is under way to its end: it would have had to
// wait anyhow, and whoever has not been answered has waited longer.
type round struct {
	response hothttp.Rendered
	due      []*parked
	timing   *telemetry.Timing
	index    uint64 // of the answer
	// committed is when the change of that index was committed; zero when that is not known.
	committed time.Time
	notify    *rows.NotifyTimings
	clock     clock.Clock

	next   atomic.Int64 // how many chunks of due were taken
	chunks sync.WaitGroup
}

// help answers members until there are none left to take.
func (r *round) help() {
	for {
		from := int(r.next.Add(1)-1) * soloReplies
		if from >= len(r.due) {
			return
		}
		for _, m := range r.due[from:min(from+soloReplies, len(r.due))] {
			_ = m.call.ReplyRendered(r.response) // a client that left is noticed by hothttp
			now := r.clock.Now()
			r.timing.Observe(now.Sub(m.begun))
			if m.index < r.index && !r.committed.IsZero() { // not one whose time was over
				r.notify.Written.Observe(now.Sub(r.committed))
			}
		}
		r.chunks.Done()
	}
}

// wokenBy notes that those of due who wait for the change of an index were woken, and
// returns when it was committed; zero when that is not known.
func wokenBy(n *rows.NotifyTimings, a *rows.Core, index uint64, due []*parked, now time.Time) time.Time {
	committed, ok := a.Registry.AppliedAt(index)
	if !ok {
		return time.Time{}
	}
	took := now.Sub(committed)
	for _, m := range due {
		if m.index < index {
			n.Woken.Observe(took)
		}
	}
	return committed
}
