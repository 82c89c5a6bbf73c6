package local

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/catalog/local/disk"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/telemetry"
)

// Servers is the catalog as anti-entropy needs it. Every call ends with its ctx.
// Kinds Invalid and Denied mean refused: not tried again before the next full
// sync. Any other error means try again soon.
//
// token is on whose behalf a call is made; "" is nobody's.
type Servers interface {
	Register(ctx context.Context, token string, r *catalog.Register) error
	// RegisterBatch applies all or, with an error, possibly some.
	RegisterBatch(ctx context.Context, token string, r []*catalog.Register) error
	Deregister(ctx context.Context, token string, d *catalog.Deregister) error
	NodeServices(ctx context.Context, token, node string) ([]*catalog.Service, error)
	NodeChecks(ctx context.Context, token, node string) ([]*catalog.Check, error)
	// NodeInfo is nil without an error when the catalog has no such node.
	NodeInfo(ctx context.Context, token, node string) (*catalog.Node, error)
}

// Config is what a Local needs; zero fields mean the defaults.
type Config struct {
	// Node is this host as the catalog shall know it. Name is required.
	Node    catalog.Node
	Servers Servers
	// ClusterSize is the number of hosts, which scales the stagger; nil means 1.
	ClusterSize func() int
	// Tokens are the agent's own tokens of now; nil means none.
	Tokens func() Tokens
	// MayRead tells whether a token may read a service, by its name, or with "" this node: an alias of this host sees no
	// more. Kind Denied is no, any other error that it cannot be told now. nil allows everything.
	MayRead func(ctx context.Context, token, service string) error
	// ReadNode is what a token may read of another node, nil when that is nothing. Aliases of other nodes need it.
	ReadNode func(ctx context.Context, token, node string) (*Seen, error)
	// ServerUp sends when a server came (back): a full sync follows soon. nil is allowed.
	ServerUp <-chan struct{}

	// FS and DataDir hold registrations across restarts; DataDir "" keeps none.
	FS      vfs.FS
	DataDir string

	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
	// Checks configures the check runner; its Clock and Log default to those above.
	Checks check.Config

	EnableScriptChecks      bool // from the API and from files
	EnableLocalScriptChecks bool // from files only
	// CheckUpdateInterval is how seldom output-only changes are pushed; 0 means 5 min, below 0 at once.
	CheckUpdateInterval time.Duration
	DiscardCheckOutput  bool
	OutputMaxSizeBytes  int // 0 means 4 KiB
	// SidecarMinPort and SidecarMaxPort are the ports for sidecars that name none; 0 means 21000 and 21255.
	SidecarMinPort, SidecarMaxPort int
	// ExposeMinPort and ExposeMaxPort are those of listeners for checks that go through proxies; 0 means 21500 and 21755.
	ExposeMinPort, ExposeMaxPort int
	// SyncWait bounds how long a registration waits for its sync attempt; 0 means 2 s.
	SyncWait time.Duration
	// CallTimeout bounds each call to the servers; 0 means 10 s.
	CallTimeout time.Duration
	// Rand returns a number in [0, n); nil means math/rand.
	Rand func(n int64) int64
}

