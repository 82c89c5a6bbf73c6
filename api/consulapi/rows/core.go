// Package rows is what the rows of the contract share: a Request with its caller's rights, how it reads (consistency,
// blocking, headers), its body, its answer, and the way to who knows better; the Table in which rows are found; and
// the Core, which is one a process.
//
// Invariants:
//   - A row asks for rights (Allow, Sees) before it touches anything. A parked request asks for all of them again when
//     it wakes.
//   - The State that Read returns is the one to answer from. Index functions are pure functions of a State.
//   - A parked request holds no buffer. A row keeps no reference to its Request.
//   - An answer that many ask for is encoded once per version of its content and class of rights (ReplyShared).
//
// A row package has a type Rows with New and Routes; its needs stand in its Config. It starts no goroutines. Rows that
// answer alike on the path without net/http (api/consulapi/short) are functions of a State, not of a Request.
package rows

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/telemetry"
)

// Config is what all rows share. Registry is nil on a client agent, which then needs Forward.
type Config struct {
	Identity Identity
	Registry Registry
	// LeaderChanges returns a channel that is closed at the next change of who leads; nil on a client agent.
	LeaderChanges func() <-chan struct{}
	Forward       Forwarder
	Remote        Datacenters // nil: this datacenter is the only one

	Authorizer       Authorizer // nil: AllowAll
	DefaultACLPolicy string     // "allow" when empty
	DefaultToken     func() string

	Limits            Limits
	RequestLimits     RequestLimits
	Wait              httpx.WaitLimits
	DiscoveryMaxStale time.Duration
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
	OrDefault(&c.Limits.KVValueBytes, 512<<10)
	OrDefault(&c.Limits.TxnBytes, 512<<10)
	c.Limits.TxnBytes = max(c.Limits.TxnBytes, c.Limits.KVValueBytes)
	OrDefault(&c.Limits.BodyBytes, 1<<20)
	OrDefault(&c.Limits.ListBytes, 8<<20)
	OrDefault(&c.Limits.Streams, 4096)
	OrDefault(&c.Limits.Watches, 65_536)
	OrDefault(&c.Limits.StreamWatches, 4096)
	OrDefault(&c.Limits.PathBytes, 8<<10)
	OrDefault(&c.Limits.QueryBytes, 64<<10)
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

// Core is what the requests of one process share.
type Core struct {
	Config
	// self answers what rows themselves ask of this process, as a client would be answered.
	Self func(w *Recorder, r *http.Request)

	Bodies   *httpx.BodyCache
	filters  filterCache
	outgoing outgoing
	// discoveryStale is discovery_max_stale of now.
	discoveryStale              atomic.Int64
	Open                        bool // every request has every right
	Parked                      atomic.Int64
	Policy                      []string // value of X-Consul-Default-ACL-Policy
	admission                   requestLimits
	Reads                       *telemetry.Stages // of one kind; writes are accounted for where they are proposed
	Queries, Failures, Requests *telemetry.Counter
	// Notified is for the blocking queries that have timings of their own.
	Notified struct {
		KVPrefix *NotifyTimings // of the kv endpoint that read a prefix
		Watch    *NotifyTimings // of /v1/watch
	}
}

// New checks the configuration; it starts nothing.
func New(cfg Config) (*Core, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	m := cfg.Metrics
	c := &Core{
		Config: cfg, Bodies: &httpx.BodyCache{MaxBytes: cfg.Limits.CacheBytes}, Policy: []string{cfg.DefaultACLPolicy},
		admission: newRequestLimits(m, cfg.Clock), Reads: m.Stages("catalog", "read"),
		Queries: m.Counter("rpc.query"), Requests: m.Counter("rpc.request"), Failures: m.Counter("rpc.request_error"),
	}
	c.Notified.KVPrefix, c.Notified.Watch = notifyOf(m, "kv-prefix"), notifyOf(m, "watch")
	c.SetRequestLimits(cfg.RequestLimits)
	_, c.Open = cfg.Authorizer.(AllowAll)
	c.outgoing.meter(m)
	c.discoveryStale.Store(int64(cfg.DiscoveryMaxStale))
	m.GaugeFunc("rpc.queries_blocking", func() float64 { return float64(c.Parked.Load()) })
	return c, nil
}

// Blocking returns how many blocking queries are parked.
func (c *Core) Blocking() int { return int(c.Parked.Load()) }

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

// OrDefault sets a value that is zero.
func OrDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// AskServers asks with a token: this process where it is a server, else one of them.
func (c *Core) AskServers(ctx context.Context, method, path string, body []byte, token string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.RequestURI, r.RemoteAddr = path, "127.0.0.1:0"
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	told := &Recorder{}
	if c.Registry != nil {
		c.Self(told, r)
	} else if c.Forward == nil {
		return nil, answer.ErrNoServers
	} else if err := c.Forward.Forward(told, r, false); err != nil {
		return nil, err
	}
	if told.Status != http.StatusOK {
		return nil, answer.FailAs(told.Status, told.Header(), told.Body)
	}
	return bytes.TrimSpace(told.Body), nil
}

// Apply proposes a command; what the catalog refuses is an error.
func (q *Request) Apply(cmd catalog.Command) (catalog.Result, error) {
	q.Requests.Add(1)
	return q.Propose(q.R.Context(), cmd)
}

// Propose is Apply for what is not a Request: it is not counted.
func (c *Core) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	res, err := c.Registry.Apply(ctx, cmd)
	if err == nil && res.Err != nil {
		err = answer.Refused(res.Err)
	}
	return res, err
}

// SetRecords proposes the operations, all or none. It is false when an index did not compare.
func (q *Request) SetRecords(ops ...catalog.RecordOp) (bool, error) {
	res, err := q.Registry.Apply(q.R.Context(), &catalog.Records{Ops: ops})
	if err == nil {
		err = res.Err
	}
	if err != nil {
		return false, answer.Refused(err)
	}
	return res.OK, nil
}

// ReadRecords is Read for an answer that depends on all records of a kind.
func (q *Request) ReadRecords(kind catalog.RecordKind) (*statestore.State, error) {
	return q.Read(registry.RecordsSubject(kind), func(s *statestore.State) uint64 { return s.RecordsIndex(kind) })
}

// ReadRecord is Read for an answer that depends on one record.
func (q *Request) ReadRecord(kind catalog.RecordKind, key string) (*statestore.State, error) {
	return q.Read(registry.RecordSubject(kind, key), func(s *statestore.State) uint64 { return s.RecordIndex(kind, key) })
}

// Done answers a change that gives nothing back.
func (q *Request) Done(err error) error {
	if err != nil {
		return err
	}
	return q.ReplyBool(true)
}
