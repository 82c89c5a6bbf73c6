package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/secrets/sealing"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/telemetry"
)

// Server is what others are told of a server.
type Server struct {
	ID          string    `json:"id"`
	Hostname    string    `json:"hostname"`
	APIAddr     string    `json:"api_addr"`
	ClusterAddr string    `json:"cluster_addr"` // host:port of its wire
	Version     string    `json:"version"`
	Since       time.Time `json:"since"` // of its term, or when it was last heard of
}

// Config says what a Cluster is made of.
type Config struct {
	Self Server
	// Storage is what the servers share, and Lock says which of them leads.
	Storage storage.Backend
	Lock    storage.Lock
	Raft    *Node // the Lock, where it is one
	Wire    *wire.Wire
	// Encrypted: what goes over the wire is; requests are handed on over such a one alone.
	Encrypted bool
	// Authority: the identity of the wire comes from a record inside the barrier, which the first term makes.
	Authority bool
	// StandbyReads: standbys answer reads of their own copy of the Raft log's state.
	StandbyReads bool
	// Evidence is what other servers are told when the doctor asks this one, JSON; nil tells nothing.
	Evidence func() []byte
	Metrics  *telemetry.Registry // nil: nothing is counted
	Clock    clock.Clock
	Log      *slog.Logger
}

// Cluster is this server among those that share the storage.
type Cluster struct {
	cfg        Config
	meters     meters
	keeper     *keeper.Keeper
	proxy      *httputil.ReverseProxy
	api        API // what answers requests that others hand on
	leadership atomic.Pointer[leading]
	step       chan struct{} // asked to give way; room for one
	anew       chan struct{} // asked to begin anew, with what is stored now; room for one

	mu         sync.Mutex // guards heard
	heard      map[string]Server
	parked     atomic.Int64 // requests that wait for an active server
	handed     handings
	silent     silence
	identified atomic.Bool // the wire has its identity, where it comes from the barrier

	known atomic.Pointer[knownLeader]
}

type leading struct {
	storage.Leadership
	since time.Time
}

// New makes a Cluster; it works once Attach was called.
func New(cfg Config) *Cluster {
	c := &Cluster{cfg: cfg, meters: newMeters(cfg.Metrics), step: make(chan struct{}, 1), anew: make(chan struct{}, 1),
		heard: map[string]Server{}}
	c.proxy = c.newProxy()
	return c
}

// Leads is for keeper.Config: whether this server is the active one, as the lock knows.
func (c *Cluster) Leads(ctx context.Context) error {
	r := c.leadership.Load()
	if r == nil {
		return tables.ErrStandby
	}
	return r.Held(ctx)
}

// Attach gives the keeper that was made with Leads, and what answers the requests that others hand on. Before Run.
func (c *Cluster) Attach(k *keeper.Keeper, api API) {
	c.keeper, c.api = k, api
	if c.StandbyReads() {
		c.cfg.Raft.store.Tell(k.Replicated)
	}
}

// StandbyReads reports whether standbys answer reads themselves: each has a copy of everything with Raft alone.
func (c *Cluster) StandbyReads() bool { return c.cfg.StandbyReads && c.cfg.Raft != nil }

// Fresh says how old what this server has may be, and the index of the newest entry in it.
func (c *Cluster) Fresh() (index uint64, lag time.Duration) { return c.cfg.Raft.Fresh() }

// indexWait is how long a standby waits for an entry that a client has seen the effect of; indexStep how often it
// looks.
const (
	indexWait = 200 * time.Millisecond
	indexStep = time.Millisecond
)

// Await waits a little until this server has an entry; false when it has not.
func (c *Cluster) Await(ctx context.Context, index uint64) bool {
	for deadline := c.cfg.Clock.Now().Add(indexWait); ; c.sleep(ctx, indexStep) {
		if now, _ := c.Fresh(); now >= index {
			return true
		}
		if ctx.Err() != nil || c.cfg.Clock.Now().After(deadline) {
			return false
		}
	}
}

// Raft is the Raft member that the cluster stands on, nil where it is another storage.
func (c *Cluster) Raft() *Node { return c.cfg.Raft }

const (
	leaderKey    = "core/leader"            // who leads, inside the barrier
	authorityKey = "core/cluster/authority" // the authority, inside the barrier

	stepDownPause = 10 * time.Second // after a step-down others go first
	echoEvery     = 2500 * time.Millisecond
	activateTime  = 30 * time.Second
)

