package secretsplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-sockaddr/template"

	"corbel.dev/corbel/api/vaultapi"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/admission"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/logs"
	"corbel.dev/corbel/node/memory"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/planes/secrets/registration"
	"corbel.dev/corbel/node/planes/secrets/seals"
	"corbel.dev/corbel/node/vaultconf"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/cluster"
	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/secrets/plugins/plughost"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/telemetry/gometrics"
	"corbel.dev/corbel/telemetry/sink"
)

// Server is a process that runs the secrets plane and nothing else, by a configuration in Vault's words.
type Server struct {
	cfg     *vaultconf.Config
	logs    *logs.Logs
	log     *slog.Logger
	faults  *fault.Injector
	metrics *telemetry.Registry
	shared
	sinks   *sink.Set
	wire    *wire.Wire
	plane   *secretsPlane
	tls     []*listenerTLS // of the listeners that have any
	parts   life.Group
	apiAddr string
	raftID  string       // of this server in a Raft storage
	peer    string       // where other servers reach the wire
	doctor  *vaultDoctor // nil within a process that has a doctor of its own
}

// API answers what its ports answer.
func (s *Server) API() http.Handler { return s.plane.api }

// shared is what a server has of the process that it is part of.
type shared struct {
	admits *admission.Ports
	front  func(http.Handler) http.Handler
	// Page is what the ports serve beside the API, set before Run; nil within a process that has one for all planes.
	Page *plane.Front
}

// NewServer opens storage and ports. Log lines go to out.
func NewServer(cfg *vaultconf.Config, out io.Writer) (*Server, error) {
	faults, err := fault.FromEnv()
	if err != nil {
		return nil, err
	}
	front := &plane.Front{}
	s, err := newServer(cfg, out, &vaultDoctor{}, faults, shared{front: front.Before, Page: front})
	if err == nil {
		s.parts.Add("faults", faults.Run)
	}
	return s, err
}

// newServer makes one; where d is nil it is part of a process, which runs the faults, and whose budgets it shares.
func newServer(cfg *vaultconf.Config, out io.Writer, d *vaultDoctor, faults *fault.Injector,
	with shared) (s *Server, err error) {
	s = &Server{cfg: cfg, doctor: d, faults: faults, shared: with}
	if err := checkSettings(cfg); err != nil {
		return nil, err
	}
	if err := s.openLogs(out); err != nil {
		return nil, err
	}
	settings := vaultTelemetry(&cfg.Telemetry)
	s.metrics = telemetry.New(telemetry.Config{Settings: settings, Clock: s.faults.Clock(), Logger: s.log,
		Host: hostname()})
	if d != nil {
		s.admits = admission.New(&cfg.Limits, s.metrics)
	}
	if err := gometrics.Install(s.metrics, s.faults.Inline()); err != nil {
		return nil, err
	}
	if s.sinks, err = sink.New(sink.Config{Registry: s.metrics, Settings: settings, Host: hostname(),
		Clock: s.faults.Clock(), Logger: s.log}); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	for _, w := range cfg.Warnings { // last: storage and seals have read their keys too
		s.log.Warn("configuration: " + w)
	}
	return s, nil
}

func (s *Server) openLogs(out io.Writer) error {
	level, err := vaultLevel(s.cfg)
	if err != nil {
		return err
	}
	if s.cfg.LogFile != "" {
		out, err = logs.WithFile(out, &config.Logging{File: s.cfg.LogFile, RotateBytes: s.cfg.LogRotateBytes,
			RotateInterval: s.cfg.LogRotateAfter, RotateMaxFiles: s.cfg.LogRotateFiles}, clock.Real{})
		if err != nil {
			return err
		}
	}
	s.logs = logs.New(out, level, s.cfg.LogJSON)
	s.log = s.logs.Logger()
	return nil
}

// requestLog tells of each request that was answered, at the level of log_requests_level; nil: nobody asked.
func (s *Server) requestLog() (func(r *http.Request, status int, took time.Duration), error) {
	name := strings.ToLower(s.cfg.LogRequestsLevel)
	if name == "" || name == "off" {
		return nil, nil
	}
	level, ok := logs.ParseLevel(name)
	if !ok {
		return nil, fmt.Errorf("log_requests_level: %q must be off, trace, debug, info, warn or error", name)
	}
	return func(r *http.Request, status int, took time.Duration) {
		s.log.Log(r.Context(), level, "completed_request", "client_address", r.RemoteAddr, "method", r.Method, "request_path",
			r.URL.Path, "status_code", status, "duration", took)
	}, nil
}

func vaultLevel(cfg *vaultconf.Config) (slog.Level, error) {
	name := cfg.LogLevel
	if name == "" {
		name = "info"
	}
	level, ok := logs.ParseLevel(name)
	if !ok {
		return 0, fmt.Errorf("log_level: %q must be trace, debug, info, warn or error", name)
	}
	return level, nil
}

