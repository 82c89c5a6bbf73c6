package parts

import (
	"context"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/definitions"
)

// loads is how many parts each server leads or has copies of.
func loads(view *definitions.View) map[string]int {
	load := map[string]int{}
	for _, name := range view.Owners {
		now := view.Part(name)
		load[now.Lead]++
		load[now.Copy]++
	}
	return load
}

// candidate is the server that should have the copy: the home, which gets its part back that way, or the one with the
// least to do.
func candidate(view *definitions.View, self, part string, voters []string, bad func(string) bool) string {
	load := loads(view)
	best := ""
	for _, s := range slices.Sorted(slices.Values(voters)) {
		switch {
		case s == self || bad(s):
		case s == part:
			return s
		case best == "" || load[s] < load[best]:
			best = s
		}
	}
	return best
}

// retry is how long at most a server that could not become a copy is left alone: not long after the first failure, for
// it may be about to start.
const retry = 5 * time.Second

// failure is that a server did not become a copy.
type failure struct {
	at    time.Time // of the last time
	times int
}

// over says whether it may be tried again.
func (f failure) over(now time.Time) bool {
	return f.times == 0 || now.Sub(f.at) >= min(retry, look<<min(f.times-1, 10))
}

// seek finds a copy for a part that has none, or the home where another server has it.
func (t *part) seek(ctx context.Context, now definitions.Part) {
	t.Counter.Share().Renew(now.Epoch, now.Copy)
	if t.p.cfg.Copies < 2 {
		return
	}
	view := t.p.cfg.Definitions.View()
	clock := t.p.cfg.Clock
	voters := t.p.cfg.Voters()
	awaited := t.awaited(now, voters)
	next := candidate(view, t.p.cfg.Self, t.name, voters, func(s string) bool {
		if awaited != "" {
			return s != awaited || clock.Since(t.bad[s].at) < look
		}
		return !t.bad[s].over(clock.Now())
	})
	// A copy moves to the home, or from one that will not come back to a server that has nothing to do.
	idle := !slices.Contains(voters, t.name) && loads(view)[next] == 0
	if next == "" || next == now.Copy || now.Copy != "" && next != t.name && !idle {
		return
	}
	if !t.p.filling.TryLock() {
		return // another part's copy is being made: this one's comes after it
	}
	defer t.p.filling.Unlock()
	began := clock.Now()
	err := t.join(ctx, now, next)
	switch {
	case err == nil:
		t.p.cfg.Log.Info("usage: a part has a copy", "part", t.name, "server", next, "after", clock.Since(began))
		delete(t.bad, next)
	case ctx.Err() == nil:
		if next != awaited {
			t.p.cfg.Log.Info("usage: a server is no copy yet", "part", t.name, "server", next, "error", err)
		}
		t.bad[next] = failure{clock.Now(), t.bad[next].times + 1}
	}
}

// join makes a server a copy: it is given what it lacks, has a record before it is acknowledged from then on, and is
// named by the table.
func (t *part) join(ctx context.Context, now definitions.Part, server string) error {
	theirs, err := t.ask(ctx, server, now.Epoch)
	if err != nil {
		return err
	}
	fits, err := t.fits(ctx, theirs)
	fits = fits && !theirs.anew
	if err != nil {
		return err
	}
	if !fits {
		if err := t.send(ctx, server, now.Epoch, theirs.unpacks); err != nil {
			return err
		}
		if theirs, err = t.awaitWarm(ctx, server, now.Epoch); err != nil {
			return err
		}
	}
	from := theirs.next
	quick := false
	for range 20 { // what comes meanwhile becomes less with each round
		mine, err := t.Counter.Share().Tail(ctx)
		if err != nil {
			return err
		}
		if mine.Next-from < 64 && quick {
			break
		}
		began := t.p.cfg.Clock.Now()
		if err := t.push(ctx, server, now.Epoch, from, mine.Next, t.p.lane); err != nil {
			return err
		}
		from, quick = mine.Next, t.p.cfg.Clock.Since(began) < turnWithin/4
	}
	l := &link{t: t, server: server}
	if err := t.attach(ctx, l, now.Epoch, from); err != nil {
		return err
	}
	if !l.harden() {
		t.Counter.Share().Renew(now.Epoch, now.Copy)
		return errkind.New(errkind.Unavailable, "usage: it has missed records")
	}
	if _, err = t.call(ctx, server, MethodWhole, pack.Uint(pack.String(nil, t.name), now.Epoch)); err == nil {
		err = t.propose(ctx, now, server)
	}
	after := t.now()
	t.Counter.Share().Renew(after.Epoch, after.Copy)
	return err
}

