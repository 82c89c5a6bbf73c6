package oidc

import (
	"container/list"
	"crypto/rand"
	"net/netip"
	"sync"
	"time"
)

// Pending is a login that waits for its browser.
type Pending struct {
	For      string            // the role or the method that it is of
	Redirect string            // where the browser comes back to
	Client   string            // the nonce of who began it, which ends it too
	Meta     map[string]string // what the caller wants to have again at its end
	At       time.Time
	From     netip.Addr // who began it

	nonce, verifier string
}

const (
	pendingFor  = 5 * time.Minute // what a person has for the provider's pages
	pendingMost = 10_000          // some 5 MB; beyond that whoever has begun the most loses the oldest
)

// Pendings are the logins that wait. They are in memory: one that waits while the active server changes
// begins anew. Anybody may begin one, so that room is shared by addresses: who begins many pushes out their own.
// Safe for concurrent use; the zero value is ready.
type Pendings struct {
	mu     sync.Mutex
	kept   map[string]*list.Element // by state
	order  list.List                // of *begun, the oldest first
	counts map[netip.Prefix]int
}

type begun struct {
	*Pending
	state string
	who   netip.Prefix
}

// origin is what counts as one who asks: an address, and of IPv6 the network that one subscriber has.
func origin(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // of no address it is the zero one
	return p
}

// Add keeps a login and gives its state.
func (b *Pendings) Add(p *Pending) (state string) {
	one := &begun{p, "st_" + rand.Text(), origin(p.From)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		b.kept, b.counts = map[string]*list.Element{}, map[netip.Prefix]int{}
	}
	for first := b.order.Front(); first != nil &&
		p.At.Sub(first.Value.(*begun).At) >= pendingFor; first = b.order.Front() {
		b.drop(first)
	}
	b.kept[one.state] = b.order.PushBack(one)
	b.counts[one.who]++
	if b.order.Len() > pendingMost {
		b.drop(b.oldest(b.busiest(one.who)))
	}
	return one.state
}

// busiest is who has begun the most; of several the one who just did.
func (b *Pendings) busiest(who netip.Prefix) netip.Prefix {
	most := b.counts[who]
	for other, n := range b.counts {
		if n > most {
			who, most = other, n
		}
	}
	return who
}

func (b *Pendings) oldest(who netip.Prefix) *list.Element {
	for e := b.order.Front(); e != nil; e = e.Next() {
		if e.Value.(*begun).who == who {
			return e
		}
	}
	return b.order.Front()
}

func (b *Pendings) drop(e *list.Element) {
	one := b.order.Remove(e).(*begun)
	delete(b.kept, one.state)
	if b.counts[one.who]--; b.counts[one.who] == 0 {
		delete(b.counts, one.who)
	}
}

// Take gives the login of a state, once; nil where there is none, or its time is over.
func (b *Pendings) Take(state string, now time.Time) *Pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.kept[state]
	if e == nil {
		return nil
	}
	p := e.Value.(*begun).Pending
	b.drop(e)
	if now.Sub(p.At) >= pendingFor {
		return nil
	}
	return p
}

// Look gives the login of a state as it waits, and leaves it; nil where there is none, or its time is over.
func (b *Pendings) Look(state string, now time.Time) *Pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.kept[state]
	if e == nil {
		return nil
	}
	if p := e.Value.(*begun).Pending; now.Sub(p.At) < pendingFor {
		return p
	}
	return nil
}