func vaultTelemetry(t *vaultconf.Telemetry) telemetry.Settings {
	return telemetry.Settings{StatsdAddress: t.StatsdAddress, StatsiteAddress: t.StatsiteAddress,
		DogstatsdAddr: t.DogstatsdAddr, OTLPTracesEndpoint: t.OTLPTracesEndpoint, DogstatsdTags: t.DogstatsdTags,
		PrometheusRetentionTime: t.PrometheusRetention, DisableHostname: t.DisableHostname,
		EnableHostnameLabel: t.HostnameLabel, MetricsPrefix: t.Prefix, PrefixFilter: t.PrefixFilter,
		FilterDefault: &t.FilterDefault, DisableDoctor: t.DisableDoctor}
}

// open makes the graph: wire, storage, plane, ports. On an error nothing stays open.
func (s *Server) open() (err error) {
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err = s.openWire(); err != nil {
		return err
	}
	host := &secretsHost{fs: s.faults.FS(), clock: s.faults.Clock(), log: s.log, metrics: s.metrics, wire: s.wire,
		address: s.peer, own: true, wait: true}
	store, err := openStorage(context.Background(), host, s.cfg.Storage)
	if err != nil {
		return err
	}
	locks, err := seals.Open(s.cfg.Seals, os.Getenv, s.log)
	entry, wrong := registration.Of(s.cfg, os.Getenv)
	programs, missing := plughost.Open(s.cfg.PluginDir, s.cfg.PluginTmp, s.log)
	if err = errors.Join(err, wrong, missing); err != nil {
		_ = store.backend.Close()
		return err
	}
	store.parts = append(append(store.parts, locks.Parts...), entry.Parts(s.apiAddr, s.log,
		func(ctx context.Context) (registration.State, error) { return s.plane.state(ctx) })...)
	id := s.peer
	if store.raft != nil {
		id = store.raft.ID()
		s.raftID = id
	}
	ports, err := s.ports()
	if err != nil {
		_ = store.backend.Close()
		return err
	}
	c := secretsConfig{store: store, clock: s.faults.Clock(), log: s.log, metrics: s.metrics, admits: s.admits,
		front: s.front, sockets: s.cfg.Sockets,
		wire: s.wire, encrypted: true, standbys: s.cfg.StandbyReads, ports: ports,
		keeper: keeper.Config{DefaultTTL: s.cfg.DefaultLeaseTTL, MaxTTL: s.cfg.MaxLeaseTTL, ClusterName: s.cfg.ClusterName,
			Seal: locks.Now, OldSeal: locks.Old, Metrics: s.metrics, Repeat: s.faults.Repeat,
			Audit: audit.Rules{Folder: s.cfg.AuditDir, Unsafe: s.cfg.AuditAnywhere, Prefix: s.cfg.AuditPrefix},
			Local: keeper.Local{Follow: s.logs.Follow, Settings: s.sanitized, Level: s.logs, LevelAtStart: s.logs.Level()}},
		self: cluster.Server{ID: id, Hostname: hostname(), APIAddr: s.apiAddr, ClusterAddr: s.peer,
			Version: version.VaultContract},
	}
	c.keeper.Plugins = programs
	c.keeper.Audits, c.keeper.Usage = declaredAudits(s.cfg), keeper.UsageRules(s.cfg.Telemetry.Usage)
	c.keeper.Lockouts, c.keeper.NoLockout = lockouts(s.cfg), s.cfg.NoLockout
	if s.cfg.DisableCache {
		c.keeper.CacheBytes = -1
	}
	c.api.Listener = handedRules(ports)
	if c.api.RequestLog, err = s.requestLog(); err == nil {
		s.plane, err = s.doctor.plane(s, c)
	}
	if err != nil {
		_ = store.backend.Close()
		return err
	}
	if err := s.plane.http.Bind(); err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	s.addParts()
	return nil
}

// lockouts are the configuration's rules of user lockout.
func lockouts(cfg *vaultconf.Config) map[string]auth.LockoutRules {
	out := map[string]auth.LockoutRules{}
	for name, l := range cfg.Lockouts {
		out[name] = auth.LockoutRules{After: l.Threshold, For: l.Duration, Reset: l.CounterReset, Off: l.Disable}
	}
	return out
}

// declaredAudits are the configuration's devices.
func declaredAudits(cfg *vaultconf.Config) (list []audit.Config) {
	for _, a := range cfg.Audits {
		list = append(list, audit.Config{Path: a.Path, Type: a.Type, Description: a.Description, Options: a.Options,
			Local: a.Local})
	}
	return list
}

