package host

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh/leaf"
	"corbel.dev/corbel/mesh/proxy"
	"corbel.dev/corbel/telemetry"
)

// Leaves gives certificates; *leaf.Leaves is one.
type Leaves interface {
	FollowSubject(what leaf.Subject, token string, set func(leaf.Leaf), failed func(error)) (stop func())
}

// Directory knows which proxies are registered.
type Directory interface {
	// Find returns a registered service, nil when there is none. The same registration is the same pointer.
	Find(node, id string) *catalog.Service
	// List returns the services registered at this host's own agent.
	List() []*catalog.Service
	// Await returns a version other than since once registrations may have changed, or since when ctx ends.
	Await(ctx context.Context, since uint64) uint64
}

// Config says where a Host gets things from. Node, Follower, Leaves and Directory are required.
type Config struct {
	Node       string // whose proxies those are that name no node
	Datacenter string // "dc1"
	Follower   feed.Follower
	Leaves     Leaves
	Directory  Directory
	// Grant resolves a token; nil allows everything. The same pointer means the same rights.
	Grant func(ctx context.Context, token string) (*acl.Grant, error)
	// Ask is Grant of a token whose right is in doubt, as the servers know it now; nil means Grant.
	Ask func(ctx context.Context, token string) (*acl.Grant, error)
	// ExposeChecks is told when config entries have the checks of an instance go through a proxy of this host, or no
	// longer; nil is allowed.
	ExposeChecks func(proxy string, on bool)
	// Token is for streams that bring none; nil means none.
	Token func() string

	// Grace is how long a proxy is kept without a stream, so that a reconnecting Envoy finds it as it was; 30 s.
	Grace time.Duration
	// Recheck is how often the rights of tokens are looked at; 10 s.
	Recheck time.Duration
	// MaxProxies bounds what is kept at a time: who opens one more is Overloaded; 65,536.
	MaxProxies int

	Clock   clock.Clock
	Logger  *slog.Logger
	Metrics *telemetry.Registry
}

func (c *Config) complete() error {
	if c.Node == "" || c.Follower == nil || c.Leaves == nil || c.Directory == nil {
		return errkind.New(errkind.Invalid, "mesh host: Node, Follower, Leaves and Directory are required")
	}
	if c.Datacenter == "" {
		c.Datacenter = "dc1"
	}
	if c.Ask == nil {
		c.Ask = c.Grant
	}
	if c.Token == nil {
		c.Token = func() string { return "" }
	}
	if c.Grace <= 0 {
		c.Grace = 30 * time.Second
	}
	if c.Recheck <= 0 {
		c.Recheck = 10 * time.Second
	}
	if c.MaxProxies <= 0 {
		c.MaxProxies = 1 << 16
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return nil
}

// Host keeps the proxies of a host. Make it with New.
type Host struct {
	cfg    Config
	meters meters

	telling  sync.Mutex // held while the agent is told of checks
	mu       sync.Mutex // guards all below, and the proxies' state machines
	cache    *proxy.Cache
	proxies  map[key]*member
	subjects map[subjectKey]*subject
	later    []func()         // stops that Run calls
	exposing map[*member]bool // what the agent was told: whether checks go through it by config entries
	suspects map[string]bool  // tokens that the servers refused something, since Run looked
	wake     func()           // ends Run's wait; nil while it does not wait
	stopped  bool
}

// key tells proxies apart. Streams for one proxy with different tokens have nothing in common: one may lose its right.
type key struct{ node, id, token string }

// New checks the configuration; it starts nothing.
func New(cfg Config) (*Host, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, cache: proxy.NewCache(), proxies: map[key]*member{}, subjects: map[subjectKey]*subject{},
		exposing: map[*member]bool{}, suspects: map[string]bool{}}
	h.meters = newMeters(h, cfg.Metrics)
	return h, nil
}