func (c *Config) complete() error {
	if c.Node.Name == "" {
		return errkind.New(errkind.Invalid, "local: Node.Name is required")
	}
	if c.Servers == nil {
		return errkind.New(errkind.Invalid, "local: Servers is required")
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.ClusterSize == nil {
		c.ClusterSize = func() int { return 1 }
	}
	if c.Rand == nil {
		c.Rand = rand.Int64N
	}
	if c.FS == nil {
		c.FS = vfs.OS{}
	}
	c.CheckUpdateInterval = cmp.Or(c.CheckUpdateInterval, 5*time.Minute)
	c.OutputMaxSizeBytes = cmp.Or(c.OutputMaxSizeBytes, check.DefaultOutputBytes)
	c.SidecarMinPort, c.SidecarMaxPort = cmp.Or(c.SidecarMinPort, 21000), cmp.Or(c.SidecarMaxPort, 21255)
	c.ExposeMinPort, c.ExposeMaxPort = cmp.Or(c.ExposeMinPort, 21500), cmp.Or(c.ExposeMaxPort, 21755)
	c.SyncWait = cmp.Or(c.SyncWait, 2*time.Second)
	c.CallTimeout = cmp.Or(c.CallTimeout, 10*time.Second)
	if c.Checks.Clock == nil {
		c.Checks.Clock = c.Clock
	}
	if c.Checks.Log == nil {
		c.Checks.Log = c.Log
	}
	if c.Checks.Metrics == nil {
		c.Checks.Metrics = c.Metrics
	}
	return nil
}

// Local is this host's registrations.
type Local struct {
	cfg      *Config
	state    *state
	runs     *runs
	rights   *aliasRights
	sync     *syncer
	sidecars *sidecarPorts
	store    *disk.Store // nil keeps nothing
	// stripes order the changes of one id: its file and its entry change as one.
	stripes stripes
	files   sync.RWMutex        // write: a change of all file definitions; read: one registration
	fromFS  fileSet             // guarded by files
	orphans []*definition.Check // from before the restart, whose service is not there yet; guarded by files
}

// stripes are locks by id; ids that share one wait for each other.
type stripes [64]sync.Mutex

func (s *stripes) of(id string) *sync.Mutex {
	h := uint32(2166136261)
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return &s[h%uint32(len(s))]
}

// Answered tells whether the catalog has answered since the start: it was read, or said that this host's token is not
// known or may not read it. The second is no reason to call the process not ready: who is to make the token may wait
// for that. The log tells of it, and it is tried again.
func (l *Local) Answered() bool { return l.sync.answered.Load() }

// SyncNow asks for a full sync soon; it does not wait for it.
func (l *Local) SyncNow() { signal(l.sync.full) }

// New builds a Local and loads what was registered before from DataDir.
func New(cfg Config) (*Local, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	st := newState(&cfg)
	rights := &aliasRights{cfg: &cfg, state: st}
	r := &runs{cfg: &cfg, runner: check.New(cfg.Checks), rights: rights, state: st}
	s := &syncer{cfg: &cfg, state: st, runs: r, rights: rights, kick: make(chan struct{}, 1),
		full: make(chan struct{}, 1), attempts: attempts{next: make(chan struct{})}, met: newMetrics(cfg.Metrics)}
	r.notify = s.notify
	l := &Local{cfg: &cfg, state: st, runs: r, rights: rights, sync: s,
		sidecars: &sidecarPorts{low: cfg.SidecarMinPort, high: cfg.SidecarMaxPort, state: st}}
	if cfg.DataDir != "" {
		store, err := disk.Open(cfg.FS, filepath.Clean(cfg.DataDir), cfg.Log)
		if err != nil {
			return nil, errkind.E(errkind.Internal, "load registrations", err)
		}
		l.store = store
		l.restore()
	}
	return l, nil
}

// RegisterOptions say how a registration is taken.
type RegisterOptions struct {
	// ReplaceExistingChecks removes the service's checks that the definition does not name.
	ReplaceExistingChecks bool
	// Persist keeps the registration across restarts.
	Persist bool
	// Token is used when the definition has none.
	Token string
	// May is asked for write on each service, by name, that the registration results in or displaces, and with "" on the
	// node; its error refuses all. It must answer from memory: it is called under a lock. nil allows everything.
	May func(service string) error
}

// RegisterService registers or replaces a service with its checks, and with the sidecar that it
// asks for, and waits for a sync attempt. The result does not depend on the sync. Kinds: Invalid.
func (l *Local) RegisterService(ctx context.Context, d *definition.Service, o RegisterOptions) error {
	version, err := l.register(ctx, d, o)
	if err != nil {
		return err
	}
	l.sync.notify()
	l.sync.await(ctx, version)
	return nil
}

// register registers a service and the sidecar that it asks for. The syncer is to be told.
func (l *Local) register(ctx context.Context, d *definition.Service, o RegisterOptions) (uint64, error) {
	if d.WantsSidecar() {
		l.sidecars.Lock() // until the port that is chosen is taken
		defer l.sidecars.Unlock()
	}
	all, err := l.prepare(d, o, map[int]bool{})
	if err == nil {
		err = l.state.mayPut(o.May, all)
	}
	if err != nil {
		return 0, err
	}
	var version uint64
	for _, r := range all {
		l.rights.learn(ctx, r.checks)
		if version, err = l.putService(r.d, r.checks, o); err != nil {
			return 0, err
		}
	}
	return version, nil
}

// prepared is a definition that may be registered.
type prepared struct {
	d      *definition.Service
	checks []*definition.Check
}

// prepare checks a definition: the service, and its sidecar when it asks for one. The caller then
// holds sidecars; taken are the ports that no sidecar may get, to which those of d are added.
func (l *Local) prepare(d *definition.Service, o RegisterOptions, taken map[int]bool) ([]prepared, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	if d.Token == "" && o.Token != "" {
		copied := *d
		copied.Token = o.Token
		d = &copied
	}
	taken[d.Port] = true
	service, proxy, err := l.sidecars.split(d, taken)
	if err != nil {
		return nil, err
	}
	all := []prepared{{d: service, checks: service.NormaliseChecks()}}
	if proxy != nil {
		all = append(all, prepared{d: proxy, checks: proxy.NormaliseChecks()})
	}
	for _, r := range all {
		for _, c := range r.checks {
			if err := l.cfg.scriptAllowed(c, false); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (l *Local) putService(d *definition.Service, checks []*definition.Check, o RegisterOptions) (uint64, error) {
	l.files.RLock()
	defer l.files.RUnlock()
	id := d.ServiceID()
	stripe := l.stripes.of(id)
	stripe.Lock()
	defer stripe.Unlock()
	persist := o.Persist && l.store != nil && !l.fromFS.services[id]
	var before *Service
	if persist {
		if before = l.Service(id); !l.store.HasService(id) {
			before = nil
		}
		if err := l.store.SaveService(d); err != nil {
			return 0, errkind.E(errkind.Internal, "persist service", err)
		}
	}
	version, err := l.put(o.May, d, checks, o.ReplaceExistingChecks)
	if err != nil && persist { // what it displaces came after it was looked at first
		l.unsave(id, before)
	}
	return version, err
}

// unsave brings back what was on disk of a service before a registration that is refused. The caller holds its stripe.
func (l *Local) unsave(id string, before *Service) {
	err := error(nil)
	if before != nil {
		err = l.store.SaveService(before.Definition)
	} else {
		err = l.store.RemoveService(id)
	}
	if err != nil {
		l.cfg.Log.Error("a refused registration stays on disk", "service", id, "error", err)
	}
}

// apply is put by this host itself, and lets the syncer tell it.
func (l *Local) apply(d *definition.Service, checks []*definition.Check, replaceChecks bool) {
	_, _ = l.put(nil, d, checks, replaceChecks) // nobody is asked: it cannot fail
	l.sync.notify()
}

// put changes the state, unless ask refuses that. The syncer is to be told.
func (l *Local) put(ask may, d *definition.Service, checks []*definition.Check, replaceChecks bool) (uint64, error) {
	c, err := l.runs.putService(ask, d, checks, replaceChecks)
	if err != nil {
		return 0, err
	}
	if l.store != nil {
		for _, id := range c.dropped {
			l.store.RemoveCheck(id)
		}
	}
	return c.version, nil
}

// DeregisterService removes a service and its checks. Kind NotFound.
func (l *Local) DeregisterService(ctx context.Context, id string) error {
	l.files.RLock()
	version, err := l.dropService(id)
	if err == nil {
		version = l.dropSidecar(id, version)
	}
	l.files.RUnlock()
	if err != nil {
		return err
	}
	l.sync.await(ctx, version)
	return nil
}

// dropSidecar removes the proxy that a service's registration brought, and returns the newest version.
func (l *Local) dropSidecar(id string, version uint64) uint64 {
	if s := l.Service(id + definition.SidecarSuffix); s != nil && s.Definition.AutoSidecar {
		if v, err := l.dropService(id + definition.SidecarSuffix); err == nil {
			return v
		}
	}
	return version
}

func (l *Local) dropService(id string) (uint64, error) {
	stripe := l.stripes.of(id)
	stripe.Lock()
	defer stripe.Unlock()
	c, ok := l.runs.removeService(id)
	if !ok {
		return 0, errkind.Errorf(errkind.NotFound,
			"Unknown service ID %q. Ensure that the service ID is passed, not the service name.", id)
	}
	if l.store != nil {
		for _, checkID := range c.dropped {
			l.store.RemoveCheck(checkID)
		}
		if err := l.store.RemoveService(id); err != nil {
			l.cfg.Log.Error("a deregistered service stays on disk", "service", id, "error", err)
		}
	}
	return c.version, nil
}

// RegisterCheck registers or replaces a check of the node or of a service that
// is there. Kinds: Invalid, NotFound (its service).
func (l *Local) RegisterCheck(ctx context.Context, d *definition.Check, o RegisterOptions) error {
	if err := d.Validate(); err != nil {
		return err
	}
	if err := l.cfg.scriptAllowed(d, false); err != nil {
		return err
	}
	copied := *d
	copied.ID = d.CheckID()
	copied.Token = cmp.Or(d.Token, o.Token)
	l.rights.learn(ctx, []*definition.Check{&copied})
	version, err := l.putCheck(o.May, &copied, o.Persist)
	if err != nil {
		return err
	}
	l.sync.await(ctx, version)
	return nil
}

func (l *Local) putCheck(ask may, d *definition.Check, persist bool) (uint64, error) {
	l.files.RLock()
	defer l.files.RUnlock()
	stripe := l.stripes.of("check:" + d.ID)
	stripe.Lock()
	defer stripe.Unlock()
	c, ok, err := l.runs.putCheck(ask, d)
	if !ok {
		return 0, errkind.Errorf(errkind.NotFound, "ServiceID %q does not exist", d.ServiceID)
	}
	if err != nil {
		return 0, err
	}
	if persist && l.store != nil && !l.fromFS.checks[d.ID] {
		if err := l.store.SaveCheck(d); err != nil {
			return 0, errkind.E(errkind.Internal, "persist check", err)
		}
	}
	return c.version, nil
}

// DeregisterCheck removes a check. Kind NotFound.
func (l *Local) DeregisterCheck(ctx context.Context, id string) error {
	l.files.RLock()
	version, err := l.dropCheck(id)
	l.files.RUnlock()
	if err != nil {
		return err
	}
	l.sync.await(ctx, version)
	return nil
}

func (l *Local) dropCheck(id string) (uint64, error) {
	stripe := l.stripes.of("check:" + id)
	stripe.Lock()
	defer stripe.Unlock()
	c, ok := l.runs.removeCheck(id)
	if !ok {
		return 0, unknownCheck(id)
	}
	if l.store != nil {
		l.store.RemoveCheck(id)
	}
	return c.version, nil
}

func unknownCheck(id string) error {
	return errkind.Errorf(errkind.NotFound,
		"Unknown check ID %q. Ensure that the check ID is passed, not the check name.", id)
}

// UpdateTTL is a heartbeat. Kinds: NotFound, Invalid (the status), Internal with
// the contract's text for a check without a TTL.
func (l *Local) UpdateTTL(id, status, output string) error {
	health, ok := catalog.ParseHealth(status)
	if !ok {
		return errkind.Errorf(errkind.Invalid, "Invalid check status: '%s'", status)
	}
	c := l.Check(id)
	if c == nil {
		return unknownCheck(id)
	}
	if c.Definition.Kind() != check.KindTTL {
		return errkind.Errorf(errkind.Internal, "CheckID %q does not have associated TTL", id)
	}
	return l.runs.runner.Heartbeat(id, check.Result{Status: health, Output: output})
}

func (c *Config) scriptAllowed(d *definition.Check, file bool) error {
	switch kind := d.Kind(); {
	case kind != check.KindScript && kind != check.KindDocker, c.EnableScriptChecks:
		return nil
	case !file:
		return errkind.New(errkind.Invalid, "Scripts are disabled on this agent from remote calls; to enable, configure "+
			"'enable_script_checks' to true")
	case c.EnableLocalScriptChecks:
		return nil
	}
	return errkind.New(errkind.Invalid, "Scripts are disabled on this agent; to enable, configure "+
		"'enable_script_checks' or 'enable_local_script_checks' to true")
}

// SetDiscardOutput says whether the outputs of checks to come are dropped.
func (l *Local) SetDiscardOutput(discard bool) {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	l.state.discardOutput = discard
}
