package consulapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/telemetry"
)

// Registry is the replicated catalog (catalog/registry.Registry).
type Registry interface {
	State() *catalog.State
	// Read says whether a read in that mode may be served from State now. Its
	// error is of kind NotLeader (another server can) or Unavailable.
	Read(ctx context.Context, mode registry.Mode) (registry.Contact, error)
	Apply(ctx context.Context, c catalog.Command) (catalog.Result, error)
	// Await returns the newest State as soon as indexOf passes min, or when the
	// wait, the context or the store's generation ends.
	Await(ctx context.Context, s registry.Subject, min uint64, wait time.Duration, indexOf func(*catalog.State) uint64) *catalog.State
	CreateSession(ctx context.Context, s catalog.Session) (string, error)
	RenewSession(ctx context.Context, id string) (*catalog.Session, error)
	DestroySession(ctx context.Context, id string) error
	// RenewLease gives a node its lease anew; NotFound, Invalid for one without a lease, or NotLeader.
	RenewLease(ctx context.Context, node string) (*catalog.Node, error)
	// Generation counts how often a restore replaced the State. It grows right after the new State
	// is there and before Await returns for it: a State read after Generation is never of an older
	// history, so that what was encoded from one history never answers for another.
	Generation() uint64
	// AppliedAt tells when the change that took an index was committed here; false when that
	// is not known. It costs a look-up.
	AppliedAt(index uint64) (time.Time, bool)
}

// Forwarder hands a whole request to another process and copies the answer.
type Forwarder interface {
	// Forward sends r to the leader, or to any server when toLeader is false. An error means that
	// nothing was written to w. The implementation bounds how often one request is passed on.
	Forward(w http.ResponseWriter, r *http.Request, toLeader bool) error
	// ForwardStream is Forward for rows whose answer or body may be of any length. It tries once.
	ForwardStream(w http.ResponseWriter, r *http.Request, toLeader bool) error
}

// Snapshots saves and restores the whole state, on a server.
type Snapshots interface {
	// Save spools an archive of the state of now; index is the State's. Whether this server may
	// answer was settled before. The caller closes it.
	Save(ctx context.Context) (archive io.ReadCloser, index uint64, err error)
	// Restore verifies the archive to its last byte, then replaces the state on all servers. Leader only.
	Restore(ctx context.Context, archive io.Reader) error
}

// Datacenters is the way to the servers of other datacenters.
type Datacenters interface {
	// Known lists the datacenters: this one first, then by distance.
	Known() []string
	// ForwardDC asks a server of dc. The answer's body is in memory. The error is of kind Unavailable
	// ("No path to datacenter") when nobody there can be reached, and for a request that came from
	// another datacenter already: those go no further. ctx is the incoming request's.
	ForwardDC(ctx context.Context, dc string, r *http.Request) (*http.Response, error)
	// ForwardDCStream is ForwardDC for a snapshot: what comes is written to w, and a body of any size is sent.
	ForwardDCStream(w http.ResponseWriter, dc string, r *http.Request) error
}

// Member is one row of /v1/agent/members.
type Member struct {
	Name   string
	Addr   string
	Port   uint16
	Tags   map[string]string
	Status int // 1 alive, 2 leaving, 3 left, 4 failed
}

// Members is the gossip pool as an operator sees it.
type Members interface {
	Members() []Member
	// Join returns how many of the addresses answered.
	Join(ctx context.Context, addrs []string) (int, error)
	// ForceLeave fails with kind NotFound when no member has that name.
	ForceLeave(name string, prune bool) error
}

// RaftServer is one row of /v1/operator/raft/configuration.
type RaftServer struct {
	ID, Node, Address string
	Leader, Voter     bool
	LastIndex         uint64
}

// ServerHealth is autopilot's view of one server.
type ServerHealth struct {
	ID, Name, Address, SerfStatus, Version string
	Leader, Voter, Healthy                 bool
	Replica                                bool   // never gets a vote
	NodeStatus                             string // what gossip says, in autopilot's words: alive, failed, left
	LastContact                            time.Duration
	LastTerm, LastIndex                    uint64
	StableSince                            time.Time
}

