package parts

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// link is what a lead has to another server that stores all it takes. One that the table names, or may name, is given
// up by the Raft group alone; one that is only on its way, with the first failure.
type link struct {
	t      *part
	server string

	mu     sync.Mutex // guards what follows
	firm   bool
	missed bool // a record, while it was not firm
	named  bool // by the table
}

// harden makes the link one that only the Raft group gives up; false where it has missed something.
func (l *link) harden() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.firm = !l.missed
	return l.firm
}

// miss notes a failure of a link that is not firm.
func (l *link) miss() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed = l.missed || !l.firm
	return l.missed
}

// dropped says that the table named the server, and does not any more.
func (l *link) dropped(other string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other == l.server {
		l.named, l.firm = true, true
	}
	return l.named && other != l.server
}

// store implements counter.Replica.
func (l *link) store(ctx context.Context, from uint64, data [][]byte) error {
	t := l.t
	began := t.p.cfg.Clock.Now()
	for {
		now := t.now()
		if now.Lead != t.p.cfg.Self {
			return errkind.Errorf(errkind.Unavailable, "usage: server %s leads part %s now", now.Lead, t.name)
		}
		if l.dropped(now.Copy) {
			return nil
		}
		done, err := l.give(ctx, began, now.Epoch, from, data)
		if done {
			return nil
		}
		if err == nil {
			continue
		}
		if errkind.Is(err, errkind.Conflict) {
			return err // a newer lead is known there
		}
		if l.miss() {
			t.p.cfg.Log.Info("usage: a server does not become a copy", "part", t.name, "server", l.server, "error", err)
			return nil
		}
		if err := l.forgo(ctx, began, err); err != nil {
			return err
		}
	}
}

// lastTry is what an attempt has when those before it have used up the time.
const lastTry = turnWithin / 4

// give gives the server records, or what it lacks of those before; done says that it has all. All attempts since began
// have the time together after which it is decided about that server. What it has taken then is not given again.
func (l *link) give(ctx context.Context, began time.Time, epoch, from uint64, data [][]byte) (done bool, err error) {
	t := l.t
	if alone := t.p.cfg.Alone; alone > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(max(alone, turnWithin)-t.p.cfg.Clock.Since(began), lastTry))
		defer cancel()
	}
	next, err := t.feed(ctx, l.server, epoch, from, data)
	switch {
	case err != nil:
		return false, err
	case next == from+uint64(len(data)):
		return true, nil
	case next < from:
		return false, t.push(ctx, l.server, epoch, next, from, nil)
	}
	return false, errkind.Errorf(errkind.Corrupt, "usage: server %s has records up to %d", l.server, next)
}

// forgo asks the Raft group to go on without the copy, when that has been silent for long enough.
func (l *link) forgo(ctx context.Context, began time.Time, cause error) error {
	t := l.t
	if t.p.over() {
		return errkind.New(errkind.Unavailable, "usage: the plane ends")
	}
	alone, now := t.p.cfg.Alone, t.now()
	hopeless := errkind.Is(cause, errkind.Corrupt)
	if now.Lead != t.p.cfg.Self || alone <= 0 || !hopeless && t.p.cfg.Clock.Since(began) < alone {
		t.wait(ctx, look)
		return nil
	}
	rest := now.Copy // where the server is not named, a new epoch says that it will not be
	if rest == l.server {
		rest = ""
	}
	t.p.cfg.Log.Error("usage: a part goes on without this copy: the loss of the lead's disk would lose events",
		"part", t.name, "copy", l.server, "error", cause)
	if err := t.change(ctx, now, now.Lead, rest); err != nil {
		t.p.cfg.Log.Warn("usage: it is not settled yet that this part has no copy", "part", t.name, "error", err)
		t.wait(ctx, look)
		return nil
	}
	l.mu.Lock()
	l.named = true // and, by the table of now, dropped
	l.mu.Unlock()
	return nil
}