// Run stands by and leads in turn, until ctx ends.
func (c *Cluster) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.serve(ctx) })
	wg.Go(func() { standby{c}.echo(ctx) })
	wg.Go(func() { c.watchHanded(ctx) })
	wg.Go(func() { standby{c}.watchSilence(ctx) })
	if c.cfg.Raft != nil {
		wg.Go(func() { standby{c}.yield(ctx) })
	}
	if c.StandbyReads() {
		wg.Go(func() { c.keeper.Follow(ctx) })
	}
	pause := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for ctx.Err() == nil {
		if !c.awaitUnsealed(ctx) {
			return nil
		}
		stepped, err := term{c}.once(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			c.cfg.Log.Warn("secrets: this server cannot become active; trying again", "error", err)
			c.sleep(ctx, pause.Next())
		case stepped:
			c.sleep(ctx, stepDownPause)
		default:
			pause.Reset()
		}
	}
	return nil
}

func (c *Cluster) sleep(ctx context.Context, d time.Duration) {
	t := c.cfg.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// awaitUnsealed waits until this server has its keys; false when ctx ended first.
func (c *Cluster) awaitUnsealed(ctx context.Context) bool {
	for {
		changed := c.keeper.Changes()
		if !c.keeper.Sealed() {
			if err := c.identify(ctx); err == nil {
				return true
			} else if ctx.Err() == nil {
				c.cfg.Log.Warn("secrets: the cluster's authority cannot be read", "error", err)
				c.sleep(ctx, time.Second)
				continue
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// identify takes the identity of the wire from the barrier, where it is kept there. Before the first term there is
// none.
func (c *Cluster) identify(ctx context.Context) error {
	if !c.cfg.Authority || c.identified.Load() {
		return nil
	}
	raw, ok, err := c.keeper.Record(ctx, authorityKey)
	if err != nil || !ok {
		return err
	}
	return c.become(raw)
}

func (c *Cluster) become(raw []byte) error {
	a := &Authority{}
	if err := json.Unmarshal(raw, a); err != nil {
		return errkind.Errorf(errkind.Corrupt, "%s is not what was stored", authorityKey)
	}
	id, err := a.Identity(c.cfg.Self.ID, c.cfg.Clock.Now())
	if err != nil {
		return err
	}
	c.identified.Store(true)
	return c.cfg.Wire.Reload(id)
}

// term is a server's time as the active one.
type term struct{ *Cluster }

// once waits for a turn and leads until it is over.
func (c term) once(ctx context.Context) (stepped bool, err error) {
	// The wait ends when the server is sealed: then it is nobody's turn here.
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	sealed, closed := make(chan struct{}), c.keeper.Closed()
	go func() {
		defer close(sealed)
		c.untilSealed(inner, closed)
		cancel()
	}()
	defer func() { cancel(); <-sealed }()
	r, err := c.cfg.Lock.Acquire(inner)
	if err != nil {
		if inner.Err() != nil {
			return false, nil
		}
		return false, err
	}
	defer func() {
		release, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer done()
		r.Release(release)
	}()
	return c.rule(inner, r)
}

// untilSealed waits until the seal is closed, or was closed again since it had been so closed times: it may be open by
// now, but the term's tables went with it.
func (c term) untilSealed(ctx context.Context, closed uint64) {
	for {
		changed := c.keeper.Changes()
		if c.keeper.Sealed() || c.keeper.Closed() != closed {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// rule activates the keeper and waits for the end of the turn.
func (c term) rule(ctx context.Context, r storage.Leadership) (stepped bool, err error) {
	k := c.keeper
	select {
	case <-c.step: // of a former term
	default:
	}
	select {
	case <-c.anew:
	default:
	}
	self := c.cfg.Self
	self.Since = c.cfg.Clock.Now().UTC()
	c.leadership.Store(&leading{r, self.Since})
	defer c.leadership.Store(nil)
	starting, cancel := context.WithTimeout(ctx, activateTime)
	defer cancel()
	err = k.Activate(starting, r.Epoch())
	if err == nil {
		err = c.announce(starting, &self)
	}
	if err == nil {
		err = c.takeSettings(starting)
	}
	if err != nil {
		c.meters.setupFailed.Observe(c.cfg.Clock.Since(self.Since))
		k.Deactivate()
		if c.stale(err) {
			return false, nil
		}
		select {
		case <-r.Done(): // somebody was faster: no trouble
			return false, nil
		default:
		}
		if ctx.Err() != nil || errors.Is(err, context.Canceled) {
			return false, nil
		}
		return false, err
	}
	c.cfg.Log.Info("secrets: this server is active", "epoch", uint64(r.Epoch()))
	background, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { k.Run(background) })
	select {
	case <-ctx.Done():
	case <-r.Done():
		c.cfg.Log.Warn("secrets: this server is no longer active")
	case <-c.anew:
		c.cfg.Log.Info("secrets: this server reloads everything")
	case <-c.step:
		stepped = true
		defer c.meters.steppedDown(c.cfg.Clock)()
		c.cfg.Log.Info("secrets: this server steps down")
	}
	k.Deactivate()
	c.meters.lost.Observe(c.cfg.Clock.Since(self.Since))
	stop()
	wg.Wait()
	return stepped, nil
}

// announce writes who leads, and makes the authority when there is none.
func (c term) announce(ctx context.Context, self *Server) error {
	k := c.keeper
	if c.cfg.Authority {
		raw, ok, err := k.Record(ctx, authorityKey)
		if err != nil {
			return err
		}
		if !ok {
			a, err := NewAuthority(c.cfg.Clock.Now())
			if err != nil {
				return err
			}
			if raw, err = json.Marshal(a); err != nil {
				return err
			}
			if err := k.SetRecord(ctx, authorityKey, raw); err != nil {
				return err
			}
		}
		if err := c.become(raw); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(self)
	if err != nil {
		return err
	}
	return k.SetRecord(ctx, leaderKey, raw)
}

// StepDown makes the active server give way; the answer to whoever asked is sent before. It does nothing on a standby.
func (c *Cluster) StepDown() {
	select {
	case c.step <- struct{}{}:
	default:
	}
}

// again makes the active server read everything anew: the storage was replaced.
func (c *Cluster) again() {
	select {
	case c.anew <- struct{}{}:
	default:
	}
}

// stale seals this server when its keys are not those of the storage any more.
func (c *Cluster) stale(err error) bool {
	if !errors.Is(err, sealing.ErrStale) {
		return false
	}
	c.cfg.Log.Error("secrets: the storage uses other keys than this server; sealing", "error", err)
	c.keeper.Seal()
	return true
}

// knownLeader is what was found out about the active server, and when.
type knownLeader struct {
	Server
	at time.Time
}

// leaderAge is how long the answer to "who is active" is used again.
const leaderAge = 250 * time.Millisecond

// Leader says which server is active: false when none is known. An unsealed server is needed to know its addresses.
func (c *Cluster) Leader(ctx context.Context) (Server, bool) {
	if r := c.leadership.Load(); r != nil {
		self := c.cfg.Self
		self.Since = r.since
		return self, true
	}
	if known := c.known.Load(); known != nil && c.cfg.Clock.Since(known.at) < leaderAge {
		return known.Server, known.ID != ""
	}
	leader, ok := c.findLeader(ctx)
	c.known.Store(&knownLeader{leader, c.cfg.Clock.Now()})
	return leader, ok
}

func (c *Cluster) findLeader(ctx context.Context) (Server, bool) {
	id, err := c.cfg.Lock.Holder(ctx)
	if err != nil || id == "" || id == c.cfg.Self.ID {
		return Server{}, false
	}
	raw, ok, err := c.keeper.Record(ctx, leaderKey)
	var s Server
	if err != nil || !ok || json.Unmarshal(raw, &s) != nil || s.ID != id {
		return Server{}, false
	}
	return s, true
}

// Self is this server.
func (c *Cluster) Self() Server { return c.cfg.Self }

// Since is when this server's term began; false when it does not lead.
func (c *Cluster) Since() (time.Time, bool) {
	if r := c.leadership.Load(); r != nil && c.keeper.Active() {
		return r.since, true
	}
	return time.Time{}, false
}

// Servers lists the active server and the standbys that it heard of lately; on the active server alone.
func (c *Cluster) Servers() []Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Server
	for id, s := range c.heard {
		if c.cfg.Clock.Since(s.Since) > 4*echoEvery {
			delete(c.heard, id)
			continue
		}
		out = append(out, s)
	}
	return out
}

// maxHeard bounds what is remembered of standbys.
const maxHeard = 128

func (c *Cluster) hear(s Server) {
	s.Since = c.cfg.Clock.Now().UTC()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.heard[s.ID]; known || len(c.heard) < maxHeard {
		c.heard[s.ID] = s
	}
}
