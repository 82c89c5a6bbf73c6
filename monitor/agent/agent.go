// Package agent is a host's side of the monitoring plane: it keeps a session to one of the backends, runs the checks
// that it is asked to run, takes events of programs on the host, and sends what comes of it.
//
// Invariants:
//   - Keepalives go to the session's socket directly and never wait behind events.
//   - An event that programs handed in is on disk before they are told so (Outbox, with a folder to spool in); results
//     of checks go to memory while there is a session and to disk while there is none. Spooled events leave only after
//     the backend proved that it read them (a pong to a later ping), so what a crash of either side costs is told
//     twice, not lost. Both spools are bounded in bytes: the oldest events go first, counted and logged.
//   - A check runs once at a time for each entity, and a request that is not newer than the one before is passed over.
//     Commands are killed with their whole group; how many run, how much they may write and how long requests wait is
//     bounded.
//   - Run returns after its last goroutine ended and the last command was killed. Nothing here is global.
//
// Formats and defaults are the contract's (sections 1, 3 and 9). What is pure stands apart: points, tally,
// monitor/substitute.
package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/asset"
	"corbel.dev/corbel/telemetry"
)

// Keepalive says how an agent tells that it lives. Zero values are the defaults that are named.
type Keepalive struct {
	Interval uint32 // seconds (20)
	Warning  uint32 // seconds after which the agent is missed (120)
	Critical uint32 // seconds after which that is critical; 0 is never
	Handlers []string
	// Labels and Annotations are those of keepalive events.
	Labels, Annotations map[string]string
	Pipelines           []*monitor.Ref
}

// Statsd says how statsd metrics are taken.
type Statsd struct {
	Address  string        // UDP; "" is off
	Flush    time.Duration // (10 s)
	Handlers []string
}

// Timing of sessions. Zero values are the defaults that are named.
type Timing struct {
	Handshake         time.Duration // (15 s)
	HeartbeatInterval time.Duration // between pings (30 s)
	HeartbeatTimeout  time.Duration // without anything from the backend (45 s)
	RetryMin          time.Duration // (1 s)
	RetryMax          time.Duration // (120 s)
	RetryMultiplier   float64       // (2)
	// MaxSession is after which time at most the agent connects anew; 0 is never.
	MaxSession time.Duration
	// Settle is how long a new session waits for the entity's configuration (10 s).
	Settle time.Duration
}

// Config of an agent.
type Config struct {
	Entity
	// Backends are ws and wss URLs; asked before each round of connecting.
	Backends       func() []string
	User, Password string // (agent, and its usual password); not sent with a client certificate
	TLS            *tls.Config
	// ByCertificate says that TLS holds a client certificate, which tells who the agent is.
	ByCertificate bool

	Keepalive Keepalive
	Timing    Timing

	FS         vfs.FS
	CacheDir   string // where to spool; "" keeps events in memory alone
	SpoolBytes int64  // of each of two spools (64 MiB)
	// EventsRate and EventsBurst bound how fast events of programs are sent, by the second (10, 10); a negative rate is
	// no bound.
	EventsRate  float64
	EventsBurst int

	API     string // address of the HTTP API; "" is off
	Sockets string // address of the TCP and UDP sockets; "" is off
	Statsd  Statsd
	// MetricsHandler answers the API's /metrics; nil is 404.
	MetricsHandler http.Handler

	Allow         []Allowed // commands that may run; empty is all
	DisableAssets bool
	Assets        *asset.Fetcher // nil is as if they were disabled
	MaxRunning    int            // commands at once (256)

	Version string
	Log     *slog.Logger
	Metrics *telemetry.Registry
	Now     func() time.Time // (time.Now)
}

// Entity is how an agent shows its host to the backend.
type Entity struct {
	Name                string // of the entity
	Namespace           string // (default)
	Subscriptions       []string
	Labels, Annotations map[string]string
	Redact              []string // (the contract's list)
	Deregister          bool
	Deregistration      string // handler
	Managed             bool   // the agent decides on its entity, not the backend
	StripNetworks       bool
	DetectCloud         bool
}

func orDefault[T comparable](value *T, fallback T) {
	var zero T
	if *value == zero {
		*value = fallback
	}
}

