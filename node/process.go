package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/core/hedge"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor/script"
	"corbel.dev/corbel/node/admission"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/logs"
	"corbel.dev/corbel/node/memory"
	"corbel.dev/corbel/node/nodeid"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/telemetry/gometrics"
	"corbel.dev/corbel/telemetry/sink"
)

// base is what servers and agents have in common: the doors to the outside,
// logs, telemetry, the wire with its RPCs, and gossip.
type base struct {
	cfg    *config.Config                // as it was at the start; what may change is read from live
	live   atomic.Pointer[config.Config] // as Reload left it
	mu     sync.Mutex                    // one reload at a time
	id     string                        // the node's UUID
	faults *fault.Injector
	fs     vfs.FS
	clock  clock.Clock
	logs   *logs.Logs
	log    *slog.Logger

	tokens  *ownTokens
	certEnd atomic.Int64 // when the certificate of the RPC port ends, in Unix seconds; 0 without one
	// enrolled is the certificate that a client agent got from a server; guests judges, on a server, agents that show one.
	enrolled enrolled
	guests   atomic.Pointer[wire.Guests]
	metrics  *telemetry.Registry
	ports    *admission.Ports // what each port lets in
	sinks    *sink.Set
	wire     *wire.Wire
	rpcSrv   *rpc.Server
	rpc      *rpc.Client
	members  *rpc.Client // to members that may be agents, whose certificates show no server's name
	others   *hedge.Servers
	pool     *member.Pool
	scripts  *script.Engine // runs what operators wrote in JavaScript
	parts    life.Group
	started  time.Time

	tagMu sync.Mutex        // guards added; held while the pool is told, so that the last word is the newest
	added map[string]string // tags that come and go while the process runs
}

// newBase opens what needs no peer: files, logs, sockets. tags are this
// process's gossip tags, made once its RPC address is known.
func newBase(cfg *config.Config) (*base, error) {
	in, err := fault.FromEnv()
	if err != nil {
		return nil, err
	}
	cfg, known, err := introduced(in.FS(), cfg)
	if err != nil {
		return nil, err
	}
	b := &base{cfg: cfg, scripts: script.New(script.Config{Command: cfg.ScriptCommand}), faults: in, fs: in.FS(),
		clock: in.Clock(), started: time.Now(), added: map[string]string{}}
	if known != nil {
		b.enrolled.now.Store(known.certificate(b.clock.Now()))
	}
	if cfg.Server && !cfg.Dev {
		b.added[tagAway] = "starts"
	}
	b.live.Store(cfg)
	level, ok := logs.ParseLevel(cfg.Logging.Level)
	if !ok {
		return nil, fmt.Errorf("log_level: %q is none of TRACE, DEBUG, INFO, WARN, ERROR", cfg.Logging.Level)
	}
	out, err := logs.Writer(&cfg.Logging, in.Clock())
	if err != nil {
		return nil, err
	}
	b.logs = logs.New(out, level, cfg.Logging.JSON)
	b.log = b.logs.Logger()
	if cfg.DataDir != "" {
		if err := b.fs.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return nil, fmt.Errorf("data_dir: %w", err)
		}
	}
	if b.id, err = nodeid.Of(b.fs, cfg.DataDir, cfg.Node.ID, !cfg.Node.DisableHostID); err != nil {
		return nil, err
	}
	if b.tokens, err = newOwnTokens(b.fs, cfg); err != nil {
		return nil, err
	}
	b.metrics = telemetry.New(telemetry.Config{Settings: telemetrySettings(cfg), Clock: b.clock, Logger: b.log,
		Host: cfg.Node.Name, DataDir: cfg.DataDir})
	b.ports = admission.New(&cfg.Limits, b.metrics)
	if err := gometrics.Install(b.metrics, in.Inline()); err != nil {
		return nil, err
	}
	if b.sinks, err = sink.New(sink.Config{Registry: b.metrics, Settings: telemetrySettings(cfg), Host: cfg.Node.Name,
		Clock: b.clock, Logger: b.log}); err != nil {
		return nil, err
	}
	return b, b.openNetwork()
}

func (b *base) openNetwork() error {
	cfg := b.cfg
	id, err := b.identityFor(cfg)
	if err != nil {
		return err
	}
	b.certEnd.Store(endOf(id))
	source := ""
	if id == nil {
		source = plainSource(cfg.Listen.RPC)
	}
	if b.wire, err = wire.New(wire.Config{Bind: cfg.Listen.RPC, Source: source, TLS: id,
		HeaderTimeout: cfg.Limits.RPCHandshake, Conns: b.ports.RPC,
		Faults: b.faults.Net(), Log: b.log, Metrics: b.metrics}); err != nil {
		return fmt.Errorf("ports.server: %w", err)
	}
	b.rpcSrv = rpc.NewServer(rpc.ServerConfig{Log: b.log, Bytes: b.ports.Bytes})
	b.rpc = rpc.NewClient(rpc.ClientConfig{Timeout: cfg.Limits.RPCClient,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return b.wire.Dial(ctx, addr, wire.ProtoRPC, 0)
		}})
	b.members = rpc.NewClient(rpc.ClientConfig{Timeout: cfg.Limits.RPCClient,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return b.wire.DialMember(ctx, addr, wire.ProtoRPC, 0)
		}})
	b.others = hedge.New(b.rpc, b.otherServers)
	profile := member.LAN
	if cfg.Dev {
		profile = member.Local
	}
	snapshot := ""
	if cfg.DataDir != "" {
		snapshot = filepath.Join(cfg.DataDir, "gossip", "members")
		if err := b.fs.MkdirAll(filepath.Dir(snapshot), 0o700); err != nil {
			return err
		}
	}
	b.pool, err = member.New(member.Config{
		Name: cfg.Node.Name, Bind: cfg.Listen.Gossip, Advertise: cfg.Advertise.Addr, Tags: b.tags(),
		Encrypt: cfg.Gossip.Encrypt, KeyringFile: inDir(cfg.DataDir, "gossip", "keyring"),
		PlainIncoming: !cfg.Gossip.VerifyIncoming, PlainOutgoing: !cfg.Gossip.VerifyOutgoing,
		SnapshotFile: snapshot, RejoinAfterLeave: cfg.Leave.RejoinAfterLeave, Profile: profile,
		ReconnectTimeout: cfg.Gossip.ReconnectTimeout, Accept: b.accept, Carry: b.carryKeys, Faults: b.faults.Net(),
		FS: b.fs, Clock: b.clock, Log: b.log, Metrics: b.metrics,
	})
	if err != nil {
		_ = b.wire.Close()
	}
	return err
}

