package keeper

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/serial"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/auditing"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/census"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/identities"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/leases"
	"corbel.dev/corbel/secrets/mfa"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/mounting"
	"corbel.dev/corbel/secrets/namespaces"
	"corbel.dev/corbel/secrets/oidcprovider"
	"corbel.dev/corbel/secrets/plugins"
	"corbel.dev/corbel/secrets/policies"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/quotas"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/seal"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/sealing"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/secrets/tokens"
	"corbel.dev/corbel/secrets/tools"
	"corbel.dev/corbel/secrets/wrapping"
	"corbel.dev/corbel/telemetry"
)

// Parts of Config, under the names that its makers know.
type (
	Local      = tools.Local
	UsageRules = census.Rules
	// Initialized is what Init gives.
	Initialized = sealing.Initialized
)

// Config is what a Keeper is made of. Zero durations and sizes are Vault's defaults.
type Config struct {
	Storage     storage.Backend
	Now         func() time.Time
	DefaultTTL  time.Duration // of leases and tokens: 768 h
	MaxTTL      time.Duration // 768 h
	CacheBytes  int           // decrypted records kept in memory: 64 MiB; negative: none
	ClusterName string
	APIAddr     string       // where clients reach this server: the issuer of identity tokens; "": nobody said
	Log         *slog.Logger // what the background finds wrong; nil: slog.Default
	Metrics     *telemetry.Registry
	Usage       census.Rules
	// by type of auth method; "all": of those that are not there, and of what they do not set
	Lockouts  map[string]auth.LockoutRules
	NoLockout bool           // of nobody, whatever mounts say
	Repeat    func() int     // how often each commit is made: the fault lab's (kit/fault.DoRepeat); nil: once
	Audit     audit.Rules    // for devices that are made over the API
	Audits    []audit.Config // that the configuration declares: Path, Type, Description, Options and Local of each

	// Leads is set where several servers share the storage: Unseal makes a standby then, and Activate the
	// active server. It is asked by each request whether this server is still the active one, and costs
	// some atomic loads when it is; NotLeader or Unavailable otherwise.
	Leads func(ctx context.Context) error
	// Seal opens the root key by itself; nil: people do, with shares. OldSeal is the one to go over from.
	Seal, OldSeal seal.Auto
	// Joining, where it is set, is told the root key before the keyring is read: a server that was asked to
	// join a cluster proves with it that it may, and gets the records.
	Joining func(ctx context.Context, root []byte) error
	// System answers paths below sys/ that are not the keeper's: of the cluster and its storage. Found is false
	// where the path is nobody's.
	System func(ctx context.Context, op secrets.Operation, path string, f *secrets.Fields) (data any,
		found bool, err error)
	// StepDown is asked to have another server become the active one, soon; nil where there is no other.
	StepDown func()
	Local    tools.Local
	// Plugins runs programs that answer for mounts; nil: none are run.
	Plugins plugins.Runner
}