// complete fills in the defaults and names all that is wrong.
func (c *Config) complete() error {
	orDefault(&c.Namespace, "default")
	if !c.ByCertificate {
		orDefault(&c.User, "agent")
		orDefault(&c.Password, DefaultPassword)
	}
	k, t := &c.Keepalive, &c.Timing
	orDefault(&k.Interval, 20)
	orDefault(&k.Warning, 120)
	orDefault(&t.Handshake, 15*time.Second)
	orDefault(&t.HeartbeatInterval, 30*time.Second)
	orDefault(&t.HeartbeatTimeout, 45*time.Second)
	orDefault(&t.RetryMin, time.Second)
	orDefault(&t.RetryMax, 120*time.Second)
	orDefault(&t.RetryMultiplier, 2)
	orDefault(&t.Settle, 10*time.Second)
	orDefault(&c.SpoolBytes, 64<<20)
	orDefault(&c.EventsRate, 10)
	orDefault(&c.EventsBurst, 10)
	orDefault(&c.Statsd.Flush, 10*time.Second)
	orDefault(&c.MaxRunning, 256)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.FS == nil {
		c.FS = vfs.OS{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c.wrong()
}

// DefaultPassword is what the contract's agents log in with when nobody said otherwise.
const DefaultPassword = "P@ssw0rd!"

// minTimeout is the shortest time, in seconds, after which an agent may be missed.
const minTimeout = 5

func (c *Config) wrong() error {
	var all []error
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if err := monitor.ValidateName(c.Name); err != nil {
		bad("name: %q %w", c.Name, err)
	}
	if err := monitor.ValidateName(c.Namespace); err != nil {
		bad("namespace: %q %w", c.Namespace, err)
	}
	for _, s := range c.Subscriptions {
		if err := monitor.ValidateSubscription(s); err != nil {
			bad("subscriptions: %q %w", s, err)
		}
	}
	k := &c.Keepalive
	if k.Warning < minTimeout {
		bad("keepalive-warning-timeout: %d s is too short, the minimum is %d s", k.Warning, minTimeout)
	}
	if k.Warning <= k.Interval {
		bad("keepalive-warning-timeout: %d s must be greater than keepalive-interval (%d s)", k.Warning, k.Interval)
	}
	if k.Critical != 0 && (k.Critical < minTimeout || k.Critical <= k.Interval || k.Critical < k.Warning) {
		bad("keepalive-critical-timeout: %d s must be at least %d s, greater than keepalive-interval and not less than "+
			"keepalive-warning-timeout", k.Critical, minTimeout)
	}
	if c.Timing.RetryMax < c.Timing.RetryMin || c.Timing.RetryMultiplier < 1 {
		bad("retry-min, retry-max, retry-multiplier: %s, %s and %v do not grow", c.Timing.RetryMin, c.Timing.RetryMax,
			c.Timing.RetryMultiplier)
	}
	if c.Timing.HeartbeatTimeout <= c.Timing.HeartbeatInterval {
		bad("backend-heartbeat-timeout: %s must be greater than backend-heartbeat-interval (%s)", c.Timing.HeartbeatTimeout,
			c.Timing.HeartbeatInterval)
	}
	if c.Backends == nil {
		bad("backend-url: is required")
	}
	for i := range c.Allow {
		if err := c.Allow[i].Validate(); err != nil {
			bad("allow-list: entry %d: %w", i, err)
		}
	}
	return errors.Join(all...)
}

// CheckURL returns what is wrong with a backend's URL.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case u.Scheme != "ws" && u.Scheme != "wss":
		return fmt.Errorf("%q is no ws:// or wss:// URL", text)
	case u.Hostname() == "":
		return fmt.Errorf("%q names no host", text)
	}
	return nil
}

// Agent is one agent. Made by New, it runs once.
type Agent struct {
	cfg     Config
	entity  *entity
	runner  *runner
	results *outbox // of checks, statsd and sockets
	handed  *outbox // events that programs handed in over the HTTP API
	api     net.Listener
	counts  counts

	mu      sync.Mutex // guards below
	link    *link
	changed chan struct{} // closed when link changes
}

// counts are the agent's metrics.
type counts struct {
	ran, refused, sent, spooled, dropped, sessions, failures *telemetry.Counter
	connected                                                *telemetry.Gauge
}

func newCounts(m *telemetry.Registry) counts {
	return counts{
		ran: m.Counter("monitor.agent.checks"), refused: m.Counter("monitor.agent.requests_refused"),
		sent:    m.Counter("monitor.agent.events_sent"),
		spooled: m.Counter("monitor.agent.events_spooled"), dropped: m.Counter("monitor.agent.events_dropped"),
		sessions: m.Counter("monitor.agent.sessions"), failures: m.Counter("monitor.agent.session_failures"),
		connected: m.Gauge("monitor.agent.connected"),
	}
}

