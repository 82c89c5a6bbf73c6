package roundrobin

import (
	"context"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

const (
	// beat is how often a server tells the leader that it is there, and a leader looks whether somebody is not.
	beat = 500 * time.Millisecond
	// gather is how long the first change waits for others: agents come and go together.
	gather = 20 * time.Millisecond
	// callTime bounds a call to another server.
	callTime = time.Second
	// handTime bounds how long a server may take to send what it was given.
	handTime = 2 * time.Second
	// settle is how long a new leader waits for servers that tell it nothing.
	settle = 1500 * time.Millisecond
	// tries is how often a tick is dealt again for agents that turn out to be gone.
	tries = 4
)

var errNotLeader = errkind.New(errkind.NotLeader, "this server does not lead the monitor plane")

// pause waits until one of the channels has something or time has passed, and reports whether ctx still lasts.
func (r *RoundRobin) pause(ctx context.Context, d time.Duration, a, b <-chan struct{}) bool {
	t := r.cfg.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-a:
	case <-b:
	}
	return true
}

// telling tells the leader of this server's agents until ctx ends.
func (r *RoundRobin) telling(ctx context.Context) error {
	whom, failed := "", true // who was told last
	for {
		changes := r.cfg.Changes()
		id, addr := r.cfg.Leader()
		wait := beat
		if id != "" {
			in := r.roll.take(failed || id != whom)
			in.server, whom = r.cfg.Self, id
			all, err := r.tellTo(ctx, id, addr, in)
			if failed = all || err != nil; all {
				wait = 0
			}
		}
		if !r.pause(ctx, wait, changes, r.roll.wake) || !r.pause(ctx, gather, nil, nil) {
			return nil
		}
	}
}

