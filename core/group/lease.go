package group

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/clock"
)

// peers follows what the other members answer. From it comes the leader's lease:
// it lasts for nine tenths of the lease time after the sending of the newest
// message that a quorum answered, by the monotonic clock. No member votes for
// another leader within the heartbeat time, which is never shorter than the
// lease time, after it heard from this one: so nobody else leads while it lasts.
type peers struct {
	clock clock.Clock
	base  time.Time
	self  string
	lease time.Duration
	// voters returns the latest configuration's voters; it is cheap.
	voters func() []string

	// until is the end of the lease in nanoseconds since base; LeaseHeld reads it without a lock.
	until atomic.Int64
	// deposed is the highest own term that an answer proved over.
	deposed atomic.Uint64
	// confirmed is the newest instant, as until, at which a quorum still took this server for its leader;
	// MaxInt64 when it is its own quorum. It stays when the lease ends.
	confirmed atomic.Int64
	// number counts the messages.
	number atomic.Uint64
	// forgone is the own term in which there is no lease any more, though this server may still lead.
	forgone atomic.Uint64

	mu   sync.Mutex // guards seen
	seen map[string]*peerSeen
}

// peerSeen is what one peer's answers said.
type peerSeen struct {
	contact int64 // when the last message that it answered was sent
	term    uint64
	echo    uint64 // number of the newest message of term that it answered
	match   uint64 // highest index that it acknowledged in term
	moved   int64  // when match last grew, or had all there was
}

func (p *peers) now() int64 { return int64(p.clock.Since(p.base)) + 1 }

// echo returns the number of the newest message of term that the peer answered, 0 when there is none.
func (p *peers) echo(id string, term uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.seen[id]; s != nil && s.term == term {
		return s.echo
	}
	return 0
}

// unconfirmed is for how long no quorum has confirmed that this server leads.
func (p *peers) unconfirmed() time.Duration {
	switch at := p.confirmed.Load(); at {
	case 0:
		return math.MaxInt64
	case math.MaxInt64:
		return 0
	default:
		return time.Duration(max(p.now()-at, 0))
	}
}

// answered notes an answer to a message with a number, sent at sent.
func (p *peers) answered(id string, sent int64, number uint64, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) {
	if resp.Term > args.Term {
		p.depose(args.Term)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.seen[id]
	if s == nil {
		s = &peerSeen{moved: sent}
		p.seen[id] = s
	}
	if s.term != args.Term {
		s.term, s.echo, s.match, s.moved = args.Term, 0, 0, sent
	}
	s.echo = max(s.echo, number)
	s.contact = max(s.contact, sent)
	if resp.Success && (args.PrevLogEntry > 0 || len(args.Entries) > 0) {
		match := args.PrevLogEntry
		if n := len(args.Entries); n > 0 {
			match = args.Entries[n-1].Index
		}
		if match > s.match {
			s.match, s.moved = match, p.now()
		}
	}
	if args.Term > p.deposed.Load() {
		p.extendLocked(args.Term)
	}
}

// depose ends the lease of a term for good.
func (p *peers) depose(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if term > p.deposed.Load() {
		p.deposed.Store(term)
	}
	p.until.Store(0)
}

// forgo gives the lease of a term up for good: another member is told to stand
// whatever the others heard of this one. Reads of that term go through the quorum.
func (p *peers) forgo(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if term > p.forgone.Load() {
		p.forgone.Store(term)
	}
	p.until.Store(0)
}

// extendLocked recomputes the lease; it needs mu.
func (p *peers) extendLocked(term uint64) {
	voters := p.voters()
	var contacts []int64
	isVoter := false
	for _, id := range voters {
		if id == p.self {
			isVoter = true
		} else if s := p.seen[id]; s != nil && s.term == term {
			contacts = append(contacts, s.contact)
		}
	}
	if !isVoter {
		return
	}
	need := len(voters) / 2 // besides this server itself
	if need == 0 {
		p.until.Store(math.MaxInt64)
		p.confirmed.Store(math.MaxInt64)
		return
	}
	if len(contacts) < need {
		if p.until.CompareAndSwap(math.MaxInt64, 0) { // it was the only voter
			p.confirmed.Store(p.now())
		}
		return
	}
	slices.Sort(contacts)
	p.confirmed.Store(contacts[len(contacts)-need])
	if term <= p.forgone.Load() {
		return
	}
	p.until.Store(contacts[len(contacts)-need] + int64(p.lease)*9/10)
}

// refresh recomputes the lease of the leader of term when its voters may have changed.
func (p *peers) refresh(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if term > p.deposed.Load() {
		p.extendLocked(term)
	}
}

// end forgets the lease: this server does not lead.
func (p *peers) end() { p.until.Store(0) }

// held reports whether the lease lasts.
func (p *peers) held() bool {
	until := p.until.Load()
	return until == math.MaxInt64 || p.now() < until
}

// each calls f with a copy of what is known of every peer.
func (p *peers) each(f func(id string, s peerSeen)) {
	p.mu.Lock()
	copies := make(map[string]peerSeen, len(p.seen))
	for id, s := range p.seen {
		copies[id] = *s
	}
	p.mu.Unlock()
	for id, s := range copies {
		f(id, s)
	}
}

// of returns a copy of what is known of one peer.
func (p *peers) of(id string) (peerSeen, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.seen[id]; s != nil {
		return *s, true
	}
	return peerSeen{}, false
}

// standing returns the peers that for limit answered, each time within alive, and whose log has all the while lacked
// something of what ends at last and not grown; their time begins anew. It is called often: a peer that had
// everything for long does not stand still when it lacks what is on its way.
func (p *peers) standing(last uint64, alive, limit time.Duration) map[string]peerSeen {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	var list map[string]peerSeen
	for id, s := range p.seen {
		switch {
		case s.match >= last || now-s.contact >= int64(alive):
			s.moved = now
		case now-s.moved >= int64(limit):
			if list == nil {
				list = map[string]peerSeen{}
			}
			list[id] = *s
			s.moved = now
		}
	}
	return list
}
