package keeper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/serial"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/auth/cert"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/seal"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/telemetry"
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
	Usage       UsageRules
	Lockouts    map[string]auth.LockoutRules // by type of auth method; "all": of those that are not there, and of what they do not set
	NoLockout   bool                         // of nobody, whatever mounts say
	Repeat      func() int                   // how often each commit is made: the fault lab's (kit/fault.DoRepeat); nil: once
	Audit       audit.Rules                  // for devices that are made over the API
	Audits      []audit.Config               // that the configuration declares: Path, Type, Description, Options and Local of each

	// Reigns is set where several servers share the storage: Unseal makes a standby then, and Activate the
	// active server. It is asked by each request whether this server is still the active one, and costs
	// some atomic loads when it is; NotLeader or Unavailable otherwise.
	Reigns func(ctx context.Context) error
	// Seal opens the root key by itself; nil: people do, with shares. OldSeal is the one to go over from.
	Seal, OldSeal seal.Auto
	// Joining, where it is set, is told the root key before the keyring is read: a server that was asked to
	// join a cluster proves with it that it may, and gets the records.
	Joining func(ctx context.Context, root []byte) error
	// System answers paths below sys/ that are not the keeper's: of the cluster and its storage. Found is false
	// where the path is nobody's.
	System func(ctx context.Context, op secrets.Operation, path string, f *secrets.Fields) (data any, found bool, err error)
	// StepDown is asked to have another server become the active one, soon; nil where there is no other.
	StepDown func()
	Local    Local
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
	c.Usage.complete()
	return checkDeclared(c.Audits)
}

// Keeper answers the requests of the secrets plane.
type Keeper struct {
	cfg     Config
	records *sealed.Store
	rights  *rights.Rights
	serial  serial.Names
	lockout auth.Lockout // of all auth methods
	meters  *meters
	flying  flight.List
	moves   moves

	running      string      // the version of all engines, as clients are told
	versionNoted atomic.Bool // in the store's history
	hashing      *limit.Gate // of passwords
	keygen       *limit.Gate // of RSA keys
	meshes       cert.Meshes // whose certificates log in
	missing      missing     // workloads
	keys         *jwks.Keys  // of issuers of tokens that log in
	gate         *tables.Gate
	replica      replica // what a standby reads by

	// tree is held for reading while a token is made, for writing while one ends
	// with all below it: none comes to be under a parent that is going.
	tree sync.RWMutex

	// people is held for writing while operators change identities, for reading while a login does.
	people sync.RWMutex

	// uses is the order of changes of one token or lease; apart from serial, within which it is taken.
	uses serial.Names

	reserves reserves // uses of tokens that are in memory

	targets    targets    // of revocations
	jobs       sync.Mutex // one walk over the prefixes that wait at a time
	jobsRun    atomic.Bool
	counting   sync.Mutex // guards counted
	counted    *attributed
	unfinished atomic.Bool // tokens that ended may have children that have not

	sweep sync.Mutex // one expiry of tokens at a time

	info atomic.Pointer[ClusterInfo]

	mu        sync.Mutex // one change of the seal at a time; guards what follows
	unsealing gathering
	rekeys    rekeys
	rooting   *rootAttempt
	migrating *migration
}

// New makes a sealed keeper.
func New(cfg Config) (*Keeper, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	cfg.Storage = newMetered(cfg.Storage, cfg.Metrics, cfg.Repeat)
	k := &Keeper{cfg: cfg, meters: newMeters(cfg.Metrics)}
	k.records = sealed.New(sealed.Config{Under: cfg.Storage, Now: cfg.Now, CacheBytes: cfg.CacheBytes, Log: cfg.Log, Metrics: cfg.Metrics, Committed: k.committed})
	// A password takes a core for tens of milliseconds: what waits for one takes turns by address.
	k.flying.Now = cfg.Now
	k.rights = rights.NewRights(k.records)
	k.gate = &tables.Gate{Store: k.records, Reigns: cfg.Reigns, TTLs: token.Limits{Default: cfg.DefaultTTL, Max: cfg.MaxTTL}}
	k.hashing = limit.NewGate(limit.GateConfig{Name: "logins by password", Slots: runtime.GOMAXPROCS(0), MaxWaiting: 512})
	k.running = "v" + cfg.Local.Version + "+builtin.records"
	k.keys = jwks.New(cfg.Now)
	k.gauges(cfg.Metrics)
	k.meters.cluster = func() string { return k.Cluster().Name }
	k.keygen = limit.NewGate(limit.GateConfig{Name: "making RSA keys", Slots: runtime.GOMAXPROCS(0), MaxWaiting: 256, MaxWait: time.Minute})
	return k, nil
}

