// Package base is what servers and agents have in common, and what planes are built on: configuration, disk and clock
// through which faults come in, logs, metrics, the RPC port with its certificates, gossip, and the process's own
// tokens. New opens and starts nothing; Run runs everything that was added to Parts. It knows of no plane.
package base

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/core/hedge"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wan"
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

// Base is what servers and agents have in common: the doors to the outside, logs, telemetry, the wire with its RPCs,
// and gossip.
type Base struct {
	ID   string                        // the node's UUID
	Cfg  *config.Config                // as it was at the start; what may change is read from Current
	live atomic.Pointer[config.Config] // as Reload left it
	mu   sync.Mutex                    // one reload at a time
	Doors
	Logging
	Meters
	Network
	Gossip
	Certs   Certs
	Tokens  *Tokens
	Ports   *admission.Ports // what each port lets in
	Scripts *script.Engine   // runs what operators wrote in JavaScript
	Parts   life.Group       // what Run runs
}

// Doors are where faults come in: disk, clock and, inside of faults, network.
type Doors struct {
	Faults *fault.Injector
	FS     vfs.FS
	Clock  clock.Clock
}

// Logging is the process's log, and who follows it.
type Logging struct {
	Logs *logs.Logs
	Log  *slog.Logger
}

// Meters are the process's metrics, and where they are sent.
type Meters struct {
	Metrics *telemetry.Registry
	sinks   *sink.Set
}

// Network is the RPC port, and the clients of those of others.
type Network struct {
	Wire    *wire.Wire
	RPCSrv  *rpc.Server
	RPC     *rpc.Client
	Others  *hedge.Servers // any other server
	Members *rpc.Client    // to members that may be agents, whose certificates show no server's name
	Far     *wan.Paths     // to the servers of other datacenters; nil without a part in their pool
}

// New opens what needs no peer: files, logs, sockets. It starts nothing.
func New(in *fault.Injector, cfg *config.Config) (*Base, error) {
	b := &Base{Cfg: cfg, Scripts: script.New(script.Config{Command: cfg.ScriptCommand}),
		Doors:  Doors{Faults: in, FS: in.FS(), Clock: in.Clock()},
		Gossip: Gossip{added: map[string]string{}}}
	if cfg.Server && cfg.Monitor.Enabled {
		b.added["monitor"] = "1"
	}
	if cfg.Server && !cfg.Dev {
		b.added[TagAway] = "starts"
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
	b.Logs = logs.New(out, level, cfg.Logging.JSON)
	b.Logs.Keep(logs.KeptBytes)
	b.Log = b.Logs.Logger()
	if cfg.DataDir != "" {
		if err := b.FS.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return nil, fmt.Errorf("data_dir: %w", err)
		}
	}
	if b.ID, err = nodeid.Of(b.FS, cfg.DataDir, cfg.Node.ID, !cfg.Node.DisableHostID); err != nil {
		return nil, err
	}
	if b.Tokens, err = NewTokens(b.FS, cfg); err != nil {
		return nil, err
	}
	b.Metrics = telemetry.New(telemetry.Config{Settings: telemetrySettings(cfg), Clock: b.Clock, Logger: b.Log,
		Host: cfg.Node.Name, DataDir: cfg.DataDir})
	b.Ports = admission.New(&cfg.Limits, b.Metrics)
	if err := gometrics.Install(b.Metrics, in.Inline()); err != nil {
		return nil, err
	}
	if b.sinks, err = sink.New(sink.Config{Registry: b.Metrics, Settings: telemetrySettings(cfg), Host: cfg.Node.Name,
		Clock: b.Clock, Logger: b.Log}); err != nil {
		return nil, err
	}
	return b, b.openNetwork()
}

