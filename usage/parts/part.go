package parts

import (
	"context"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/pace"
)

// part is one that this server leads, or has a copy of.
type part struct {
	Place
	p    *Parts
	name string
	bad  map[string]failure // servers that did not become a copy; run alone uses it
	// looked is when the log was looked at, ready since when this server could have its own part; run alone uses them.
	looked, ready time.Time
	// seen is what the table said last, and missing the server that had the part beside this one, until a copy was lost,
	// at lost; run alone uses them.
	seen    definitions.Part
	missing string
	lost    time.Time

	mu      sync.Mutex // guards what follows
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the counter has ended
	paused  bool          // a lead makes this copy anew
	arrival *arrival
}

// keep runs the counter; while the part is made anew it does not.
func (t *part) keep(ctx context.Context) {
	for ctx.Err() == nil {
		t.mu.Lock()
		paused := t.paused
		var own context.Context
		own, t.cancel = context.WithCancel(ctx)
		ended := make(chan struct{})
		t.ended = ended
		t.mu.Unlock()
		if paused {
			close(ended)
			t.wait(own, time.Hour)
			continue
		}
		if err := t.Counter.Run(own); err != nil {
			t.p.cfg.Log.Error("usage: a counter ended", "part", t.name, "error", err)
		}
		close(ended)
		if own.Err() == nil {
			t.wait(own, time.Second)
		}
	}
}

// pause ends the counter, and waits until it has ended; resume starts it again.
func (t *part) pause() {
	t.mu.Lock()
	t.paused = true
	cancel, ended := t.cancel, t.ended
	t.mu.Unlock()
	if cancel != nil {
		cancel()
		<-ended
	}
}

func (t *part) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = false
	if t.cancel != nil {
		t.cancel()
	}
}