func (r *RoundRobin) tellTo(ctx context.Context, id, addr string, in *told) (all bool, err error) {
	if id == r.cfg.Self {
		return r.hear(in)
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	reply, err := r.cfg.Call(ctx, addr, methodTell, encode(in))
	return err == nil && len(reply) == 1 && reply[0] == 1, err
}

// hear takes what a server tells its leader.
func (r *RoundRobin) hear(in *told) (all bool, err error) {
	if !r.cfg.Leads() {
		return false, errNotLeader
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.table.take(in, r.now()) {
		return true, nil
	}
	if len(r.waiting) > 0 {
		notify(r.wake)
	}
	return false, nil
}

func (r *RoundRobin) serveTell(_ context.Context, req []byte) ([]byte, error) {
	in := &told{}
	if err := decode(methodTell, req, in); err != nil {
		return nil, err
	}
	all, err := r.hear(in)
	if err != nil {
		return nil, err
	}
	if all {
		return []byte{1}, nil
	}
	return []byte{0}, nil
}

// dealing deals while this server leads, until ctx ends.
func (r *RoundRobin) dealing(ctx context.Context) error {
	defer r.hands.Wait()
	var now *leadership
	for {
		changes := r.cfg.Changes()
		switch {
		case !r.cfg.Leads():
			if now != nil {
				r.mu.Lock()
				r.table = newTable()
				r.mu.Unlock()
			}
			now = nil
			r.due(false)
		case now == nil:
			if now = r.begin(ctx); now == nil {
				if !r.pause(ctx, beat/5, nil, nil) {
					return nil
				}
				continue
			}
		}
		if now != nil && r.settled(now) && !r.round(ctx, now) {
			now = nil
			continue
		}
		if !r.pause(ctx, beat, changes, r.wake) {
			return nil
		}
	}
}

// promises asks all servers at once and returns what the first majority promised, nil when none did within callTime.
// Who refused has promised more to another one: how much is remembered for the next try.
func (r *RoundRobin) promises(ctx context.Context, own promise, method string, req []byte) (out []promise) {
	servers := slices.DeleteFunc(r.cfg.Servers(), func(s Server) bool { return !s.Voter })
	most := len(servers)/2 + 1
	if !slices.ContainsFunc(servers, func(s Server) bool { return s.ID == r.cfg.Self }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	answers := make(chan promise, len(servers))
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel() // before the wait
	for _, s := range servers {
		if s.ID == r.cfg.Self {
			answers <- own
			continue
		}
		asked.Go(func() {
			p := promise{}
			reply, err := r.cfg.Call(ctx, s.Address, method, req)
			if err == nil {
				err = decode(methodBegin, reply, &p)
			}
			if err != nil {
				p = promise{}
			}
			answers <- p
		})
	}
	for range servers {
		p := <-answers
		if !p.ok {
			r.mu.Lock()
			r.greatest = max(r.greatest, p.promised.n)
			r.mu.Unlock()
			continue
		}
		if out = append(out, p); len(out) == most {
			return out
		}
	}
	return nil
}

// begin makes this server's ballot the greatest at a majority; nil is that it did not succeed.
func (r *RoundRobin) begin(ctx context.Context) *leadership {
	r.mu.Lock()
	with := ballot{max(r.book.promised.n, r.greatest) + 1, r.cfg.Self}
	kept := map[name]int64{}
	for key, w := range r.waiting {
		if w.noted {
			kept[key] = w.Due
		}
	}
	own := r.beginLocked(with)
	r.mu.Unlock()
	answers := r.promises(ctx, own, methodBegin, encode(&with))
	if answers == nil {
		return nil
	}
	youngest := own.runs
	var noted [][]note
	for _, p := range answers {
		youngest = min(youngest, p.runs)
		noted = append(noted, p.noted)
	}
	return newLeadership(with, noted, kept, youngest, r.cfg.Clock.Now(), r.now())
}

func (r *RoundRobin) beginLocked(with ballot) promise {
	noted, ok := r.book.begin(with)
	return promise{ok: ok, promised: r.book.promised, runs: r.now(), noted: noted}
}

func (r *RoundRobin) serveBegin(_ context.Context, req []byte) ([]byte, error) {
	var with ballot
	if err := decode(methodBegin, req, &with); err != nil {
		return nil, err
	}
	r.mu.Lock()
	p := r.beginLocked(with)
	r.mu.Unlock()
	notify(r.roll.wake)
	return encode(&p), nil
}

func (r *RoundRobin) serveNote(_ context.Context, req []byte) ([]byte, error) {
	var n noting
	if err := decode(methodNote, req, &n); err != nil {
		return nil, err
	}
	r.mu.Lock()
	p := r.noteLocked(n.with, n.notes)
	r.mu.Unlock()
	return encode(&p), nil
}

func (r *RoundRobin) noteLocked(with ballot, notes []note) promise {
	ok := r.book.note(with, notes, r.cfg.Clock.Now())
	return promise{ok: ok, promised: r.book.promised}
}

// settled says whether the leader knows who is connected: all servers told it, or it waited for them long enough.
func (r *RoundRobin) settled(now *leadership) bool {
	servers := r.cfg.Servers()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.sweep(r.now())
	if r.now()-now.began > settle {
		return true
	}
	for _, s := range servers {
		if !r.table.heardSince(s.ID, now.began) {
			return false
		}
	}
	return true
}

// round deals the ticks that wait; false is that this term is over.
func (r *RoundRobin) round(ctx context.Context, now *leadership) bool {
	var batch []*waiting
	var notes []note
	for _, w := range r.due(true) {
		key := name{w.Namespace, w.Check}
		switch {
		case !now.may(key, w.Due):
		case r.empty(&w.Tick):
			r.giveBack([]*waiting{w})
		default:
			batch = append(batch, w)
			notes = append(notes, note{name: key, due: w.Due})
		}
	}
	if len(batch) == 0 {
		return true
	}
	r.mu.Lock()
	own := r.noteLocked(now.ballot, notes)
	r.mu.Unlock()
	answers := r.promises(ctx, own, methodNote, encode(&noting{now.ballot, notes}))
	if answers == nil {
		for _, w := range batch {
			w.noted = true
		}
		r.giveBack(batch)
		return false
	}
	for _, n := range notes {
		now.last[n.name] = n.due
	}
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	r.hands.Go(func() {
		defer func() { <-r.slots }()
		r.handOut(ctx, batch)
	})
	return true
}

func (r *RoundRobin) ring(ring Ring) []member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.table.ring(ring)
}

// empty says whether nobody is there for a tick.
func (r *RoundRobin) empty(t *Tick) bool {
	return !slices.ContainsFunc(t.Subscriptions, func(s string) bool { return len(r.ring(Ring{t.Namespace, s})) > 0 })
}