// New makes an agent. It opens the spools and the API's port, and starts nothing.
func New(cfg Config) (*Agent, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, changed: make(chan struct{}), counts: newCounts(cfg.Metrics)}
	a.entity = newEntity(&a.cfg)
	a.runner = newRunner(a)
	var err error
	if a.results, err = newOutbox(a, "results", false, nil); err != nil {
		return nil, err
	}
	if a.handed, err = newOutbox(a, "events", true, newPace(cfg.EventsRate, cfg.EventsBurst)); err != nil {
		return nil, errors.Join(err, a.results.close())
	}
	if cfg.API != "" {
		if a.api, err = net.Listen("tcp", cfg.API); err != nil {
			return nil, errors.Join(fmt.Errorf("api-host, api-port: %w; does another agent run here? --disable-api goes without",
				err), a.results.close(), a.handed.close())
		}
	}
	return a, nil
}

// APIAddr is where the HTTP API listens; nil is nowhere.
func (a *Agent) APIAddr() net.Addr {
	if a.api == nil {
		return nil
	}
	return a.api.Addr()
}

// Close gives back what New opened, where Run is never called.
func (a *Agent) Close() error {
	err := errors.Join(a.results.close(), a.handed.close())
	if a.api != nil {
		err = errors.Join(err, a.api.Close())
	}
	return err
}

// Run runs the agent until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	var g life.Group
	g.Add("events", a.handed.run)
	g.Add("results", a.results.run)
	g.Add("facts", a.entity.run)
	g.Add("checks", a.runner.run)
	g.Add("session", a.sessions)
	if a.cfg.Statsd.Address != "" {
		g.Add("statsd", a.statsd)
	}
	if a.cfg.Sockets != "" {
		g.Add("sockets", a.sockets)
	}
	if a.api != nil {
		g.Add("api", a.serveAPI)
	}
	return g.Run(ctx)
}

// Connected reports whether there is a session.
func (a *Agent) Connected() bool {
	l, _ := a.current()
	return l != nil
}

// current returns the session's link, nil without one, and what is closed when that changes.
func (a *Agent) current() (*link, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.link, a.changed
}

func (a *Agent) setLink(l *link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.link = l
	close(a.changed)
	a.changed = make(chan struct{})
	connected := 0.0
	if l != nil {
		connected = 1
	}
	a.counts.connected.Set(connected)
}

// sessions keeps a session: the backends' URLs are shuffled once and gone through round and round, with growing
// pauses while none answers.
func (a *Agent) sessions(ctx context.Context) error {
	var urls []string
	pause, tried := time.Duration(0), 0 // tried: backends since the last session
	for next := 0; ; next++ {
		if given := a.cfg.Backends(); !sameSet(urls, given) {
			urls = slices.Clone(given)
			rand.Shuffle(len(urls), func(i, j int) { urls[i], urls[j] = urls[j], urls[i] })
		}
		if len(urls) > 0 {
			target := urls[next%len(urls)]
			limit := a.cfg.Timing.Handshake
			if tried++; tried < len(urls) {
				limit = min(limit, firstDial)
			}
			lasted, err := a.session(ctx, target, limit)
			if ctx.Err() != nil {
				return nil
			}
			a.counts.failures.Add(1)
			a.cfg.Log.Warn("no session with a backend", "url", target, "lasted", lasted.Round(time.Millisecond), "error", err)
			if lasted > a.cfg.Timing.RetryMin {
				pause, tried = 0, 0
			}
		}
		if pause = nextPause(pause, &a.cfg.Timing); len(urls) == 0 {
			pause = min(pause, unknownPause)
		}
		// The other half of the pause is drawn: a fleet that lost its server does not come back as one.
		timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// unknownPause is how soon an agent that knows no backend looks for one again: to look costs nothing.
const unknownPause = 100 * time.Millisecond

func nextPause(before time.Duration, t *Timing) time.Duration {
	if before == 0 {
		return t.RetryMin
	}
	return min(time.Duration(float64(before)*t.RetryMultiplier), t.RetryMax)
}

func sameSet(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for _, s := range b {
		if !slices.Contains(a, s) {
			return false
		}
	}
	return true
}