// AutopilotHealth is autopilot's view of the servers.
type AutopilotHealth struct {
	Healthy          bool
	FailureTolerance int
	Servers          []ServerHealth
}

// AutopilotConfig is what operators set of autopilot.
type AutopilotConfig struct {
	CleanupDeadServers      bool
	LastContactThreshold    time.Duration
	MaxTrailingLogs         uint64
	MinQuorum               uint
	ServerStabilizationTime time.Duration
	RedundancyZoneTag       string
	DisableUpgradeMigration bool
	UpgradeVersionTag       string
	CreateIndex             uint64
	ModifyIndex             uint64
}

// PeerRemoval says whom to take out of the Raft groups: one of ID and Address is set.
type PeerRemoval struct {
	ID, Address string
	// Group is the only one, as servers ask each other; "" is all.
	Group string
	// Token is the caller's, for a server that has to be asked.
	Token string
}

// Operator is the catalog's Raft group and its autopilot, on a server.
type Operator interface {
	// Leader is the leader's server address, "" when unknown.
	Leader() string
	// Peers are the addresses of all servers of the group.
	Peers() []string
	Configuration() (servers []RaftServer, index uint64, err error)
	// RemovePeer takes a server out of the Raft groups. NotFound: none has it.
	RemovePeer(ctx context.Context, r PeerRemoval) error
	// TransferLeader hands leadership to the server id, or to any when it is empty.
	TransferLeader(ctx context.Context, id string) error
	Autopilot() AutopilotConfig
	// SetAutopilot replaces the configuration; with cas only when ModifyIndex is still c.ModifyIndex.
	SetAutopilot(ctx context.Context, c AutopilotConfig, cas bool) (bool, error)
	AutopilotHealth() AutopilotHealth
}

// AgentInfo tells about this process.
type AgentInfo interface {
	// DebugConfig is the running configuration with secrets hidden.
	DebugConfig() map[string]any
	// Stats are sections of name and value.
	Stats() map[string]map[string]string
	// Reload reads the configuration again, all or nothing.
	Reload(ctx context.Context) error
	// Leave leaves the cluster and returns when the others know; then the process ends.
	Leave(ctx context.Context) error
}

// LogSource lets an operator follow the log.
type LogSource interface {
	// Follow writes lines of the level and above to w until ctx ends or a write fails;
	// flush is called after each batch. A slow reader loses lines, and never blocks the log.
	Follow(ctx context.Context, level slog.Level, json bool, w io.Writer, flush func()) error
}

// MetricsStreamer is what MetricsHandler also is where metrics can be followed.
type MetricsStreamer interface {
	// Stream writes a JSON summary for each interval that ends, until ctx ends or a write fails.
	Stream(ctx context.Context, w io.Writer, flush func()) error
}

// Identity says what this agent is; it never changes while the process runs.
type Identity struct {
	Datacenter, PrimaryDatacenter string
	NodeName, NodeID              string
	NodeMeta                      map[string]string
	Version                       string // semver that peers' clients understand
	Revision, BuildDate           string
	Server                        bool
	GRPCPort, GRPCTLSPort         int
}

// Limits bound request sizes in bytes. Zero fields mean the contract's defaults.
type Limits struct {
	KVValueBytes int64 // [512 KiB]
	TxnBytes     int64 // [512 KiB, at least KVValueBytes]
	BodyBytes    int64 // all other bodies [1 MiB]
	ListBytes    int64 // lists of registrations [8 MiB]
	// Streams, Watches and StreamWatches bound /v1/watch: streams, watches of all, and of one [4,096, 65,536, 4,096].
	Streams, Watches, StreamWatches int
	PathBytes                       int // [8 KiB]
	QueryBytes                      int // [64 KiB]
	CacheBytes                      int // encoded answers [64 MiB]
}

