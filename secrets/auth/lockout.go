package auth

import (
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/mount"
)

// ErrDenied is what who is locked out is told, with the right password too.
var ErrDenied = errkind.New(errkind.Denied, "permission denied")

const maxNames = 1 << 16 // aliases that are remembered

// LockoutRules say when an alias is locked out.
type LockoutRules = mount.Lockout

// LockoutMethods are the types of auth methods that lock out.
var LockoutMethods = []string{"approle", "ldap", "okta", "radius", "userpass"}

// Lockout counts failed logins by alias. It is in memory: a restart forgets it.
// Safe for concurrent use; the zero value is ready.
type Lockout struct {
	mu    sync.Mutex
	names map[string]*failures
}

type failures struct {
	count int
	last  time.Time
	keep  time.Duration // since then
}

func (f *failures) locked(r *LockoutRules, now time.Time) bool {
	return !r.Disabled() && f.count >= r.After && now.Sub(f.last) < r.For
}

// Locked reports whether the alias is locked out.
func (l *Lockout) Locked(r *LockoutRules, name string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.names[name]
	return f != nil && f.locked(r, now)
}

// Names lists who is locked out of a mount, in order. A name in the Lockout is the mount's, a zero byte, and the alias.
func (l *Lockout) Names(r *LockoutRules, mount string, now time.Time) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, f := range l.names {
		if alias, ok := strings.CutPrefix(name, mount+"\x00"); ok && f.locked(r, now) {
			list = append(list, alias)
		}
	}
	slices.Sort(list)
	return list
}

// Unlock forgets an alias's failures.
func (l *Lockout) Unlock(mount, alias string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.names, mount+"\x00"+alias)
}

// Tell counts how a try ended, and is false when the alias was locked while it
// was under way: its outcome must not be told, so that no more than the allowed
// number of guesses gets an answer however many are made at once.
func (l *Lockout) Tell(r *LockoutRules, name string, now time.Time, good bool) bool {
	if r.Disabled() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.names[name]
	switch {
	case f != nil && f.locked(r, now):
		return false
	case good:
		delete(l.names, name)
		return true
	case f == nil:
		l.makeRoomLocked(now)
		f = &failures{}
		l.names[name] = f
	case f.count >= r.After || now.Sub(f.last) >= r.Reset:
		f.count = 0
	}
	f.count++
	f.last, f.keep = now, max(r.For, r.Reset)
	return true
}

// makeRoomLocked forgets of a sample those whose time is over, or else the one with the fewest failures: whoever
// fills the memory with names of theirs pushes out those, not who is locked out, and pays no more for it than others.
func (l *Lockout) makeRoomLocked(now time.Time) {
	if l.names == nil {
		l.names = map[string]*failures{}
	}
	if len(l.names) < maxNames {
		return
	}
	const sample = 32
	least, seen := "", 0
	for name, f := range l.names { // the order of a map is random enough for a sample
		switch {
		case now.Sub(f.last) >= f.keep:
			delete(l.names, name)
		case least == "" || f.count < l.names[least].count:
			least = name
		}
		if seen++; seen == sample {
			break
		}
	}
	if len(l.names) >= maxNames {
		delete(l.names, least)
	}
}