// attach has all that is stored from now on go over a link, too, and what came since it was last looked. Appends wait
// for that, for turnWithin at most: a server that is slower, or does not answer, is no copy yet.
func (t *part) attach(ctx context.Context, l *link, epoch, from uint64) error {
	wait, cancel := context.WithTimeout(ctx, turnWithin)
	defer cancel()
	return t.Counter.Share().Attach(wait, l.server, l.store, func(tail uint64) error {
		held, cancel := context.WithTimeout(ctx, turnWithin)
		defer cancel()
		return t.push(held, l.server, epoch, from, tail, nil)
	})
}

// propose has the table name a copy, and returns when it is known whether it does.
func (t *part) propose(ctx context.Context, was definitions.Part, server string) error {
	err := t.change(ctx, was, was.Lead, server)
	for err != nil && !errkind.Is(err, errkind.Conflict) && ctx.Err() == nil {
		t.wait(ctx, look)
		if t.now().Epoch == was.Epoch { // a new epoch settles it: the first proposal comes too late then
			err = t.change(ctx, was, was.Lead, was.Copy)
		} else {
			err = nil
		}
	}
	for t.now().Epoch == was.Epoch && ctx.Err() == nil { // the table of this server may be older than the answer
		t.wait(ctx, look)
	}
	if now := t.now(); now.Copy != server {
		return errkind.Errorf(errkind.Conflict, "usage: the table has another copy: %q", now.Copy)
	}
	return nil
}

// fits says whether a server's log is a beginning of this one.
func (t *part) fits(ctx context.Context, theirs status) (bool, error) {
	mine, err := t.Counter.Share().Tail(ctx)
	switch {
	case err != nil:
		return false, err
	case theirs.next > mine.Next || theirs.next < mine.First || theirs.next == 0 && mine.First > 0:
		return false, nil
	case theirs.next == 0:
		return true, nil
	case theirs.next == mine.First:
		return false, nil // the record before is gone, and nothing can be compared
	}
	sum, err := sumOf(ctx, t.Counter, theirs.next)
	return sum == theirs.sum, err
}

func (t *part) awaitWarm(ctx context.Context, server string, epoch uint64) (theirs status, err error) {
	began := t.p.cfg.Clock.Now()
	for ctx.Err() == nil {
		if theirs, err = t.ask(ctx, server, epoch); err == nil || t.p.cfg.Clock.Since(began) > patience {
			return theirs, err
		}
		t.wait(ctx, look)
	}
	return theirs, ctx.Err()
}

// send makes another server's place of the part anew: its log as far as it reaches back here, and the state. It goes
// compressed where that server can read it so.
func (t *part) send(ctx context.Context, server string, epoch uint64, packs bool) error {
	state, next, err := t.Counter.Share().Export()
	if err != nil {
		return err
	}
	mine, err := t.Counter.Share().Tail(ctx)
	if err != nil {
		return err
	}
	if t.p.draining.Load() {
		return errDrains
	}
	head := func(step uint64) []byte { return pack.Uint(pack.Uint(pack.String(nil, t.name), epoch), step) }
	give := func(step uint64, content []byte) error {
		b := append(head(step), content...)
		if packs {
			b = pack.Bytes(head(anewPacked), packed(append(pack.Uint(nil, step), content...)))
		}
		if err := t.paced(ctx, len(b)); err != nil {
			return err
		}
		_, err := t.call(ctx, server, MethodAnew, b)
		return err
	}
	if _, err := t.call(ctx, server, MethodAnew, pack.Uint(head(anewBegin), mine.First)); err != nil {
		return err
	}
	for from := mine.First; from < next; {
		list, err := t.Counter.Share().Records(ctx, from, next, feedBytes)
		if err != nil {
			return err
		}
		if err := give(anewRecords, appendRecords(pack.Uint(nil, from), list)); err != nil {
			return err
		}
		from += uint64(len(list))
	}
	for from := 0; from < len(state); from += feedBytes {
		piece := state[from:min(len(state), from+feedBytes)]
		if err := give(anewState, pack.Bytes(pack.Uint(nil, uint64(from)), piece)); err != nil {
			return err
		}
	}
	_, err = t.call(ctx, server, MethodAnew, pack.Uint(head(anewEnd), next))
	return err
}

// paced waits until so many bytes may go to a copy that is being made. A server that is being stopped makes none.
func (t *part) paced(ctx context.Context, bytes int) error {
	if t.p.draining.Load() {
		return errDrains
	}
	return t.p.lane.Send(ctx, bytes)
}