func (t *part) wait(ctx context.Context, d time.Duration) {
	timer := t.p.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// look is how often a part is looked after where nothing changes.
const look = 200 * time.Millisecond

// run brings the counter into the role that the table gives it, and finds it a copy.
func (t *part) run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := t.p.cfg.Definitions.Changed()
		t.step(ctx)
		timer := t.p.cfg.Clock.NewTimer(look)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (t *part) now() definitions.Part { return t.p.cfg.Definitions.View().Part(t.name) }

const (
	// decideWithin bounds what is waited for the Raft group: after it nobody knows whether it has decided, and the table
	// is looked at again.
	decideWithin = 5 * time.Second
	// turnWithin bounds what is waited for an append that is under way.
	turnWithin = 2 * time.Second
)

// change changes the table, if it is as this server knows it.
func (t *part) change(ctx context.Context, was definitions.Part, lead, other string) error {
	ctx, cancel := context.WithTimeout(ctx, decideWithin)
	defer cancel()
	_, err := t.p.cfg.Definitions.Do(ctx, definitions.Command{At: t.p.cfg.Clock.Now(), Part: &definitions.PartPut{
		Name: t.name, Was: was.Epoch, Next: definitions.Part{Lead: lead, Copy: other}}})
	return err
}

func (t *part) step(ctx context.Context) {
	now, c := t.now(), t.Counter
	t.watch(now)
	switch {
	case t.p.draining.Load():
		t.yield(ctx, now)
	case !c.Warm() || !slices.Contains(t.p.cfg.Definitions.View().Owners, t.name):
	case now.Lead != t.p.cfg.Self:
		if c.Leads() {
			c.Share().Follow(now.Epoch)
		}
		if t.p.cfg.Shared {
			t.reclaim(ctx, now)
		}
	case !c.Leads() && t.p.cfg.Shared:
		if err := t.takeOver(ctx, now); err != nil && ctx.Err() == nil {
			t.p.cfg.Log.Warn("usage: this server does not lead its part yet", "part", t.name, "error", err)
			t.wait(ctx, look)
		}
	case t.p.cfg.Shared:
		t.ready = time.Time{}
		t.follow(ctx)
	case !c.Leads():
		if err := t.lead(ctx, now); err != nil && ctx.Err() == nil {
			t.p.cfg.Log.Warn("usage: this server does not lead its part yet", "part", t.name, "error", err)
			t.wait(ctx, look)
		}
	default:
		t.seek(ctx, now)
	}
}

// lead makes this server's counter the one that takes events: with a new epoch, and with all that the copy has.
func (t *part) lead(ctx context.Context, was definitions.Part) error {
	if err := t.change(ctx, was, was.Lead, was.Copy); err != nil {
		return err // somebody else leads, or nobody can say
	}
	now := t.now()
	if now.Lead != t.p.cfg.Self {
		return nil
	}
	whole, err := t.Counter.Share().Whole(ctx)
	if err != nil {
		return err
	}
	if !whole && was.Copy == "" && was.Epoch > 0 {
		t.p.cfg.Log.Error("usage: this server's disk is new, and its part had no copy: what was on the old disk is lost",
			"part", t.name)
	}
	others := map[string]counter.Replica{}
	if now.Copy != "" {
		alone, err := t.catchUp(ctx, now, whole)
		if err != nil {
			return err
		}
		if alone {
			if err := t.change(ctx, now, now.Lead, ""); err != nil {
				return err
			}
			now = t.now()
			t.p.cfg.Log.Error("usage: this server leads its part alone: the copy cannot be used", "part", t.name)
		} else {
			others[now.Copy] = (&link{t: t, server: now.Copy, firm: true}).store
		}
	}
	if t.now() != now {
		return nil // it was decided anew meanwhile
	}
	if err := t.Counter.Share().SetWhole(ctx); err != nil {
		return err
	}
	t.p.cfg.Log.Info("usage: this server leads a part", "part", t.name, "epoch", now.Epoch, "copy", now.Copy)
	return t.start(ctx, now.Epoch, others)
}

// start has the counter take events, when what it took under an older epoch is stored or refused.
func (t *part) start(ctx context.Context, epoch uint64, others map[string]counter.Replica) error {
	ctx, cancel := context.WithTimeout(ctx, turnWithin)
	defer cancel()
	return t.Counter.Share().Lead(ctx, epoch, others)
}

// catchUp takes from the copy what this server lacks, and gives it what it lacks. alone says that the copy is of no
// use, which only one that is whole may say.
func (t *part) catchUp(ctx context.Context, now definitions.Part, whole bool) (alone bool, err error) {
	began := t.p.cfg.Clock.Now()
	for {
		err = t.level(ctx, now)
		if err == nil || errkind.Is(err, errkind.Corrupt) && whole {
			return err != nil, nil
		}
		waited := t.p.cfg.Clock.Since(began)
		if whole && t.p.cfg.Alone > 0 && waited >= t.p.cfg.Alone {
			return true, nil // what the copy has beyond this log was acknowledged to nobody
		}
		if waited > patience || t.now().Epoch != now.Epoch || ctx.Err() != nil || t.p.draining.Load() {
			return false, err
		}
		t.wait(ctx, look)
	}
}

// patience is how long something is tried before all is looked at anew.
const patience = 30 * time.Second

// level makes both logs the same, once.
func (t *part) level(ctx context.Context, now definitions.Part) error {
	for {
		theirs, err := t.ask(ctx, now.Copy, now.Epoch)
		if err != nil {
			return err
		}
		mine, err := t.Counter.Share().Tail(ctx)
		if err != nil {
			return err
		}
		switch {
		case theirs.next < mine.Next:
			if err := t.push(ctx, now.Copy, now.Epoch, theirs.next, mine.Next, nil); err != nil {
				return err
			}
		case theirs.next > mine.Next && theirs.first > mine.Next:
			return t.change(ctx, now, now.Copy, "") // this server's disk is an older one
		case theirs.next > mine.Next:
			if err := t.pull(ctx, now, mine.Next, theirs.next); err != nil {
				return err
			}
		default:
			return t.same(ctx, theirs)
		}
	}
}

// same compares the last record of both logs.
func (t *part) same(ctx context.Context, theirs status) error {
	sum, err := sumOf(ctx, t.Counter, theirs.next)
	if err == nil && sum != theirs.sum {
		err = errkind.Errorf(errkind.Corrupt, "usage: the copy of part %s has another record at %d", t.name,
			theirs.next-1)
	}
	return err
}

// sumOf is the checksum of the record before an offset; zero where there is none.
func sumOf(ctx context.Context, c *counter.Counter, next uint64) (uint32, error) {
	bound, err := c.Share().Tail(ctx)
	if err != nil || next <= bound.First || next > bound.Next {
		return 0, err
	}
	list, err := c.Share().Records(ctx, next-1, next, 1)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	return crc32.ChecksumIEEE(list[0]), nil
}

// feedBytes is about how much is copied at once, feedTimeout how long that may take.
const (
	feedBytes   = 2 << 20
	feedTimeout = 15 * time.Second
)

// push gives another server the records of a range, by a budget or, with nil, without one.
func (t *part) push(ctx context.Context, server string, epoch, from, to uint64, at *pace.Lane) error {
	for from < to {
		list, err := t.Counter.Share().Records(ctx, from, to, feedBytes)
		if err != nil {
			return err
		}
		size := 0
		for _, d := range list {
			size += len(d)
		}
		if err := at.Send(ctx, size); err != nil {
			return err
		}
		next, err := t.feed(ctx, server, epoch, from, list)
		if err != nil {
			return err
		}
		if next <= from {
			return errkind.Errorf(errkind.Unavailable, "usage: server %s takes nothing from %d on", server, from)
		}
		from = next
	}
	return nil
}

// pull takes the records of a range from the copy.
func (t *part) pull(ctx context.Context, now definitions.Part, from, to uint64) error {
	for from < to {
		req := pack.Uint(pack.Uint(pack.String(nil, t.name), from), to)
		reply, err := t.call(ctx, now.Copy, MethodRead, req)
		if err != nil {
			return err
		}
		list, err := records(pack.Read(reply))
		if err != nil || len(list) == 0 {
			return errkind.New(errkind.Unavailable, "usage: the copy has no records to give")
		}
		t.p.received(len(reply))
		next, err := t.Counter.Share().Feed(ctx, now.Epoch, from, list)
		if err != nil {
			return err
		}
		from = next
	}
	return nil
}

func (t *part) call(ctx context.Context, server, method string, req []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	return t.p.cfg.Call(ctx, server, method, req)
}

// feed gives another server records, and returns where its log ends then.
func (t *part) feed(ctx context.Context, server string, epoch, from uint64, data [][]byte) (uint64, error) {
	b := pack.Uint(pack.Uint(pack.String(nil, t.name), epoch), from)
	reply, err := t.call(ctx, server, MethodFeed, appendRecords(b, data))
	if err != nil {
		return 0, err
	}
	r := pack.Read(reply)
	next := r.Uint()
	return next, r.Err()
}