// committed drops from the caches what a commit changed.
func (k *Keeper) committed(ops []storage.Op) {
	st := k.gate.Load()
	if st == nil {
		st = k.replica.state.Load()
	}
	k.rights.Committed(st, ops)
}

// Where the plane's own records are.
const (
	mountPrefix  = "core/mounts/"
	policyPrefix = "sys/policy/"
)

// firstRecords are what a new store begins with.
func (k *Keeper) firstRecords(rootToken string) (ops []storage.Op, id string, err error) {
	for _, e := range []*mount.Entry{
		{Path: "sys/", Type: "system", Description: "system endpoints used for control, policy and debugging"},
		{Path: "cubbyhole/", Type: "cubbyhole", Description: "per-token private secret storage", Local: true},
		{Path: identityPath, Type: "identity", Description: "identity store"},
		{Path: "auth/token/", Type: "token", Description: "token based credentials"},
	} {
		e.UUID, e.Accessor = uuid.NewString(), newAccessor(e)
		op, err := storage.PutJSON(mountPrefix+e.UUID, e)
		if err != nil {
			return nil, "", err
		}
		ops = append(ops, op)
	}
	salt := token.NewSalt()
	id = rootToken
	if id == "" {
		id = token.NewID()
	}
	root := &token.Token{Path: "auth/token/root", DisplayName: "root", Policies: []string{policy.RootName}}
	root.Begin(k.cfg.Now(), 0, token.Limits{})
	made := (&token.Book{Salt: salt}).Make(id, root)
	info, err := storage.PutJSON(clusterInfoKey, ClusterInfo{Name: cmp.Or(k.cfg.ClusterName, fmt.Sprintf("vault-cluster-%x", random(4))), ID: uuid.NewString()})
	ops = append(ops, info)
	ops = append(append(ops, made...), storage.Put(token.SaltKey, salt), storage.Put(policyPrefix+"default", []byte(tables.DefaultPolicy)))
	return ops, id, err
}

func newAccessor(e *mount.Entry) string {
	kind := e.Type
	if e.Auth() {
		kind = "auth_" + kind
	}
	return fmt.Sprintf("%s_%x", kind, random(4))
}

// loadTimed is load, for a server that becomes the active one.
func (k *Keeper) loadTimed(ctx context.Context) (*tables.Tables, error) {
	defer lasting(k.meters.own.postUnseal)()
	return k.load(ctx)
}

// load reads what every request needs.
func (k *Keeper) load(ctx context.Context) (*tables.Tables, error) {
	st := &tables.Tables{Mounts: &mount.Table{}, Engines: map[string]engine.Engine{}, Policies: map[string]*policy.Policy{}, ACLs: tables.NewACLs()}
	salt, ok, err := k.records.Get(ctx, token.SaltKey)
	if err != nil || !ok {
		return nil, sealed.OrMissing(err, token.SaltKey)
	}
	st.Book = &token.Book{Reader: k.records, Salt: salt}
	k.unfinished.Store(true)
	if err := k.loadPaused(ctx); err != nil {
		return nil, err
	}
	if err := k.loadTables(ctx, st, k.engine); err != nil {
		return nil, err
	}
	if err := errors.Join(k.loadQuotas(ctx, st), k.loadCORS(ctx, st)); err != nil {
		return nil, err
	}
	if err := k.declare(ctx); err != nil {
		return nil, err
	}
	return st, k.openAudits(ctx, st) // last: what it starts is ended with the state
}

// loadTables reads mounts, with engines as made makes them, and policies.
func (k *Keeper) loadTables(ctx context.Context, st *tables.Tables, made func(*mount.Entry, []byte) (engine.Engine, error)) error {
	records, err := k.records.Scan(ctx, mountPrefix, storage.After(mountPrefix), 0)
	if err != nil {
		return err
	}
	for _, r := range records {
		e := &mount.Entry{}
		if err := json.Unmarshal(r.Value, e); err != nil {
			return errkind.Errorf(errkind.Corrupt, "%s is not what was stored", r.Key)
		}
		own, err := made(e, st.Book.Salt)
		if err != nil {
			return err
		}
		st.Mounts, st.Engines[e.Accessor] = st.Mounts.With(e), own
	}
	if e := st.Mounts.Get(identityPath); e != nil {
		st.PeoplePrefix = e.Prefix()
		st.People = &identity.Book{View: k.records.At(st.PeoplePrefix), Hash: st.Book.Hash}
	}
	records, err = k.records.Scan(ctx, policyPrefix, storage.After(policyPrefix), 0)
	if err != nil {
		return err
	}
	for _, r := range records {
		name := r.Key[len(policyPrefix):]
		p, err := policy.Parse(name, string(r.Value))
		if err != nil {
			return errkind.Errorf(errkind.Corrupt, "the policy %s cannot be read: %w", name, err)
		}
		st.Policies[name] = p
	}
	return nil
}