// Config configures an API. Registry and Operator are nil on a client agent, which then
// needs Forward; Local, Members and the other agent parts may be nil where a process has none:
// their rows answer 404 or 500 with a text.
type Config struct {
	Identity Identity
	Registry Registry
	Operator Operator
	// Snapshots is nil where Operator is.
	Snapshots Snapshots
	// CA is nil where Operator is.
	CA CA
	// Leaves are this host's leaf certificates; nil while the mesh is switched off.
	Leaves Leaves
	// Mesh is the proxies of this host; nil while the mesh is switched off.
	Mesh Mesh
	// Connections looks at the open connections of this host; draining waits for them. Required where Local is.
	Connections Connections
	// ConnectOff (connect.enabled = false) refuses the rows of the mesh's authority.
	ConnectOff bool
	// DefaultIntentionPolicy decides on connections that no intention names; "" is DefaultACLPolicy.
	DefaultIntentionPolicy string
	// LeaderChanges returns a channel that is closed at the next change of who leads; nil on a client agent.
	LeaderChanges func() <-chan struct{}
	Local         Local
	Members       Members
	WAN           Members     // the pool of all datacenters' servers; nil where this process is not in it
	Events        Events      // nil: this agent is in no pool
	Keyring       Keyring     // nil: gossip is not encrypted
	Remote        Datacenters // nil: this datacenter is the only one
	Coordinates   Coordinates // nil: nobody knows where this process lies
	Info          AgentInfo
	Logs          LogSource
	Forward       Forwarder
	// Lacks tells what the process waits for before it is ready; nil: it always is.
	Lacks func() []string
	// Metrics serves /v1/agent/metrics.
	MetricsHandler http.Handler

	Authorizer       Authorizer // nil: AllowAll
	ACLEnabled       bool
	Keeper           *grants.Keeper // changes ACL objects; nil on client agents and while ACLs are off
	DefaultACLPolicy string         // "allow" when empty
	DownACLPolicy    string
	KeyListPolicy    bool // listing keys below a prefix needs the list right
	DefaultToken     func() string
	// SetToken stores one of the agent's own tokens; kind NotFound for a name that there is not.
	SetToken func(kind, token string) error

	Limits            Limits
	RequestLimits     RequestLimits
	Wait              httpx.WaitLimits
	DiscoveryMaxStale time.Duration
	SessionTTLMin     time.Duration // [10 s]
	AllowUnprintable  bool          // disable_http_unprintable_char_filter
	BlockEndpoints    []string
	AllowWriteFrom    []string
	ResponseHeaders   map[string]string
	NoCache           bool // http_config.use_cache is off: ?cached is answered fresh
	Pretty            bool // indent JSON without being asked: for a process that a person tries out
	TranslateWAN      bool // translate_wan_addrs: told to clients in a header

	Clock   clock.Clock
	Logger  *slog.Logger
	Metrics *telemetry.Registry
}

func (c *Config) complete() error {
	var wrong []error
	if c.Identity.Datacenter == "" {
		wrong = append(wrong, errors.New("consulapi: Identity.Datacenter is empty"))
	}
	c.Identity.Datacenter = strings.ToLower(c.Identity.Datacenter)
	if c.Registry == nil && c.Forward == nil {
		wrong = append(wrong, errors.New("consulapi: a client agent needs Forward"))
	}
	switch c.DefaultACLPolicy {
	case "":
		c.DefaultACLPolicy = "allow"
	case "allow", "deny":
	default:
		wrong = append(wrong, errors.New("consulapi: DefaultACLPolicy must be allow or deny"))
	}
	orDefault(&c.Limits.KVValueBytes, 512<<10)
	orDefault(&c.Limits.TxnBytes, 512<<10)
	c.Limits.TxnBytes = max(c.Limits.TxnBytes, c.Limits.KVValueBytes)
	orDefault(&c.Limits.BodyBytes, 1<<20)
	orDefault(&c.Limits.ListBytes, 8<<20)
	orDefault(&c.Limits.Streams, 4096)
	orDefault(&c.Limits.Watches, 65_536)
	orDefault(&c.Limits.StreamWatches, 4096)
	orDefault(&c.Limits.PathBytes, 8<<10)
	orDefault(&c.Limits.QueryBytes, 64<<10)
	orDefault(&c.SessionTTLMin, 10*time.Second)
	if c.Identity.PrimaryDatacenter == "" {
		c.Identity.PrimaryDatacenter = c.Identity.Datacenter
	}
	if c.Authorizer == nil {
		c.Authorizer = AllowAll{}
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(wrong...)
}

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
