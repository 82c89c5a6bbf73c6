package group

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

// Membership lets gossip suggest changes of a group's members, and lets the servers themselves decide them. Anybody who
// gossips can claim any name, id and address. So before the leader adds, moves or removes a member, it asks at the
// address, over the group's own protocol, who is there:
//
//   - A server joins, or moves to another address, when it states its own id there.
//   - A voter that still answers under its id at its address is neither moved nor removed, whatever gossip says.
//   - A server that leaves says so itself, and is then removed. One that gossip calls gone and that does not answer is
//     autopilot's business, which removes no voter without a replacement.
//   - Two servers with one address: the one that answers there is the member, and the other one is not.
//
// Each decision rests on answers of the present term, so what gossip said before decides nothing. At most one change
// is made for an address within the stabilisation time, so that no quarrel fills the log. Use it from one goroutine.
type Membership struct {
	g *Group
	// ask is Group.Ask; tests replace it.
	ask func(ctx context.Context, addr string) (Statement, error)
	// pause returns the stabilisation time of now.
	pause func() time.Duration

	claims  map[Suggestion]*claim
	changed map[string]time.Time // when an address last changed hands
	said    map[string]time.Time // when the log last told of an address
}

// Suggestion is what gossip says of a server.
type Suggestion struct {
	ID, Address string
	// Gone: the server left, as gossip has it. Else it is alive.
	Gone bool
}

// claim is what became of a suggestion so far.
type claim struct {
	retry backoff.Backoff
	next  time.Time
}

// The bounds of one look.
const (
	asksAtOnce  = 16
	maxSaid     = 1024
	firstRetry  = 200 * time.Millisecond
	quietRepeat = time.Minute // between two lines of the log about one address
)

// NewMembership makes a Membership; pause returns the stabilisation time.
func NewMembership(g *Group, pause func() time.Duration) *Membership {
	return &Membership{g: g, ask: g.Ask, pause: pause, claims: map[Suggestion]*claim{}, changed: map[string]time.Time{},
		said: map[string]time.Time{}}
}

// Reconcile makes those of the suggested changes that the servers confirm. It returns after which time to look
// again though gossip brings nothing new, 0 when that is not needed. It does nothing on a follower.
func (m *Membership) Reconcile(ctx context.Context, list []Suggestion) time.Duration {
	now := m.g.cfg.Clock.Now()
	m.forget(list, now)
	if !m.g.LeaseHeld() {
		return 0
	}
	term := m.g.Term()
	servers, _, err := m.g.Configuration()
	if err != nil {
		return 0
	}
	due, wait := m.due(list, servers, now)
	answers := m.askAll(ctx, due, servers)
	for _, s := range due {
		if !m.g.LeaseHeld() || m.g.Term() != term || ctx.Err() != nil {
			return firstRetry
		}
		err := m.decide(ctx, s, list, answers)
		if err != nil {
			m.warn(s, err)
		}
		c := m.claims[s]
		c.next = m.g.cfg.Clock.Now().Add(min(max(c.retry.Next(), firstRetry), max(m.pause(), firstRetry)))
		wait = shorter(wait, c.next.Sub(m.g.cfg.Clock.Now()))
	}
	return wait
}

func shorter(a, b time.Duration) time.Duration {
	if a <= 0 {
		return max(b, time.Millisecond)
	}
	return min(a, max(b, time.Millisecond))
}

// forget drops what is not suggested any more.
func (m *Membership) forget(list []Suggestion, now time.Time) {
	suggested := make(map[Suggestion]bool, len(list))
	for _, s := range list {
		suggested[s] = true
	}
	for s := range m.claims {
		if !suggested[s] {
			delete(m.claims, s)
		}
	}
	for _, times := range []map[string]time.Time{m.changed, m.said} {
		for addr, at := range times {
			if now.Sub(at) > max(m.pause(), quietRepeat) {
				delete(times, addr)
			}
		}
	}
}

// due picks the suggestions that would change something and whose time has come: those about members first, then
// others, in random order, so that many false ones do not keep an honest one out for ever.
func (m *Membership) due(list []Suggestion, servers []Server, now time.Time) (due []Suggestion, wait time.Duration) {
	rank := map[Suggestion]int{}
	for _, s := range list {
		at := slices.IndexFunc(servers, func(v Server) bool { return v.ID == s.ID })
		if s.ID == "" || s.ID == m.g.cfg.LocalID || (at < 0) == s.Gone && (at < 0 || servers[at].Address == s.Address) {
			delete(m.claims, s)
			continue
		}
		c := m.claims[s]
		if c == nil {
			c = &claim{retry: backoff.Backoff{Min: 2 * firstRetry, Max: m.pause()}}
			m.claims[s] = c
		}
		if rest := c.next.Sub(now); rest > 0 {
			wait = shorter(wait, rest)
			continue
		}
		rank[s] = rand.IntN(1 << 20)
		if at < 0 {
			rank[s] += 1<<20 + c.retry.Tries()<<20
		}
		due = append(due, s)
	}
	slices.SortFunc(due, func(a, b Suggestion) int { return rank[a] - rank[b] })
	if len(due) > asksAtOnce {
		due, wait = due[:asksAtOnce], time.Millisecond
	}
	return due, wait
}

// answers are statements by address; an address that did not answer has none.
type answers map[string]answered

type answered struct {
	Statement
	err error
}

// at reports whether the server with the id answers at the address.
func (a answers) at(addr, id string) bool { return a[addr].err == nil && a[addr].ID == id }

