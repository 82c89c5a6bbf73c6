package feed

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// ClientConfig tells a Client where its servers are. The zero value of each field means its default.
type ClientConfig struct {
	// Node names this agent, Token is its own. Node is required.
	Node, Token string
	// Servers returns the addresses of now. It is asked often and does not block. Required.
	Servers func() []string
	// Dial connects to an address on which a Server listens: wire.Dial with ProtoFeed. Required.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Hedge keeps a second connection, to another server, on which the same is followed:
	// what comes first counts, and a connection that hangs costs nothing.
	Hedge bool

	// Silence is how long a connection may show no frame before it is left; 2.5 s. Servers
	// send a heartbeat each second.
	Silence time.Duration
	// LagLimit is how long a server may know less than another one did, or be without a leader,
	// before a better one is looked for; 3 s.
	LagLimit time.Duration
	// AnswerTimeout is how long a server may take to say anything about what was asked; 15 s.
	AnswerTimeout time.Duration
	// DialTimeout bounds making a connection; 2 s, and up to four times that after it was not enough.
	DialTimeout time.Duration
	// Jitter is the most that a client waits before it replaces a connection that ended; 100 ms.
	Jitter time.Duration
	// MaxBackoff is the most that it waits before it tries a server again to which it could not connect; 5 s.
	MaxBackoff time.Duration
	// RetryDenied is about how long after a refusal a subject is asked for again; 30 s.
	RetryDenied time.Duration
	// RebalanceOver is the time over which agents move to a server that is new; 30 s.
	RebalanceOver time.Duration
	// MaxValueBytes bounds one value; 64 MiB.
	MaxValueBytes int

	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

func (c *ClientConfig) complete() error {
	setDefault(&c.Silence, 2500*time.Millisecond)
	setDefault(&c.LagLimit, 3*time.Second)
	setDefault(&c.AnswerTimeout, 15*time.Second)
	setDefault(&c.DialTimeout, 2*time.Second)
	setDefault(&c.Jitter, 100*time.Millisecond)
	setDefault(&c.MaxBackoff, 5*time.Second)
	setDefault(&c.RetryDenied, 30*time.Second)
	setDefault(&c.RebalanceOver, 30*time.Second)
	setDefault(&c.MaxValueBytes, 64<<20)
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var wrong []error
	if c.Node == "" || len(c.Node) > maxNodeBytes {
		wrong = append(wrong, errors.New("the node's name is needed"))
	}
	if c.Servers == nil || c.Dial == nil {
		wrong = append(wrong, errors.New("servers and a way to dial them are needed"))
	}
	for _, d := range []time.Duration{c.Silence, c.LagLimit, c.AnswerTimeout, c.DialTimeout, c.Jitter, c.MaxBackoff,
		c.RetryDenied, c.RebalanceOver} {
		if d < 0 {
			wrong = append(wrong, errors.New("times are not negative"))
			break
		}
	}
	return errkind.E(errkind.Invalid, "feed: client", errors.Join(wrong...))
}

// Client follows subjects on servers, over one connection, or two when hedged. It is a Follower.
//
// What was heard last stays true for its followers while no server can be reached: Lag
// tells for how long. It runs two goroutines, three when hedged; one more exists
// while something is sent.
type Client struct {
	cfg      ClientConfig
	meters   clientMeters
	wake     chan struct{}  // Run looks again; holds one
	sessions sync.WaitGroup // goroutines of connections

	mu      sync.Mutex // guards all below; never held while calling out, dialling or writing
	ctx     context.Context
	subs    map[uint32]*sub
	lastID  uint32
	conns   []*clientConn
	addrs   map[string]*address
	history clientHistory
	lag     lagMarks
	seek    seeking
	divided bool // a server may think that a follower has something else than it has: see uniteLocked
}

// clientHistory is the history that counts now: its generation, once it is known, and those that it replaced (see
// turnLocked).
type clientHistory struct {
	// generation is the history that counts now, past are those it replaced: see turnLocked.
	generation uint64
	past       []uint64
	told       bool // generation is known
}

// lagMarks is how far behind the servers the client is.
type lagMarks struct {
	// known is the newest index that any server spoke of; mark is one that all connections
	// must have reached within LagLimit of markAt.
	known, mark uint64
	markAt      time.Time
	given       uint64    // the newest index of a value that was given to a follower
	behind      time.Time // since when a subject waits for a server that has that; zero: none does
	fresh       time.Time // when all that is followed was last known to be the newest
}

// seeking says where connections go next, and when silence counts.
type seeking struct {
	servers []string // the addresses that Servers gave last
	move    struct {
		to string
		at time.Time
	}
	retryAt    time.Time // of the first subject to be asked for again; zero: none
	graceUntil time.Time // silence is not judged before
	graces     int       // how often in a row that was put off
	patience   uint      // how often Silence is doubled now
}

// address is what is remembered of a server.
type address struct {
	failures   uint
	notBefore  time.Time // it could not be reached: not tried again before
	avoidUntil time.Time // it hung or lagged: others are preferred
}

// sub is one Follow.
type sub struct {
	c              *Client
	id             uint32
	subject, token string
	set            func(Value)
	failed         func(error)

	// Guarded by c.mu: what was accepted last, index 0 for nothing.
	generation, index uint64
	failing           error
	retryAt           time.Time
	asked, answered   uint8 // on which connections, by slot
	agreed            uint8 // those whose server thinks that just this is known
	out               delivery
}

// delivery is what waits to be called out, by one goroutine at a time.
type delivery struct {
	// What waits to be called out, by one goroutine at a time.
	value           Value
	err             error
	valued, stopped bool
	delivering      bool
}

// NewClient returns a Client that connects to nothing before Run.
func NewClient(cfg ClientConfig) (*Client, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return &Client{
		cfg: cfg, meters: newClientMeters(cfg.Metrics), wake: make(chan struct{}, 1), lag: lagMarks{fresh: cfg.Clock.Now()},
		subs: map[uint32]*sub{}, addrs: map[string]*address{},
	}, nil
}

// Run keeps the connections until ctx ends, and returns after the last of its goroutines.
func (c *Client) Run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	defer c.sessions.Wait()
	defer c.closeAll()
	timer := c.cfg.Clock.NewTimer(0)
	defer timer.Stop()
	var due time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-timer.C:
		}
		servers := c.cfg.Servers()
		c.mu.Lock()
		now := c.cfg.Clock.Now()
		c.graceLocked(now, due)
		due = c.planLocked(now, servers)
		c.mu.Unlock()
		wait := max(time.Millisecond, due.Sub(now))
		due = now.Add(wait)
		timer.Reset(wait)
	}
}