func inDir(dir string, names ...string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(append([]string{dir}, names...)...)
}

// accept refuses members of other datacenters: their names and indexes mean other things.
func (b *base) accept(m member.Member) error {
	if dc := m.Tags["dc"]; dc != "" && dc != b.cfg.Node.Datacenter {
		return fmt.Errorf("member %s belongs to datacenter %s, this one is %s", m.Name, dc, b.cfg.Node.Datacenter)
	}
	return nil
}

// rpcAddr is where others reach this process's RPC port.
func (b *base) rpcAddr() string {
	host, _, err := net.SplitHostPort(b.cfg.Advertise.RPC)
	if err != nil {
		host = b.cfg.Advertise.Addr
	}
	return net.JoinHostPort(host, strconv.Itoa(b.rpcPort()))
}

func (b *base) rpcPort() int { return b.wire.Addr().(*net.TCPAddr).Port }

// addCommon adds the parts that everything else stands on.
func (b *base) addCommon() {
	b.parts.Add("faults", b.faults.Run)
	b.parts.Add("collector", func(ctx context.Context) error { return memory.KeepHeadroom(ctx, b.ports.Bytes) })
	b.parts.Add("logs", b.logs.Run)
	b.parts.Add("telemetry", b.metrics.Run)
	b.parts.Add("sinks", b.sinks.Run)
	b.parts.Add("scripts", b.scripts.Run)
	b.parts.Add("wire", b.wire.Run)
	b.parts.Add("rpc", func(ctx context.Context) error {
		defer func() { _ = b.rpc.Close() }()
		defer func() { _ = b.members.Close() }()
		return b.rpcSrv.Run(ctx, b.rpcListener())
	})
	b.parts.Add("gossip", b.pool.Run)
	b.parts.Add("join", b.join)
}

func (b *base) rpcListener() net.Listener { return b.wire.Listen(wire.ProtoRPC, 0, wire.Federation) }

// join joins the pool as start_join and retry_join say.
func (b *base) join(ctx context.Context) error {
	g := &b.cfg.Gossip
	return joinPool(ctx, b.pool, joinPlan{start: g.StartJoin, retry: g.RetryJoin, interval: g.RetryInterval,
		most: g.RetryMax})
}

// joinPlan is whom to join; suffix ends the names of the keys in errors.
type joinPlan struct {
	start, retry []string
	interval     time.Duration
	most         int
	suffix       string
}

// joinPool joins a pool that Run has opened, and waits for ctx to end.
func joinPool(ctx context.Context, pool *member.Pool, plan joinPlan) error {
	select {
	case <-pool.Ready():
	case <-ctx.Done():
		return nil
	}
	if len(plan.start) > 0 {
		if _, err := pool.Join(ctx, plan.start); err != nil && ctx.Err() == nil {
			return fmt.Errorf("start_join%s: %w", plan.suffix, err)
		}
	}
	if len(plan.retry) > 0 {
		// Joining the same pool quickly matters most in its first seconds.
		err := pool.JoinRetry(ctx, plan.retry, min(plan.interval, time.Second), 10)
		if err != nil && ctx.Err() == nil {
			err = pool.JoinRetry(ctx, plan.retry, plan.interval, plan.most)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("retry_join%s: %w", plan.suffix, err)
		}
	}
	<-ctx.Done()
	return nil
}

// run runs all parts and writes the last log lines.
func (b *base) run(ctx context.Context) error {
	err := b.parts.Run(ctx)
	if err != nil && !errors.Is(err, errLeft) {
		b.log.Error("stopped with an error", "error", err)
	}
	b.logs.Flush()
	return err
}

// reload applies what may change while the process runs, all or nothing as far
// as it can fail.
func (b *base) reload(cfg *config.Config) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	level, ok := logs.ParseLevel(cfg.Logging.Level)
	if !ok {
		return fmt.Errorf("log_level: %q is unknown", cfg.Logging.Level)
	}
	id, err := b.identityFor(cfg)
	if err != nil {
		return err
	}
	if err := b.sinks.Reload(telemetrySettings(cfg)); err != nil {
		return err
	}
	if id != nil {
		if err := b.wire.Reload(id); err != nil {
			return err
		}
		if end := endOf(id); end != 0 {
			b.certEnd.Store(end)
		}
	}
	b.logs.SetLevel(level)
	b.tokens.reload(&cfg.ACL)
	for _, key := range config.NeedsRestart(b.cfg, cfg) {
		b.log.Warn("this setting changes only with a restart", "key", key)
	}
	return nil
}

// current is the configuration as the last reload left it.
func (b *base) current() *config.Config { return b.live.Load() }

// keep makes a reloaded configuration the current one.
func (b *base) keep(cfg *config.Config) { b.live.Store(cfg) }

var errNoData = errors.New("data_dir: is required")