func (s *Server) addParts() {
	s.parts.Add("collector", func(ctx context.Context) error { return memory.KeepHeadroom(ctx, s.admits.Bytes) })
	s.parts.Add("logs", s.logs.Run)
	s.parts.Add("telemetry", s.metrics.Run)
	s.parts.Add("sinks", s.sinks.Run)
	if s.wire != nil {
		s.parts.Add("wire", s.wire.Run)
	}
	for _, part := range s.plane.store.parts {
		s.parts.Add(part.Name, part.Run)
	}
	if s.doctor != nil {
		s.parts.Add("doctor", s.doctor.examiner.Run)
	}
	s.parts.Add("secrets", s.plane.run)
	s.parts.Add("ready", func(ctx context.Context) error {
		s.log.Info("corbel "+version.Number+" runs the secrets plane", "api", s.apiAddr, "listen",
			fmt.Sprint(s.plane.http.Addrs()), "cluster", s.peer)
		<-ctx.Done()
		return nil
	})
}

func (s *Server) close() {
	if s.plane != nil {
		_ = s.plane.store.backend.Close()
	}
	if s.wire != nil {
		_ = s.wire.Close()
	}
}

// openWire opens the cluster port where the storage is one that servers share, and works out both addresses.
func (s *Server) openWire() error {
	l := &s.cfg.Listeners[0]
	s.apiAddr = s.cfg.APIAddr
	if s.apiAddr == "" {
		s.apiAddr = listenerURL(l)
	}
	if s.cfg.Storage.Type == "inmem" || s.cfg.Storage.Type == "file" {
		return nil
	}
	bind := l.ClusterAddress
	if bind == "" {
		var err error
		if bind, err = vaultconf.NextPort(l.Address); err != nil {
			return fmt.Errorf("listener.cluster_address: is needed beside the address %s", l.Address)
		}
	}
	var err error
	if s.wire, err = wire.New(wire.Config{Bind: bind, TLS: cluster.Nobody(), Conns: s.admits.RPC,
		Faults: s.faults.Net(), Log: s.log, Metrics: s.metrics}); err != nil {
		return fmt.Errorf("listener.cluster_address: %w", err)
	}
	host, port, err := net.SplitHostPort(s.wire.Addr().String())
	if err != nil {
		return err
	}
	if s.cfg.ClusterAddr != "" {
		u, err := url.Parse(s.cfg.ClusterAddr)
		if err != nil || u.Host == "" {
			return fmt.Errorf("cluster_addr: %q must be a URL such as https://10.0.0.1:8201", s.cfg.ClusterAddr)
		}
		host = u.Hostname()
		if p := u.Port(); p != "" && p != "0" {
			port = p
		}
	} else if u, err := url.Parse(s.apiAddr); err == nil && u.Hostname() != "" {
		host = u.Hostname()
	}
	s.peer = net.JoinHostPort(dialable(host), port)
	return nil
}

// listenerURL is where clients reach a listener that has no other address.
func listenerURL(l *vaultconf.Listener) string {
	scheme := "https"
	if l.TLS.Disable {
		scheme = "http"
	}
	host, port, err := net.SplitHostPort(l.Address)
	if err != nil {
		return ""
	}
	return scheme + "://" + net.JoinHostPort(dialable(host), port)
}

// dialable replaces "all addresses" by the private one of this machine.
func dialable(host string) string {
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return host
	}
	out, err := template.Parse("{{ GetPrivateIP }}")
	if err != nil || out == "" {
		return "127.0.0.1"
	}
	return out
}

// Run serves until ctx ends; then it gives way, seals and stops.
func (s *Server) Run(ctx context.Context) error {
	if s.cfg.PIDFile != "" {
		if err := os.WriteFile(s.cfg.PIDFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
			return fmt.Errorf("pid_file: %w", err)
		}
		defer func() { _ = os.Remove(s.cfg.PIDFile) }()
	}
	err := s.parts.Run(ctx)
	if closeErr := s.plane.store.backend.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		s.log.Error("stopped with an error", "error", err)
	}
	s.logs.Flush()
	return err
}

// Addr is where clients are served first.
func (s *Server) Addr() net.Addr { return s.plane.http.Addrs()[0] }

// Describe gives pairs of what the server is, for the banner.
func (s *Server) Describe() [][2]string {
	out := [][2]string{{"Api Address", s.apiAddr}}
	if s.wire != nil {
		out = append(out, [2]string{"Cluster Address", "https://" + s.peer})
	}
	for i, l := range s.cfg.Listeners {
		state := "enabled"
		if l.TLS.Disable {
			state = "disabled"
		}
		out = append(out, [2]string{fmt.Sprintf("Listener %d", i+1), fmt.Sprintf("%s (addr: %q, tls: %q)", l.Type,
			l.Address, state)})
	}
	return append(out, [2]string{"Storage", s.cfg.Storage.Type},
		[2]string{"Version", "Vault v" + version.VaultContract + " (Corbel " + version.Number + ")"})
}

