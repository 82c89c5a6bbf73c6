package token

import (
	"cmp"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Limits are what bounds a token's life beside what it says itself.
type Limits struct {
	Default, Max time.Duration // of the mount, else of the system
	// what a renewal brings that asks for nothing; 0: the time that the token was made with, and never
	// less than it has
	Usual time.Duration
}

// Begin sets when a new token ends (contract 3.1): what was asked for, at most
// what mount, role and the token itself allow. A root token without a TTL does not
// end. capped says that it got less than it asked for.
func (t *Token) Begin(now time.Time, asked time.Duration, l Limits) (capped bool) {
	t.Created = now.UTC()
	if t.Root() && asked == 0 && t.Period == 0 && t.ExplicitMax == 0 {
		t.TTL, t.Expires, t.Renewable = 0, time.Time{}, false
		return false
	}
	ttl := asked
	if ttl == 0 {
		ttl = l.Default
	}
	if t.Period > 0 {
		ttl = t.Period
	}
	wanted := ttl
	if t.Period == 0 {
		ttl = atMost(ttl, l.Max, t.MaxTTL)
	}
	ttl = atMost(ttl, t.ExplicitMax)
	t.TTL, t.Expires = ttl, t.Created.Add(ttl)
	return ttl < wanted
}

// Renew sets when the token ends after a renewal that asked for an increment; 0 is the usual one. Limits may have
// become less since the token was made: one that is past them is not renewed.
func (t *Token) Renew(now time.Time, increment time.Duration, l Limits) (capped bool, err error) {
	switch {
	case t.Expires.IsZero() || !t.Renewable:
		return false, errkind.New(errkind.Invalid, "lease is not renewable")
	case t.Expired(now):
		return false, errkind.New(errkind.Invalid, "lease expired")
	}
	ttl := cmp.Or(increment, l.Usual, t.TTL)
	end := now.UTC().Add(ttl)
	if increment == 0 && l.Usual == 0 && end.Before(t.Expires) {
		end = t.Expires
	}
	if t.Period > 0 {
		end = now.UTC().Add(t.Period)
	} else {
		for _, limit := range []time.Duration{l.Max, t.MaxTTL} {
			end = before(end, t.Created, limit)
		}
	}
	end = before(end, t.Created, t.ExplicitMax)
	if !end.After(now) {
		return false, errkind.New(errkind.Invalid, "past the max TTL, cannot renew")
	}
	capped = t.Period == 0 && end.Before(now.Add(ttl))
	t.Expires, t.Renewed = end, now.UTC()
	return capped, nil
}

// What a renewal may bring less than it was asked for, where that saves its write: a share of what is left, and at
// most a time.
const (
	coalesceShare = 20
	coalesceMost  = time.Minute
)

// Covered reports whether a renewal to end needs nothing stored, because what is stored, after a renewal not long
// ago, lives about as long. The answer is then the stored end: nobody is promised what a crash would take back. The
// first renewal is always stored, and one that shortens.
func Covered(now, renewed, stored, end time.Time) bool {
	return !renewed.IsZero() && !end.Before(stored) && end.Sub(stored) <= min(end.Sub(now)/coalesceShare, coalesceMost)
}

func atMost(d time.Duration, limits ...time.Duration) time.Duration {
	for _, l := range limits {
		if l > 0 && d > l {
			d = l
		}
	}
	return d
}

// before is end, or limit after start where that comes sooner and is set.
func before(end, start time.Time, limit time.Duration) time.Time {
	if last := start.Add(limit); limit > 0 && end.After(last) {
		return last
	}
	return end
}