func (b *Base) openNetwork() error {
	cfg := b.Cfg
	id, err := b.identityFor(cfg)
	if err != nil {
		return err
	}
	b.Certs.End.Store(endOf(id))
	source := ""
	if id == nil {
		source = plainSource(cfg.Listen.RPC)
	}
	if b.Wire, err = wire.New(wire.Config{Bind: cfg.Listen.RPC, Source: source, TLS: id,
		HeaderTimeout: cfg.Limits.RPCHandshake, Conns: b.Ports.RPC,
		Faults: b.Faults.Net(), Log: b.Log, Metrics: b.Metrics}); err != nil {
		return fmt.Errorf("ports.server: %w", err)
	}
	b.RPCSrv = rpc.NewServer(rpc.ServerConfig{Log: b.Log, Bytes: b.Ports.Bytes})
	b.RPC = rpc.NewClient(rpc.ClientConfig{Timeout: cfg.Limits.RPCClient,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return b.Wire.Dial(ctx, addr, wire.ProtoRPC, 0)
		}})
	b.Members = rpc.NewClient(rpc.ClientConfig{Timeout: cfg.Limits.RPCClient,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return b.Wire.DialMember(ctx, addr, wire.ProtoRPC, 0)
		}})
	b.Others = hedge.New(b.RPC, b.OtherServers)
	profile := member.LAN
	if cfg.Dev {
		profile = member.Local
	}
	snapshot := ""
	if cfg.DataDir != "" {
		snapshot = filepath.Join(cfg.DataDir, "gossip", "members")
		if err := b.FS.MkdirAll(filepath.Dir(snapshot), 0o700); err != nil {
			return err
		}
	}
	b.Pool, err = member.New(member.Config{
		Name: cfg.Node.Name, Bind: cfg.Listen.Gossip, Advertise: cfg.Advertise.Addr, Tags: b.Tags(),
		Encrypt: cfg.Gossip.Encrypt, KeyringFile: InDir(cfg.DataDir, "gossip", "keyring"),
		PlainIncoming: !cfg.Gossip.VerifyIncoming, PlainOutgoing: !cfg.Gossip.VerifyOutgoing,
		SnapshotFile: snapshot, RejoinAfterLeave: cfg.Leave.RejoinAfterLeave, Profile: profile,
		ReconnectTimeout: cfg.Gossip.ReconnectTimeout, Accept: b.accept, Carry: b.carryKeys, Faults: b.Faults.Net(),
		FS: b.FS, Clock: b.Clock, Log: b.Log, Metrics: b.Metrics,
	})
	if err != nil {
		_ = b.Wire.Close()
	}
	return err
}

func InDir(dir string, names ...string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(append([]string{dir}, names...)...)
}

// RPCAddr is where others reach this process's RPC port.
func (b *Base) RPCAddr() string {
	host, _, err := net.SplitHostPort(b.Cfg.Advertise.RPC)
	if err != nil {
		host = b.Cfg.Advertise.Addr
	}
	return net.JoinHostPort(host, strconv.Itoa(b.RPCPort()))
}

func (b *Base) RPCPort() int { return b.Wire.Addr().(*net.TCPAddr).Port }

// AddCommon adds the parts that everything else stands on.
func (b *Base) AddCommon() {
	b.Parts.Add("faults", b.Faults.Run)
	b.Parts.Add("collector", func(ctx context.Context) error { return memory.KeepHeadroom(ctx, b.Ports.Bytes) })
	b.Parts.Add("logs", b.Logs.Run)
	b.Parts.Add("telemetry", b.Metrics.Run)
	b.Parts.Add("sinks", b.sinks.Run)
	b.Parts.Add("scripts", b.Scripts.Run)
	b.Parts.Add("wire", b.Wire.Run)
	b.Parts.Add("rpc", func(ctx context.Context) error {
		defer func() { _ = b.RPC.Close() }()
		defer func() { _ = b.Members.Close() }()
		return b.RPCSrv.Run(ctx, b.rpcListener())
	})
	b.Parts.Add("gossip", b.Pool.Run)
	b.Parts.Add("join", b.join)
}

func (b *Base) rpcListener() net.Listener { return b.Wire.Listen(wire.ProtoRPC, 0, wire.Federation) }

// Run runs all parts and writes the last log lines. An error that is quiet is not logged.
func (b *Base) Run(ctx context.Context, quiet error) error {
	err := b.Parts.Run(ctx)
	if err != nil && !errors.Is(err, quiet) {
		b.Log.Error("stopped with an error", "error", err)
	}
	b.Logs.Flush()
	return err
}

// Reload applies what may change while the process runs, all or nothing as far
// as it can fail.
func (b *Base) Reload(cfg *config.Config) error {
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
		if err := b.Wire.Reload(id); err != nil {
			return err
		}
		if end := endOf(id); end != 0 {
			b.Certs.End.Store(end)
		}
	}
	b.Logs.SetLevel(level)
	b.Tokens.Reload(&cfg.ACL)
	for _, key := range config.NeedsRestart(b.Cfg, cfg) {
		b.Log.Warn("this setting changes only with a restart", "key", key)
	}
	return nil
}

// Current is the configuration as the last reload left it.
func (b *Base) Current() *config.Config { return b.live.Load() }

// Keep makes a reloaded configuration the current one.
func (b *Base) Keep(cfg *config.Config) { b.live.Store(cfg) }

// plainSource is the address that a server without TLS dials from: the one that its peers know it by.
func plainSource(bind string) string {
	at, err := netip.ParseAddrPort(bind)
	if err != nil || at.Addr().IsUnspecified() || at.Addr().IsLoopback() || at.Addr().Zone() != "" {
		return ""
	}
	return at.Addr().String()
}