// reloadWithin bounds what a reload has to store.
const reloadWithin = 10 * time.Second

// Reload takes the log level and the listeners' certificates from a fresh configuration, all or nothing.
func (s *Server) Reload(cfg *vaultconf.Config) error {
	level, err := vaultLevel(cfg)
	if err != nil {
		return err
	}
	fresh := make([]*tls.Config, len(s.tls))
	for i, l := range s.tls {
		if l.at >= len(cfg.Listeners) || cfg.Listeners[l.at].TLS.Disable {
			return errors.New("listener: their number and tls_disable change only with a restart")
		}
		if fresh[i], err = vaultTLS(&cfg.Listeners[l.at].TLS); err != nil {
			return err
		}
	}
	if len(cfg.Listeners) != len(s.plane.http.apis) {
		return errors.New("listener: their number and tls_disable change only with a restart")
	}
	headers := make([]*vaultapi.ResponseHeaders, len(cfg.Listeners))
	for i := range cfg.Listeners {
		if headers[i], err = vaultapi.NewResponseHeaders(cfg.Listeners[i].ResponseHeaders, s.ownHeaders()); err != nil {
			return fmt.Errorf("listener: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), reloadWithin)
	defer cancel()
	if err := s.plane.keeper.DeclareAudits(ctx, declaredAudits(cfg)); err != nil {
		return err
	}
	settings := vaultTelemetry(&cfg.Telemetry)
	if err := s.sinks.Reload(settings); err != nil {
		return err
	}
	for i, h := range headers {
		s.plane.http.apis[i].SetHeaders(h)
	}
	for i, l := range s.tls {
		l.now.Store(fresh[i])
	}
	if s.logs.SetLevel(level); s.doctor != nil {
		s.admits.Reload(&cfg.Limits)
	}
	if err := s.plane.keeper.ReopenAudits(); err != nil {
		s.log.Error("an audit device could not be opened again", "error", err)
	}
	s.log.Info("configuration reloaded: log level, certificates and headers of listeners, telemetry, audit devices and " +
		"their files")
	return nil
}

// sanitized is the configuration without what is secret in it: of storage and seals their types alone.
func (s *Server) sanitized() map[string]any {
	listeners := []any{}
	for i := range s.cfg.Listeners {
		l := &s.cfg.Listeners[i]
		listeners = append(listeners, map[string]any{"type": l.Type, "config": map[string]any{"address": l.Address,
			"cluster_address": l.ClusterAddress, "tls_disable": l.TLS.Disable,
			"tls_cert_file": l.TLS.CertFile, "tls_key_file": l.TLS.KeyFile}})
	}
	seals := []any{}
	for _, b := range s.cfg.Seals {
		seals = append(seals, map[string]any{"type": b.Type})
	}
	return map[string]any{"storage": map[string]any{"type": s.cfg.Storage.Type, "cluster_addr": s.cfg.ClusterAddr,
		"redirect_addr": s.apiAddr, "disable_clustering": s.cfg.DisableClustering},
		"listeners": listeners, "seals": seals, "api_addr": s.apiAddr, "cluster_addr": s.cfg.ClusterAddr,
		"cluster_name": s.cfg.ClusterName, "log_level": s.cfg.LogLevel,
		"log_format": map[bool]string{true: "json", false: "standard"}[s.cfg.LogJSON], "pid_file": s.cfg.PIDFile,
		"enable_ui": s.cfg.UI, "disable_cache": s.cfg.DisableCache,
		"default_lease_ttl":            int64(s.cfg.DefaultLeaseTTL / time.Second),
		"max_lease_ttl":                int64(s.cfg.MaxLeaseTTL / time.Second),
		"default_max_request_duration": int64(s.cfg.MaxRequestDuration / time.Second),
		"raw_storage_endpoint":         s.cfg.RawStorageEndpoint, "introspection_endpoint": s.cfg.Introspection,
		"telemetry": map[string]any{"statsd_address": s.cfg.Telemetry.StatsdAddress,
			"statsite_address": s.cfg.Telemetry.StatsiteAddress, "dogstatsd_addr": s.cfg.Telemetry.DogstatsdAddr,
			"disable_hostname": s.cfg.Telemetry.DisableHostname, "enable_hostname_label": s.cfg.Telemetry.HostnameLabel,
			"usage_gauge_period":        int64(max(s.cfg.Telemetry.Usage.Every, 0) / time.Second),
			"maximum_gauge_cardinality": s.cfg.Telemetry.Usage.Most, "metrics_prefix": s.cfg.Telemetry.Prefix}}
}