// maxGraces bounds how often in a row silence is not judged since this process came late.
const maxGraces = 3

// graceLocked has silence not judged for a moment when this process stood still: what servers sent is yet to be read.
// Where it always comes late, a connection that hangs is left nevertheless.
func (c *Client) graceLocked(now, due time.Time) {
	switch late := !due.IsZero() && now.Sub(due) > c.cfg.Silence/4; {
	case late && c.seek.graces < maxGraces:
		c.seek.graces++
		c.seek.graceUntil = now.Add(c.cfg.Silence / 2)
	case !now.Before(c.seek.graceUntil):
		c.seek.graces = 0
	}
}

func (c *Client) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.conns) > 0 {
		c.conns[0].endLocked("")
	}
}

func (c *Client) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Follow implements Follower.
func (c *Client) Follow(subject, token string, set func(Value), failed func(error)) (stop func()) {
	if subject == "" || len(subject) > maxSubjectBytes || len(token) > maxTokenBytes {
		failed(errSubject)
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	s := &sub{c: c, id: c.lastID, subject: subject, token: token, set: set, failed: failed}
	c.subs[s.id] = s
	for _, cc := range c.conns {
		cc.askLocked(s)
	}
	return s.stop
}

func (s *sub) stop() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.out.stopped {
		return
	}
	s.out.stopped = true
	delete(c.subs, s.id)
	for _, cc := range c.conns {
		cc.forgetLocked(s)
	}
}

