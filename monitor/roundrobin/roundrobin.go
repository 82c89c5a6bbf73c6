// Package roundrobin deals out checks that go round: of the agents of a subscription one gets each tick, on whichever
// server it is connected.
//
// The leader of the plane's group deals. Each server tells it who joined and who left the rings that checks want,
// twice a second or when something changed; a server that was not heard for two seconds has no agents. Whose turn it
// is follows from the tick's number, so nobody has to remember it.
//
// What always holds:
//   - A tick of a check goes to one agent of each of its subscriptions at most, whoever believes to lead: before it is
//     handed out a majority of the servers has noted it, and a leader begins by asking a majority what was noted, after
//     which its predecessors' notes are refused (book). No clock is compared for that.
//   - A tick that nobody could be given (no leader, no majority, an empty ring) is kept for half its period, at most
//     half a minute, by every server, and dealt by the next leader unless it was noted.
//   - An agent that turns out to be gone is passed over for the next of the ring. Where a server does not say whether
//     it sent the request, the tick counts as given.
//
// What was noted is in memory. A majority of servers that were all started anew since a tick may have noted it: it is
// not dealt again.
//
// Run has a goroutine that tells, one that deals, and for each batch one that hands out. All methods may be called
// from any goroutine.
package roundrobin

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/monitor/hub"
)

// Ring is what a round goes through: the agents of a subscription.
type Ring struct{ Namespace, Subscription string }

// Tick is a check that is due.
type Tick struct {
	Namespace, Check string
	Due              int64         // Unix nanoseconds; with the check's name it names the tick, on all servers alike
	Turn             uint64        // its number
	Period           time.Duration // to the next one
	Subscriptions    []string
	Proxies          []string      // the entities that it is run for; none is the agent itself
	Over             time.Duration // over what time they are spread
}

// Hand is what one server is to send of a tick.
type Hand struct {
	Namespace, Check string
	Due              int64
	Over             time.Duration
	Total            int // proxies of the tick on all servers; 0 is a tick without any
	Shares           []Share
}

// Share is what one agent gets.
type Share struct {
	Subscription string
	Agent        string
	Proxies      []Proxy
}

// Proxy is an entity that an agent is to run a check for, and its place among the tick's.
type Proxy struct {
	Place int
	Name  string
}

// Agents lists who gets something.
func (h *Hand) Agents() (out []string) {
	for _, s := range h.Shares {
		out = append(out, s.Agent)
	}
	return out
}

// Server is a server of the plane; Voter is one that counts for a majority.
type Server struct {
	ID, Address string
	Voter       bool
}

// Config of RoundRobin.
type Config struct {
	Self string
	// Servers lists all servers, this one among them; nothing while that is not known.
	Servers func() []Server
	// Leads says whether this server leads the plane's group, Leader who does ("" is nobody), and Changes is closed when
	// that changes.
	Leads   func() bool
	Leader  func() (id, addr string)
	Changes func() <-chan struct{}
	Call    func(ctx context.Context, addr, method string, req []byte) ([]byte, error)
	Hub     *hub.Hub
	// Deliver sends what agents of this server were given, and names those to which it certainly did not send.
	Deliver func(Hand) (refused []string)
	Clock   clock.Clock // nil is the machine's
	Log     *slog.Logger
}

// Stats is what a server counts of the ticks that it dealt.
type Stats struct {
	Dealt  uint64 // requests that were handed out
	Passed uint64 // agents that were passed over, since they had gone
	Unsure uint64 // requests of which a server did not say whether it sent them
	Lost   uint64 // ticks that could be given to nobody in time
}

// RoundRobin is one server's part.
type RoundRobin struct {
	cfg   Config
	start time.Time
	roll  roll
	wake  chan struct{} // the dealer's
	hands sync.WaitGroup
	slots chan struct{}

	mu       sync.Mutex // guards what follows; never held while calling
	book     book
	table    table
	waiting  map[name]*waiting
	greatest uint64 // ballot that others told of

	dealt, passed, unsure, lost atomic.Uint64
}

// name names a check.
type name struct{ namespace, check string }

// waiting is a tick that is to be dealt.
type waiting struct {
	Tick
	since time.Duration
	noted bool // by some, and then it was not dealt
}

const (
	// keep is how long at most a tick waits to be dealt.
	keep = 30 * time.Second
	// maxHands bounds the batches that are being handed out at once.
	maxHands = 64
)

// New makes a server's part; it watches the hub from now on.
func New(cfg Config) *RoundRobin {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	r := &RoundRobin{
		cfg: cfg, start: cfg.Clock.Now(), wake: make(chan struct{}, 1), slots: make(chan struct{}, maxHands),
		book: book{noted: map[name]note{}}, table: newTable(), waiting: map[name]*waiting{},
	}
	r.roll.init(cfg.Clock, uint64(r.start.UnixNano()))
	cfg.Hub.Watch(r.roll.changed)
	return r
}

// Stats returns what was counted since New.
func (r *RoundRobin) Stats() Stats {
	return Stats{Dealt: r.dealt.Load(), Passed: r.passed.Load(), Unsure: r.unsure.Load(), Lost: r.lost.Load()}
}

// SetRings says which rings checks want.
func (r *RoundRobin) SetRings(rings map[Ring]struct{}) { r.roll.set(rings, r.cfg.Hub) }

// Deal has a tick dealt, in a while, by the leader. Every server is to be told of every tick. A later tick of a check
// replaces one that waits.
func (r *RoundRobin) Deal(t Tick) {
	leads := r.cfg.Leads()
	key := name{t.Namespace, t.Check}
	r.mu.Lock()
	if r.waiting[key] != nil && leads {
		r.lost.Add(1)
	}
	r.waiting[key] = &waiting{Tick: t, since: r.now()}
	r.mu.Unlock()
	notify(r.wake)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// now is the time that has really passed.
func (r *RoundRobin) now() time.Duration { return r.cfg.Clock.Since(r.start) }

// Run takes part until ctx ends.
func (r *RoundRobin) Run(ctx context.Context) error {
	var g life.Group
	g.Add("tell", r.telling)
	g.Add("deal", r.dealing)
	return g.Run(ctx)
}

// due takes the ticks that wait, and drops those that waited too long; few of them are dealt by servers that do not
// lead.
func (r *RoundRobin) due(take bool) (out []*waiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for key, w := range r.waiting {
		switch {
		case now-w.since > min(keep, max(w.Period/2, time.Second)):
			delete(r.waiting, key)
			if take {
				r.lost.Add(1)
			}
		case take:
			delete(r.waiting, key)
			out = append(out, w)
		}
	}
	return out
}

// giveBack has ticks wait on, unless later ones do.
func (r *RoundRobin) giveBack(list []*waiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range list {
		key := name{w.Namespace, w.Check}
		if r.waiting[key] == nil {
			r.waiting[key] = w
		}
	}
}

// Methods are the RPCs by which the servers talk.
func (r *RoundRobin) Methods() map[string]func(ctx context.Context, req []byte) ([]byte, error) {
	return map[string]func(context.Context, []byte) ([]byte, error){
		methodTell: r.serveTell, methodBegin: r.serveBegin, methodNote: r.serveNote, methodHand: r.serveHand,
	}
}