func (c *Config) complete() error {
	if c.Storage == nil {
		return errkind.New(errkind.Invalid, "storage: is missing")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	for _, d := range []*time.Duration{&c.DefaultTTL, &c.MaxTTL} {
		if *d < 0 {
			return errkind.New(errkind.Invalid, "default_lease_ttl, max_lease_ttl: must not be negative")
		}
		if *d == 0 {
			*d = 768 * time.Hour
		}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 64 << 20
	}
	c.Usage.Complete()
	return auditing.CheckDeclared(c.Audits)
}

// Keeper answers the requests of the secrets plane: it is the line that they go down, past the owners of state.
type Keeper struct {
	cfg     Config
	records *sealed.Store
	gate    *tables.Gate
	*sealing.Sealing
	*sealing.Rekeys
	*sealing.Roots

	rights *rights.Rights
	tokens *tokens.Tokens
	leases *leases.Leases
	audits *auditing.Broker
	owners owners
	serial serial.Names // what a request must have to itself, by its engine's word
	meters *meters
	flying flight.List
	*replica
}

// owners are those that the line passes seldom.
type owners struct {
	quotas     *quotas.Quotas
	mounts     *mounting.Mounts
	plugins    *plugins.Plugins
	identities *identities.Identities
	factors    *mfa.Factors
	policies   *policies.Policies
	wrapping   *wrapping.Wrapping
	census     *census.Census
	tools      *tools.Tools
	namespaces *namespaces.Namespaces
	system     *system.System
}

// New makes a sealed keeper.
func New(cfg Config) (*Keeper, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	cfg.Storage = newMetered(cfg.Storage, cfg.Metrics, cfg.Repeat)
	k := &Keeper{cfg: cfg, meters: newMeters(cfg.Metrics)}
	k.replica = &replica{k: k}
	k.records = sealed.New(sealed.Config{Under: cfg.Storage, Now: cfg.Now, CacheBytes: cfg.CacheBytes, Log: cfg.Log,
		Metrics: cfg.Metrics, Committed: k.committed})
	k.gate = &tables.Gate{Store: k.records, Leads: cfg.Leads,
		TTLs: token.Limits{Default: cfg.DefaultTTL, Max: cfg.MaxTTL}}
	k.flying.Now = cfg.Now
	k.rights = rights.NewRights(k.records)
	k.Sealing, k.Rekeys, k.Roots = sealing.New(sealing.Config{Now: cfg.Now, Log: cfg.Log, Metrics: cfg.Metrics,
		ClusterName: cfg.ClusterName,
		Auto:        cfg.Seal, OldAuto: cfg.OldSeal, Joining: cfg.Joining, StepDown: cfg.StepDown, Load: k.load,
		Forget: k.forget, Close: auditing.Close}, k.gate, k.records)
	k.appoint()
	k.gauges(cfg.Metrics)
	return k, nil
}

// appoint makes the owners, and the mounts of the plane's own that they answer.
func (k *Keeper) appoint() {
	cfg, o := &k.cfg, &k.owners
	version, cluster := "v"+cfg.Local.Version+"+builtin.vault", func() string { return k.Cluster().Name }
	k.audits = auditing.New(auditing.Config{Rules: cfg.Audit, Declared: cfg.Audits, Version: version, Now: cfg.Now,
		Log: cfg.Log, Metrics: cfg.Metrics},
		k.gate, k.records)
	o.quotas = &quotas.Quotas{Gate: k.gate, Records: k.records, Metrics: cfg.Metrics}
	o.identities = &identities.Identities{Records: k.records, Rights: k.rights, Metrics: cfg.Metrics, Cluster: cluster}
	o.factors = &mfa.Factors{Records: k.records, Who: o.identities}
	o.identities.Second = o.factors
	o.identities.Providers = &oidcprovider.Providers{Records: k.records, Address: cfg.APIAddr}
	k.tokens = tokens.NewTokens(k.gate, k.records, k.rights, o.quotas, o.identities, &k.flying, cfg.Now, cfg.Metrics)
	k.leases = leases.NewLeases(k.gate, k.records, k.tokens, o.quotas, &k.flying, cfg.Now, cfg.Log, cfg.Metrics)
	o.policies = &policies.Policies{Gate: k.gate, Records: k.records, Rights: k.rights}
	o.wrapping = &wrapping.Wrapping{Records: k.records, Tokens: k.tokens, Quotas: o.quotas, Flying: &k.flying,
		Authorise: k.authorise}
	o.census = census.New(cfg.Usage, k.gate, k.records, &k.flying, cfg.Now, cfg.Log, cluster, cfg.Metrics)
	o.tools = &tools.Tools{Gate: k.gate, Records: k.records, Flying: &k.flying, Now: cfg.Now, Local: cfg.Local,
		Holds: k.holds}
	o.namespaces = &namespaces.Namespaces{Gate: k.gate, Records: k.records, Leases: k.leases, Flying: &k.flying}
	o.plugins = plugins.New(plugins.Config{Runner: cfg.Plugins, Now: cfg.Now, Log: cfg.Log, Metrics: cfg.Metrics,
		Version: cfg.Local.Version, Password: o.policies.Password,
		Cluster: func() (name, id string) { c := k.Cluster(); return c.Name, c.ID },
		BuiltIn: func(kind, name string) bool { return o.mounts.BuiltIn(kind, name) }}, k.gate, k.records)
	o.mounts = mounting.New(mounting.Config{Now: cfg.Now, Metrics: cfg.Metrics, Version: version, Lockouts: cfg.Lockouts,
		NoLockout: cfg.NoLockout,
		Password:  o.policies.Password, Plugins: o.plugins}, k.gate, k.records)
	o.system = &system.System{Elsewhere: cfg.System, Rows: slices.Concat(o.mounts.Rows(), o.policies.Rows(),
		k.leases.Rows(), o.census.Rows(),
		o.wrapping.Rows(), o.factors.Rows(), k.Sealing.Rows(), k.audits.Rows(), o.quotas.Rows(), o.tools.Rows(),
		o.namespaces.Rows())}
	fixed := func(make func(e *mount.Entry, salt []byte) engine.Engine) mounting.Kind {
		return mounting.Kind{Side: mounting.Fixed, Make: make}
	}
	o.mounts.Kinds["system"] = fixed(func(*mount.Entry, []byte) engine.Engine { return o.system })
	o.mounts.Kinds["token"] = fixed(func(*mount.Entry, []byte) engine.Engine { return k.tokens.Engine() })
	o.mounts.Kinds["identity"] = fixed(func(e *mount.Entry, salt []byte) engine.Engine {
		return o.identities.Engine(cfg.APIAddr, salt, k.gate, e.Space)
	})
	k.meters.entityMade = o.identities.Made
	k.meters.cluster = cluster
}

// committed drops from the caches what a commit changed.
func (k *Keeper) committed(ops []storage.Op) {
	k.rights.Committed(cmp.Or(k.gate.Load(), k.replica.state.Load()), ops)
}

// load reads what every request needs.
func (k *Keeper) load(ctx context.Context) (*tables.Tables, error) {
	k.tokens.Begin()
	k.owners.factors.Forget() // what the active server before wrote is read again
	if err := k.leases.Load(ctx); err != nil {
		return nil, err
	}
	st, err := k.read(ctx, k.owners.mounts.Engine)
	if err != nil {
		return nil, err
	}
	if err := k.owners.plugins.Load(ctx); err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context, *tables.Tables) error{k.owners.quotas.Load, k.owners.tools.LoadCORS,
		k.audits.Load} { // last: what it starts is ended with the state
		if err := part(ctx, st); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// read reads mounts, with engines as made makes them, and policies.
func (k *Keeper) read(ctx context.Context, made func(*mount.Entry, []byte) (engine.Engine, error)) (*tables.Tables,
	error) {
	salt, ok, err := k.records.Get(ctx, token.SaltKey)
	if err != nil || !ok {
		return nil, sealed.OrMissing(err, token.SaltKey)
	}
	st := &tables.Tables{Scope: tables.Scope{Mounts: &mount.Table{}, Engines: map[string]engine.Engine{},
		Policies: map[string]*policy.Policy{}, ACLs: tables.NewACLs()}}
	st.Book = &token.Book{Reader: k.records, Salt: salt}
	records, err := k.records.Scan(ctx, tables.MountPrefix, storage.After(tables.MountPrefix), 0)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		e := &mount.Entry{}
		if err := sealed.ReadJSON(r.Key, r.Value, e); err != nil {
			return nil, err
		}
		own, err := made(e, st.Book.Salt)
		if err != nil {
			return nil, err
		}
		st.Mounts, st.Engines[e.Accessor] = st.Mounts.With(e), own
	}
	if e := st.Mounts.Get(tables.IdentityPath); e != nil {
		st.IdentitiesPrefix = e.Prefix()
		st.Identities = &identity.Book{View: k.records.At(st.IdentitiesPrefix), Hash: st.Book.Hash}
	}
	records, err = k.records.Scan(ctx, tables.PolicyPrefix, storage.After(tables.PolicyPrefix), 0)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if err := readPolicy(st.Policies, r.Key[len(tables.PolicyPrefix):], r.Value); err != nil {
			return nil, err
		}
	}
	return st, k.readSpaces(ctx, st, made)
}

func readPolicy(into map[string]*policy.Policy, name string, text []byte) error {
	p, err := policy.Parse(name, string(text))
	if err != nil {
		return errkind.Errorf(errkind.Corrupt, "the policy %s cannot be read: %w", name, err)
	}
	into[name] = p
	return nil
}
