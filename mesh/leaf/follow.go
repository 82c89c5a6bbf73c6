package leaf

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// follower is somebody who wants each certificate of a kind.
type follower struct {
	token  string
	set    func(Leaf)
	failed func(error)

	mu      sync.Mutex // held while calling; guards stopped
	stopped bool

	// The kind's goroutine alone uses these.
	given uint64    // ModifyIndex of what it has
	told  bool      // that it lacks the right
	again time.Time // when to judge it again
}

// Follow calls set with the service's certificate once there is one, and with each later one, until stop is called.
// It survives the absence of servers. set is called by one goroutine and must not block; after stop has returned
// it is not called again, so set must not call stop.
func (l *Leaves) Follow(service, token string, set func(Leaf)) (stop func()) {
	return l.FollowSubject(Service(service), token, set, nil)
}

// FollowSubject is Follow for any subject. failed, if not nil, is told once when the token lacks the right (kind
// Denied, or Invalid for a name that no certificate may have), and when this host can keep no more certificates
// (Overloaded). The right is judged again now and then, and set is called when it is there.
func (l *Leaves) FollowSubject(what Subject, token string, set func(Leaf), failed func(error)) (stop func()) {
	if failed == nil {
		failed = func(error) {}
	}
	f := &follower{token: token, set: set, failed: failed}
	l.mu.Lock()
	k, err := l.kindLocked(what)
	if err != nil {
		l.mu.Unlock()
		failed(err)
		return func() {}
	}
	k.followers[f] = struct{}{}
	if k.err != nil {
		l.dueLocked(k) // its token may be the one that is not refused
	}
	l.notifyLocked(k)
	l.mu.Unlock()
	return func() {
		f.mu.Lock()
		f.stopped = true
		f.mu.Unlock()
		l.mu.Lock()
		delete(k.followers, f)
		k.used = l.cfg.Clock.Now()
		l.mu.Unlock()
	}
}

func (f *follower) call(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		fn()
	}
}

// tell says once that the follower will get no certificate, when trying again is not likely to help.
func (f *follower) tell(err error) {
	if lasts := errkind.Is(err, errkind.Denied) || errkind.Is(err, errkind.Invalid); lasts && !f.told {
		f.told = true
		f.call(func() { f.failed(err) })
	}
}

// deliver gives the newest certificate to followers that have it not. It returns when to look again at those
// who lack the right, zero for not.
func (l *Leaves) deliver(ctx context.Context, k *kind) (again time.Time) {
	l.mu.Lock()
	leaf, refused := k.leaf, k.refused
	list := make([]*follower, 0, len(k.followers))
	for f := range k.followers {
		list = append(list, f)
	}
	l.mu.Unlock()
	now := l.cfg.Clock.Now()
	if leaf == nil || !now.Before(leaf.ValidBefore) {
		for _, f := range list {
			f.tell(refused[f.token])
		}
		return again
	}
	for _, f := range list {
		if f.given == leaf.ModifyIndex || ctx.Err() != nil {
			continue
		}
		if now.Before(f.again) {
			again = sooner(again, f.again)
			continue
		}
		err := l.may(ctx, f.token, k.what)
		if err == nil {
			f.given, f.told = leaf.ModifyIndex, false
			f.call(func() { f.set(*leaf) })
			continue
		}
		f.again = now.Add(rejudge)
		again = sooner(again, f.again)
		f.tell(err)
	}
	return again
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// Query asks for a certificate, or for one other than that of Index.
type Query struct {
	Subject Subject
	Token   string
	Index   uint64        // 0: whatever there is
	Wait    time.Duration // how long to wait for another than that of Index
}

// Get returns the subject's certificate. With an Index it waits until there is another one, and after Wait
// returns the one that there is. hit tells that it was there already.
func (l *Leaves) Get(ctx context.Context, q Query) (leaf Leaf, hit bool, err error) {
	if err := l.may(ctx, q.Token, q.Subject); err != nil {
		return Leaf{}, false, err
	}
	l.mu.Lock()
	k, err := l.kindLocked(q.Subject)
	if err != nil {
		l.mu.Unlock()
		return Leaf{}, false, err
	}
	l.rememberLocked(k, q.Token)
	k.asking++
	began := k.tries
	if k.leaf == nil {
		l.notifyLocked(k)
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		k.asking--
		k.used = l.cfg.Clock.Now()
		l.mu.Unlock()
	}()
	return l.await(ctx, k, q, began)
}

var errLate = errkind.New(errkind.Unavailable, "no leaf certificate came in time: no server has signed one")

func (l *Leaves) await(ctx context.Context, k *kind, q Query, began uint64) (Leaf, bool, error) {
	patience := l.cfg.Clock.NewTimer(l.cfg.Patience) // for the first; a question with an index has one already
	defer patience.Stop()
	wait := l.cfg.Clock.NewTimer(q.Wait)
	defer wait.Stop()
	for hit := true; ; hit = false {
		l.mu.Lock()
		leaf, failed, tries, changed := k.leaf, k.err, k.tries, k.changed
		l.mu.Unlock()
		valid := leaf != nil && l.cfg.Clock.Now().Before(leaf.ValidBefore)
		var late <-chan time.Time
		switch {
		case valid && (q.Index == 0 || leaf.ModifyIndex != q.Index):
			return *leaf, hit, nil
		case valid:
			late = wait.C
		case failed != nil && tries > began:
			return Leaf{}, false, failed
		default:
			late = patience.C
		}
		select {
		case <-changed:
		case <-late:
			if valid {
				return *leaf, false, nil
			}
			return Leaf{}, false, errLate
		case <-ctx.Done():
			return Leaf{}, false, ctx.Err()
		}
	}
}