// askAll asks at every address that the suggestions are about, all at once.
func (m *Membership) askAll(ctx context.Context, due []Suggestion, servers []Server) answers {
	got, mu, wg := answers{}, sync.Mutex{}, sync.WaitGroup{}
	ask := func(addr string) {
		mu.Lock()
		defer mu.Unlock()
		if _, known := got[addr]; known {
			return
		}
		got[addr] = answered{}
		wg.Go(func() {
			s, err := m.ask(ctx, addr)
			mu.Lock()
			defer mu.Unlock()
			got[addr] = answered{s, err}
		})
	}
	for _, s := range due {
		if !s.Gone {
			ask(s.Address)
		}
		for _, v := range servers {
			if v.ID == s.ID {
				ask(v.Address)
			}
		}
	}
	wg.Wait()
	return got
}

// decide makes the change that s suggests, if the answers allow it.
func (m *Membership) decide(ctx context.Context, s Suggestion, list []Suggestion, got answers) error {
	servers, _, err := m.g.Configuration() // another suggestion may have changed it
	if err != nil {
		return err
	}
	at := slices.IndexFunc(servers, func(v Server) bool { return v.ID == s.ID })
	switch {
	case s.Gone && at >= 0:
		return m.leave(ctx, servers[at], got)
	case s.Gone || at >= 0 && servers[at].Address == s.Address:
		return nil
	}
	here := got[s.Address]
	switch {
	case here.err != nil:
		return here.err
	case here.ID != s.ID:
		return errkind.Errorf(errkind.Denied, "gossip says that the server %s is at %s; %s answers there", s.ID,
			s.Address, here.ID)
	case here.Leaving || m.g.cfg.Clock.Since(m.changed[s.Address]) < m.pause():
		return nil
	}
	if at >= 0 {
		return m.move(ctx, servers, servers[at], s.Address, got)
	}
	former := slices.IndexFunc(servers, func(v Server) bool { return v.Address == s.Address })
	if former >= 0 {
		if servers[former].ID == m.g.cfg.LocalID || m.elsewhere(ctx, servers[former].ID, s.Address, list) {
			return errkind.Errorf(errkind.Conflict, "the servers %s and %s have the same address %s: give each its own", s.ID,
				servers[former].ID, s.Address)
		}
		m.g.cfg.Log.Warn("another server answers at a member's address; removing the old member", "server",
			servers[former].ID,
			"address", s.Address, "now", s.ID)
		m.changed[s.Address] = m.g.cfg.Clock.Now()
		if err := m.g.RemoveServer(ctx, servers[former].ID); err != nil {
			return err
		}
	}
	m.g.cfg.Log.Info("a server joins the group", "server", s.ID, "address", s.Address)
	m.changed[s.Address] = m.g.cfg.Clock.Now()
	return m.g.AddNonvoter(ctx, s.ID, s.Address)
}

// elsewhere reports whether a server answers at another address that gossip names for it.
func (m *Membership) elsewhere(ctx context.Context, id, addr string, list []Suggestion) bool {
	for _, s := range list {
		if s.ID == id && !s.Gone && s.Address != addr {
			if said, err := m.ask(ctx, s.Address); err == nil && said.ID == id {
				return true
			}
		}
	}
	return false
}

// move gives a member its new address.
func (m *Membership) move(ctx context.Context, servers []Server, v Server, addr string, got answers) error {
	if got.at(v.Address, v.ID) {
		return errkind.Errorf(errkind.Conflict, "gossip says that the server %s is at %s; it answers at %s, where it was",
			v.ID, addr, v.Address)
	}
	if taken := slices.IndexFunc(servers, func(o Server) bool { return o.Address == addr }); taken >= 0 {
		return errkind.Errorf(errkind.Conflict,
			"the server %s has the address of %s: remove the one that is gone (corbel operator raft remove-peer)", v.ID,
			servers[taken].ID)
	}
	m.g.cfg.Log.Info("a server has a new address", "server", v.ID, "address", addr, "before", v.Address)
	m.changed[addr] = m.g.cfg.Clock.Now()
	if v.Voter {
		return m.g.AddVoter(ctx, v.ID, addr)
	}
	return m.g.AddNonvoter(ctx, v.ID, addr)
}

// leave removes a member that says itself that it leaves, and one without a vote that does not answer.
func (m *Membership) leave(ctx context.Context, v Server, got answers) error {
	here := got.at(v.Address, v.ID)
	switch {
	case here && got[v.Address].Leaving:
	case here || v.Voter:
		return nil // it is there; or it is gone, which autopilot or an operator deals with
	case m.g.cfg.Clock.Since(m.changed[v.Address]) < m.pause():
		return nil
	}
	m.g.cfg.Log.Info("a server left the group", "server", v.ID, "address", v.Address)
	m.changed[v.Address] = m.g.cfg.Clock.Now()
	return m.g.RemoveServer(ctx, v.ID)
}

// warn tells of a suggestion that was not followed, now and then.
func (m *Membership) warn(s Suggestion, err error) {
	now, key := m.g.cfg.Clock.Now(), s.Address+" "+s.ID
	if strings.TrimSpace(key) == "" || len(m.said) >= maxSaid || now.Sub(m.said[key]) < quietRepeat {
		return
	}
	m.said[key] = now
	m.g.cfg.Log.Warn("rejected a membership change that gossip suggested", "server", s.ID, "address", s.Address, "gone",
		s.Gone, "reason", err)
}