// acceptLocked takes a value if it is newer than what is known, and says whether there is something to deliver.
func (s *sub) acceptLocked(v Value) bool {
	c := s.c
	if v.Generation != c.history.generation {
		return false
	}
	if s.index > 0 && s.generation == v.Generation && (v.Index < s.index || (v.Index == s.index && s.failing == nil)) {
		c.meters.outdated.Add(1)
		return false
	}
	s.generation, s.index, s.failing, s.retryAt = v.Generation, v.Index, nil, time.Time{}
	s.out.value, s.out.valued, s.out.err = v, true, nil
	return true
}

// deliver calls out what waits, unless another goroutine is at it, which then goes on with this.
func (s *sub) deliver() {
	c := s.c
	c.mu.Lock()
	if s.out.delivering {
		c.mu.Unlock()
		return
	}
	s.out.delivering = true
	for !s.out.stopped && (s.out.valued || s.out.err != nil) {
		v, err, valued := s.out.value, s.out.err, s.out.valued
		s.out.value, s.out.valued = Value{}, false
		if !valued {
			s.out.err = nil
		}
		c.mu.Unlock()
		if valued {
			s.set(v)
		} else {
			s.failed(err)
		}
		c.mu.Lock()
	}
	s.out.delivering = false
	c.mu.Unlock()
}

// maxPast bounds the histories that are remembered.
const maxPast = 8

// turnLocked takes up another history when nobody who hears a leader speaks of the one that
// counts any more: at once one that was not heard of before, and after LagLimit one that was
// left. So neither a server that reads its log again after a start, nor one that was cut off,
// takes a hedged client back. Generation 0 is one that was left: of a server that knows none yet.
func (c *Client) turnLocked(now time.Time) {
	var candidate *clientConn
	unheard := false
	for _, cc := range c.conns {
		if !cc.welcomed || !cc.past.spoke || cc.beat.lag >= c.cfg.LagLimit {
			continue
		}
		if !c.history.told {
			c.history.told, c.history.generation = true, cc.past.generation
			c.askIgnoredLocked()
		}
		switch {
		case cc.past.generation == c.history.generation:
			return
		case cc.past.generation != 0 && !slices.Contains(c.history.past, cc.past.generation):
			candidate, unheard = cc, true
		case !unheard && now.Sub(cc.began) >= c.cfg.LagLimit:
			candidate = cc
		}
	}
	if candidate == nil || (!unheard && c.otherLocked(now)) {
		return
	}
	c.adoptLocked(candidate.past.generation)
}

func (c *Client) adoptLocked(generation uint64) {
	c.cfg.Log.Info("the servers have a different state than before; loading it", "node", c.cfg.Node, "generation",
		generation)
	c.history.past = slices.DeleteFunc(c.history.past, func(g uint64) bool { return g == generation })
	c.history.past = append(c.history.past, c.history.generation)
	if len(c.history.past) > maxPast {
		c.history.past = c.history.past[1:]
	}
	c.history.generation, c.lag.known, c.lag.mark, c.lag.given = generation, 0, 0, 0
	c.askIgnoredLocked()
}

// askIgnoredLocked asks anew for what came before its history counted.
func (c *Client) askIgnoredLocked() {
	for _, cc := range c.conns {
		if cc.past.ignored && cc.past.generation == c.history.generation {
			cc.askAgainLocked()
		}
	}
}

// Lag is for how long what followers know may have been out of date: zero or a little
// above it in a healthy cluster, growing while no server can be reached or while those that can lag.
func (c *Client) Lag() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, c.cfg.Clock.Since(c.lag.fresh))
}

// Stale reports whether Lag is beyond what heartbeats allow for.
func (c *Client) Stale() bool { return c.Lag() > c.cfg.Silence }

// Newest is the index up to which everything that is followed is known; 0 before that is so.
func (c *Client) Newest() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var newest uint64
	for _, cc := range c.conns {
		if c.history.told && cc.completeLocked() && cc.past.generation == c.history.generation {
			newest = max(newest, cc.beat.sent)
		}
	}
	return newest
}

// Connected returns the addresses of the servers that values come from.
func (c *Client) Connected() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for _, cc := range c.conns {
		if cc.welcomed {
			list = append(list, cc.dialled.addr)
		}
	}
	return list
}

func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}
