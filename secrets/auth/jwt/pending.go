package jwt

import (
	"crypto/rand"
	"sync"
	"time"
)

// pending is a login that waits for its browser.
type pending struct {
	role, redirect          string
	client, nonce, verifier string
	at                      time.Time
}

const (
	pendingFor  = 5 * time.Minute // what a person has for the provider's pages
	pendingMost = 10_000          // some 5 MB; whoever asks for more than these pushes out the oldest
)

// pendings are the logins of a mount that wait. They are in memory: one that waits while the active server changes
// begins anew. Safe for concurrent use; the zero value is ready.
type pendings struct {
	mu    sync.Mutex
	kept  map[string]*pending // by state
	order []string            // states, the oldest first; those that were taken are among them
}

// add keeps a login and gives its state.
func (b *pendings) add(p *pending) (state string) {
	state = "st_" + rand.Text()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		b.kept = map[string]*pending{}
	}
	for len(b.order) > 0 {
		first := b.kept[b.order[0]]
		if first != nil && len(b.order) < pendingMost && p.at.Sub(first.at) < pendingFor {
			break
		}
		delete(b.kept, b.order[0])
		b.order = b.order[1:]
	}
	b.kept[state], b.order = p, append(b.order, state)
	return state
}

// take gives the login of a state, once; nil where there is none, or its time is over.
func (b *pendings) take(state string, now time.Time) *pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.kept[state]
	delete(b.kept, state)
	if p == nil || now.Sub(p.at) >= pendingFor {
		return nil
	}
	return p
}
