package leaf

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
)

// kind is one identity with its certificate. Leaves.mu guards the fields that change.
type kind struct {
	what      Subject
	leaf      *Leaf // the newest; nil before the first
	err       error // of the last try; nil when that worked
	tries     uint64
	refused   map[string]error // by the last try: tokens that servers refused
	at        time.Time        // when to try next
	changed   chan struct{}    // closed and replaced when a try ended
	followers map[*follower]struct{}
	tokens    []string // of those who asked, the newest first
	asking    int      // questions that wait
	used      time.Time
	gone      bool // forgotten

	tended tending
}

// tending is the goroutine that tends a kind.
type tending struct {
	running  bool // a goroutine tends it now
	notified bool // and shall look again before it ends
	timer    *clock.Timer
	pause    backoff.Backoff // belongs to that goroutine
}

func (k *kind) idle() bool { return len(k.followers) == 0 && k.asking == 0 }

// rememberLocked notes a token that may be used for renewals. One that is new is tried at once when others failed.
func (l *Leaves) rememberLocked(k *kind, token string) {
	if i := slices.Index(k.tokens, token); i >= 0 {
		k.tokens = slices.Delete(k.tokens, i, i+1)
	} else if k.err != nil {
		l.dueLocked(k)
	}
	k.tokens = slices.Insert(k.tokens, 0, token)
	k.tokens = k.tokens[:min(len(k.tokens), keptTokens)]
}

// dueLocked has a kind try now.
func (l *Leaves) dueLocked(k *kind) {
	k.at = l.cfg.Clock.Now()
	l.notifyLocked(k)
}

// notifyLocked has a kind looked at, by the goroutine that does so already or by one of its own.
func (l *Leaves) notifyLocked(k *kind) {
	switch {
	case k.tended.running:
		k.tended.notified = true
		return
	case l.ctx == nil || l.ctx.Err() != nil:
		return // Run does it, or did
	}
	if k.tended.timer != nil {
		k.tended.timer.Stop()
		k.tended.timer = nil
	}
	ctx := l.ctx
	k.tended.running = true
	l.tasks.Go(func() { l.tend(ctx, k) })
}

// lookAgain bounds how long a kind is left alone: timers stand still while a machine sleeps, certificates do not.
const lookAgain = time.Minute

// tend does what there is to do for a kind, and ends: between two certificates a kind is a timer and no goroutine.
func (l *Leaves) tend(ctx context.Context, k *kind) {
	for {
		next := l.deliver(ctx, k)
		l.mu.Lock()
		now := l.cfg.Clock.Now()
		if k.idle() && now.Sub(k.used) >= l.cfg.Idle {
			l.dropLocked(k)
		}
		switch {
		case k.gone || ctx.Err() != nil:
			k.tended.running = false
			l.mu.Unlock()
			return
		case !k.at.After(now):
			l.mu.Unlock()
			l.try(ctx, k)
			continue
		case k.tended.notified:
			k.tended.notified = false
			l.mu.Unlock()
			continue
		}
		wait := k.at.Sub(now)
		if k.idle() {
			wait = min(wait, k.used.Add(l.cfg.Idle).Sub(now))
		}
		if !next.IsZero() {
			wait = min(wait, next.Sub(now))
		}
		k.tended.running = false
		l.restLocked(k, now, now.Add(wait))
		l.mu.Unlock()
		return
	}
}

// restLocked leaves a kind alone until due, but for a look at the clock.
func (l *Leaves) restLocked(k *kind, now, due time.Time) {
	var timer *clock.Timer
	timer = l.cfg.Clock.AfterFunc(min(max(due.Sub(now), 0), lookAgain), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		now := l.cfg.Clock.Now()
		switch {
		case k.tended.timer != timer || k.gone || l.ctx == nil: // somebody was faster, or Run has ended
		case now.Before(due) && !k.idle():
			l.restLocked(k, now, due)
		default:
			l.notifyLocked(k)
		}
	})
	k.tended.timer = timer
}

// try asks for a certificate once, with each token that there is for it until one is not refused.
func (l *Leaves) try(ctx context.Context, k *kind) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	id, err := l.identity(ctx, k.what)
	var leaf *Leaf
	refused := map[string]error{}
	if err == nil {
		err = errkind.New(errkind.Denied, "Permission denied: nobody who may have this certificate asks for it")
		for _, token := range l.tokensOf(k) {
			if leaf, err = l.ask(ctx, token, id); !errkind.Is(err, errkind.Denied) {
				break
			}
			refused[token] = err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.tries++
	k.err, k.refused = err, refused
	now := l.cfg.Clock.Now()
	k.tokens = slices.DeleteFunc(k.tokens, func(t string) bool { return refused[t] != nil })
	if err != nil {
		l.failed.Add(1)
		k.at = now.Add(k.tended.pause.Next())
		l.cfg.Logger.Debug("a leaf certificate could not be had yet", "identity", id.URI().String(), "error", err)
	} else {
		l.issued.Add(1)
		k.tended.pause.Reset()
		l.last = max(l.last+1, leaf.ModifyIndex)
		leaf.CreateIndex, leaf.ModifyIndex, leaf.Received = l.last, l.last, now
		k.leaf, k.at = leaf, l.renewalLocked(leaf, now)
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// renewalLocked is when a certificate that came now is to be renewed.
func (l *Leaves) renewalLocked(leaf *Leaf, now time.Time) time.Time {
	life := leaf.ValidBefore.Sub(now)
	at := now.Add(time.Duration(float64(life) * (0.6 + 0.3*rand.Float64())))
	if leaf.RootID != l.roots.Active || leaf.ID.TrustDomain != l.roots.TrustDomain {
		// A server that had not seen the rotation signed, or one that saw it before this host did.
		if soon := now.Add(l.spread()); soon.Before(at) {
			return soon
		}
	}
	return at
}

// identity is the subject's, once the trust domain is known.
func (l *Leaves) identity(ctx context.Context, what Subject) (ca.ID, error) {
	select {
	case <-l.known:
	case <-ctx.Done():
		return ca.ID{}, errkind.New(errkind.Unavailable, "the mesh's roots are not known yet: no server has told them")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return ca.ID{Kind: what.Kind, TrustDomain: l.roots.TrustDomain, Datacenter: l.cfg.Datacenter, Name: what.Name}, nil
}

// tokensOf are the tokens to try, those of followers last: who asks now is there now.
func (l *Leaves) tokensOf(k *kind) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(k.tokens)
	for f := range k.followers {
		if len(list) < 2*keptTokens && !slices.Contains(list, f.token) {
			list = append(list, f.token)
		}
	}
	return list
}

// ask makes a key and has it certified.
func (l *Leaves) ask(ctx context.Context, token string, id ca.ID) (*Leaf, error) {
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return nil, errkind.New(errkind.Unavailable, "no leaf certificate came in time: many are being asked for")
	}
	key, csr, err := ca.NewRequest(id, nil, nil)
	if err != nil {
		return nil, errkind.E(errkind.Internal, "make a key", err)
	}
	c, err := l.cfg.Sign(ctx, issue.Request{Token: token, CSR: csr})
	if err != nil {
		return nil, err
	}
	return &Leaf{ID: id, SerialNumber: c.SerialNumber, CertPEM: c.CertPEM, PrivateKeyPEM: key, ValidAfter: c.ValidAfter,
		ValidBefore: c.ValidBefore, RootID: c.RootID, ModifyIndex: c.Index}, nil
}