// Run follows registrations and rights until ctx ends, then ends all proxies.
func (h *Host) Run(ctx context.Context) error {
	version := uint64(0)
	checked := h.cfg.Clock.Now()
	for ctx.Err() == nil {
		wait, cancel := context.WithCancel(ctx)
		timer := h.cfg.Clock.AfterFunc(h.cfg.Recheck, cancel)
		h.waits(cancel)
		next := h.cfg.Directory.Await(wait, version)
		h.waits(nil)
		timer.Stop()
		cancel()
		h.stopLater()
		if next != version {
			version = next
			h.lookUp()
			h.pause(ctx)
		}
		if h.cfg.Clock.Since(checked) >= h.cfg.Recheck && ctx.Err() == nil {
			checked = h.cfg.Clock.Now()
			h.sweep()
			h.checkRights(ctx, nil, h.cfg.Grant)
		}
		if list := h.suspected(); len(list) > 0 && ctx.Err() == nil {
			h.checkRights(ctx, list, h.cfg.Ask)
			h.pause(ctx)
		}
	}
	h.mu.Lock()
	h.stopped = true
	var w work
	for _, m := range h.proxies {
		h.endLocked(m, &w)
	}
	h.mu.Unlock()
	h.do(&w)
	h.stopLater()
	return nil
}

// lookGap is the least time between two looks at all registrations: on a server they may change thousands of times a
// second.
const lookGap = 20 * time.Millisecond

func (h *Host) pause(ctx context.Context) {
	t := h.cfg.Clock.NewTimer(lookGap)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// lookUp compares what is kept with what is registered.
func (h *Host) lookUp() {
	var w work
	h.mu.Lock()
	for _, m := range h.proxies {
		svc := h.cfg.Directory.Find(m.key.node, m.key.id)
		switch {
		case svc == m.service:
			continue
		case svc == nil:
			h.endLocked(m, &w)
			continue
		}
		reg, err := proxy.ReadRegistration(svc)
		if err != nil || reg.Service() != m.proxy.Registration().Service() || reg.Kind != m.proxy.Registration().Kind {
			h.endLocked(m, &w) // its Envoy comes back at once and is answered anew
			continue
		}
		m.service = svc
		h.deltaLocked(m, m.proxy.Register(reg), &w)
	}
	h.mu.Unlock()
	h.do(&w)
}

// waits notes how Run's wait is ended; who was suspected meanwhile is looked at now.
func (h *Host) waits(end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake = end
	if end != nil && len(h.suspects) > 0 {
		end()
	}
}

// suspectLocked has Run look at a token now: the servers refused it something, so its stream is not to wait for the
// next look by the clock.
func (h *Host) suspectLocked(token string) {
	h.suspects[token] = true
	if h.wake != nil {
		h.wake()
	}
}

// suspected takes the tokens that are in doubt.
func (h *Host) suspected() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.suspects) == 0 {
		return nil
	}
	list := h.suspects
	h.suspects = map[string]bool{}
	return list
}

// sweep forgets proxies that nobody has a stream for.
func (h *Host) sweep() {
	var w work
	now := h.cfg.Clock.Now()
	h.mu.Lock()
	for _, m := range h.proxies {
		if len(m.streams) == 0 && m.opening == 0 && now.Sub(m.used) > h.cfg.Grace {
			h.endLocked(m, &w)
		}
	}
	h.mu.Unlock()
	h.do(&w)
}

// checkRights ends the proxies whose tokens have lost their right: all tokens', or only some, as ask knows them.
func (h *Host) checkRights(ctx context.Context, only map[string]bool,
	ask func(context.Context, string) (*acl.Grant, error)) {
	if ask == nil {
		return
	}
	h.mu.Lock()
	tokens := map[string][]*member{}
	for _, m := range h.proxies {
		if only == nil || only[m.key.token] {
			tokens[m.key.token] = append(tokens[m.key.token], m)
		}
	}
	h.mu.Unlock()
	for token, list := range tokens {
		grant, err := ask(ctx, token)
		if err != nil && errkind.Of(err) != errkind.Denied {
			continue // nothing is known of the token now
		}
		var w work
		h.mu.Lock()
		for _, m := range list {
			if h.proxies[m.key] == m && (err != nil || m.grant != grant && grant.Check(acl.Service,
				m.proxy.Registration().Service(), acl.Write) != nil) {
				h.cfg.Logger.Info("a proxy's token lost its right", "proxy", m.key.id, "node", m.key.node)
				h.endLocked(m, &w)
			}
			m.grant = grant
		}
		h.mu.Unlock()
		h.do(&w)
	}
}
