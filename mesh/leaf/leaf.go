// Package leaf keeps the leaf certificates of a host: one for each identity that
// somebody on the host uses, shared by all who do, and renewed before it ends.
//
// What always holds:
//   - Keys are made here and never leave the process except to those who asked for the certificate.
//   - A certificate is given only to who has the right to its identity, judged anew for each certificate.
//   - A certificate is renewed at a random point between 60 and 90 % of its life, and within RotationWindow
//     after another root became the active one; the old one serves until the new one is there. Failures are
//     tried again with growing, random pauses.
//   - Followers see certificates in order and never two at once; a slow one misses those in between.
//   - ModifyIndex grows with each certificate of a process.
//   - Nothing is written to disk. There are at most MaxKinds identities; one that nobody has used for Idle
//     is forgotten.
//
// Leaves is safe for concurrent use. Run owns all goroutines: one for each identity that is being asked for
// or handed out at the moment.
package leaf

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/telemetry"
)

// Subject is whose certificate is asked for. Name is empty for mesh gateways.
type Subject struct {
	Kind ca.IDKind
	Name string
}

// Service is the identity of a service.
func Service(name string) Subject { return Subject{ca.ServiceID, name} }

// MeshGateway is the identity of this datacenter's mesh gateways.
var MeshGateway = Subject{Kind: ca.MeshGatewayID}

// Leaf is a certificate with its key. It never changes.
type Leaf struct {
	ID                       ca.ID
	SerialNumber             string
	CertPEM                  string // with the chain that leads to older roots
	PrivateKeyPEM            string
	ValidAfter, ValidBefore  time.Time
	RootID                   string // the root that signed
	Received                 time.Time
	CreateIndex, ModifyIndex uint64
}

// Roots is what a host must know of the authority.
type Roots struct {
	TrustDomain string
	Active      string // id of the root that signs; "" while there is none
	Index       uint64
}

// Config configures Leaves. Sign, Roots and Datacenter are required.
type Config struct {
	// Sign has a server issue a certificate.
	Sign func(ctx context.Context, r issue.Request) (issue.Certificate, error)
	// Roots returns as soon as they are newer than index, or after minutes.
	Roots func(ctx context.Context, index uint64) (Roots, error)
	// Grant resolves a token; nil allows everything.
	Grant          func(ctx context.Context, token string) (*acl.Grant, error)
	Datacenter     string
	RotationWindow time.Duration // [30 s]
	Idle           time.Duration // [1 h]
	MaxKinds       int           // [4,096]
	Concurrent     int           // certificates asked for at once [4]
	Patience       time.Duration // how long a question without a wait of its own waits for a certificate [15 s]
	Clock          clock.Clock
	Logger         *slog.Logger
	Metrics        *telemetry.Registry
}

// The pauses after failures, and what bounds one try.
const (
	retryMin   = 250 * time.Millisecond
	retryMax   = 15 * time.Second
	tryTimeout = 20 * time.Second
	// rejudge is when somebody who lacked the right is judged again.
	rejudge = 10 * time.Second
	// keptTokens is how many tokens of those who asked are kept for renewals, the newest.
	keptTokens = 8
)

// Leaves keeps the certificates. Make it with New.
type Leaves struct {
	cfg    Config
	asking chan struct{} // a slot for each certificate that is being asked for

	issued, failed *telemetry.Counter

	mu    sync.Mutex // guards what follows, and the kinds; never held while calling out
	ctx   context.Context
	kinds map[Subject]*kind
	roots Roots
	known chan struct{} // closed when roots is known
	last  uint64        // the newest ModifyIndex given
	tasks sync.WaitGroup
}

// New checks the configuration; it starts nothing.
func New(cfg Config) (*Leaves, error) {
	if cfg.Sign == nil || cfg.Roots == nil || cfg.Datacenter == "" {
		return nil, errors.New("leaf: Sign, Roots and Datacenter are required")
	}
	orDefault(&cfg.RotationWindow, 30*time.Second)
	orDefault(&cfg.Idle, time.Hour)
	orDefault(&cfg.Patience, 15*time.Second)
	orDefault(&cfg.MaxKinds, 4096)
	orDefault(&cfg.Concurrent, 4)
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Leaves{cfg: cfg, asking: make(chan struct{}, cfg.Concurrent), kinds: map[Subject]*kind{},
		known:  make(chan struct{}),
		issued: cfg.Metrics.Counter("mesh.leaf.issued"), failed: cfg.Metrics.Counter("mesh.leaf.failed")}
	cfg.Metrics.GaugeFunc("mesh.leaf.kinds", func() float64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return float64(len(l.kinds))
	})
	return l, nil
}

func orDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// TrustDomain is the mesh's, "" while it is not known.
func (l *Leaves) TrustDomain() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.roots.TrustDomain
}

// Run keeps certificates until ctx ends. What was followed before is served from now on.
func (l *Leaves) Run(ctx context.Context) error {
	l.mu.Lock()
	l.ctx = ctx
	for _, k := range l.kinds {
		l.notifyLocked(k)
	}
	l.mu.Unlock()
	l.followRoots(ctx)
	l.mu.Lock()
	l.ctx = nil // nothing is started any more
	for _, k := range l.kinds {
		if k.tended.timer != nil {
			k.tended.timer.Stop()
		}
	}
	l.mu.Unlock()
	l.tasks.Wait()
	return nil
}

// followRoots learns of roots and has what another root signed renewed.
func (l *Leaves) followRoots(ctx context.Context) {
	pause := backoff.Backoff{Min: retryMin, Max: retryMax}
	index := uint64(0)
	for ctx.Err() == nil {
		r, err := l.cfg.Roots(ctx, index)
		if err != nil {
			index = 0
			if ctx.Err() == nil {
				l.cfg.Logger.Debug("the mesh's roots are not known yet", "error", err)
				l.sleep(ctx, pause.Next())
			}
			continue
		}
		pause.Reset()
		if r.Index < index { // another history
			index = 0
		} else {
			index = r.Index
		}
		if r.Active != "" && r.TrustDomain != "" {
			l.rooted(r)
		}
	}
}

func (l *Leaves) sleep(ctx context.Context, d time.Duration) {
	t := l.cfg.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// rooted takes what the roots are now. Certificates of another root are renewed over a window, so that
// a rotation is no storm for the servers.
func (l *Leaves) rooted(r Roots) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, same := l.roots.Active == "", l.roots.Active == r.Active && l.roots.TrustDomain == r.TrustDomain
	l.roots = r
	if first {
		close(l.known)
	}
	if same {
		return
	}
	now := l.cfg.Clock.Now()
	for _, k := range l.kinds {
		if k.leaf == nil || k.leaf.RootID == r.Active {
			continue
		}
		if at := now.Add(l.spread()); at.Before(k.at) {
			k.at = at
			l.notifyLocked(k)
		}
	}
}

// spread is a random part of the rotation window.
func (l *Leaves) spread() time.Duration { return rand.N(l.cfg.RotationWindow) }

// may tells whether the token has the right to the subject's identity.
func (l *Leaves) may(ctx context.Context, token string, what Subject) error {
	g := acl.Unlimited
	if l.cfg.Grant != nil {
		var err error
		if g, err = l.cfg.Grant(ctx, token); err != nil {
			return err
		}
	}
	return issue.Rights(g, ca.ID{Kind: what.Kind, Name: what.Name, Datacenter: l.cfg.Datacenter})
}

var errFull = errkind.New(errkind.Overloaded,
	"this agent keeps as many leaf certificates as it can: ask another agent, or for fewer services")

// kindLocked finds or makes the kind.
func (l *Leaves) kindLocked(what Subject) (*kind, error) {
	if k := l.kinds[what]; k != nil {
		return k, nil
	}
	if len(l.kinds) >= l.cfg.MaxKinds && !l.forgetOneLocked() {
		return nil, errFull
	}
	now := l.cfg.Clock.Now()
	k := &kind{what: what, changed: make(chan struct{}), followers: map[*follower]struct{}{}, used: now, at: now,
		tended: tending{pause: backoff.Backoff{Min: retryMin, Max: retryMax}}}
	l.kinds[what] = k
	return k, nil
}

// forgetOneLocked makes room by the kind that was not used for longest.
func (l *Leaves) forgetOneLocked() bool {
	var oldest *kind
	for _, k := range l.kinds {
		if k.idle() && (oldest == nil || k.used.Before(oldest.used)) {
			oldest = k
		}
	}
	if oldest == nil {
		return false
	}
	l.dropLocked(oldest)
	return true
}

func (l *Leaves) dropLocked(k *kind) {
	delete(l.kinds, k.what)
	k.gone = true
	if k.tended.timer != nil {
		k.tended.timer.Stop()
	}
}
