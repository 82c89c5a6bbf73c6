package agentconf

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/agent"
)

// Config is an agent's configuration, read and checked.
type Config struct {
	Agent                    agent.Config
	AssetsRate               float64
	AssetsBurst              int
	LogLevel                 string
	Warnings                 []string
	BackendURLs              []string
	CacheDir                 string
	TrustedCA, Cert, CertKey string
	ScriptCommand            []string // starts the child that runs operators' JavaScript; the command line sets it
}

// defaultPort is a backend's where its URL names none.
const defaultPort = "8081"

// Load reads the configuration. The error names all that is wrong.
func Load(flags []Given, getenv func(string) string) (*Config, error) {
	s := read(flags, getenv)
	c := &Config{AssetsRate: s.float("assets-rate-limit"), AssetsBurst: int(s.number("assets-burst-limit", 1<<20)),
		LogLevel: s.logLevel(), CacheDir: s.text("cache-dir"),
		TrustedCA: s.text("trusted-ca-file"), Cert: s.text("cert-file"), CertKey: s.text("key-file")}
	c.BackendURLs = s.backends()
	name := s.text("name")
	if name == "" {
		name, _ = os.Hostname() // an empty one is refused below
	}
	c.Agent = agent.Config{
		Entity: agent.Entity{Name: name, Namespace: s.text("namespace"), Subscriptions: s.list("subscriptions"),
			Labels: s.mapOf("labels"), Annotations: s.mapOf("annotations"), Redact: s.list("redact"),
			Deregister: s.bool("deregister"), Deregistration: s.text("deregistration-handler"),
			Managed: s.bool("agent-managed-entity"), StripNetworks: s.bool("strip-networks"),
			DetectCloud: s.bool("detect-cloud-provider")},
		User: s.text("user"), Password: s.text("password"),
		Backends: func() []string { return c.BackendURLs },
		Keepalive: agent.Keepalive{Interval: uint32(s.number("keepalive-interval", 1<<31)),
			Warning:  uint32(s.number("keepalive-warning-timeout", 1<<31)),
			Critical: uint32(s.number("keepalive-critical-timeout", 1<<31)), Handlers: s.list("keepalive-handlers"),
			Labels:      s.mapOf("keepalive-check-labels"),
			Annotations: s.mapOf("keepalive-check-annotations"), Pipelines: s.pipelines("keepalive-pipelines")},
		Timing: agent.Timing{Handshake: s.seconds("backend-handshake-timeout"),
			HeartbeatInterval: s.seconds("backend-heartbeat-interval"),
			HeartbeatTimeout:  s.seconds("backend-heartbeat-timeout"), RetryMin: s.duration("retry-min"),
			RetryMax:        s.duration("retry-max"),
			RetryMultiplier: s.float("retry-multiplier"), MaxSession: s.duration("max-session-length")},
		CacheDir: c.CacheDir, EventsRate: s.float("events-rate-limit"),
		EventsBurst: int(s.number("events-burst-limit", 1<<20)),
		API:         s.address("disable-api", "api-host", "api-port"), Sockets: s.address("disable-sockets", "socket-host",
			"socket-port"),
		Statsd: agent.Statsd{Address: s.address("statsd-disable", "statsd-metrics-host", "statsd-metrics-port"),
			Flush:    s.seconds("statsd-flush-interval"),
			Handlers: s.list("statsd-event-handlers")},
		DisableAssets: s.bool("disable-assets"),
	}
	if c.Agent.EventsRate == 0 {
		c.Agent.EventsRate = -1 // the contract's 0 is no limit
	}
	if c.CacheDir == os.DevNull {
		c.CacheDir, c.Agent.CacheDir, c.Agent.DisableAssets = "", "", true
	}
	var err error
	if c.Agent.Allow, err = AllowList(s.text("allow-list")); err != nil {
		s.wrong = append(s.wrong, fmt.Errorf("allow-list: %w", err))
	}
	if c.Agent.TLS, err = ClientTLS(c.TrustedCA, c.Cert, c.CertKey, s.bool("insecure-skip-tls-verify")); err != nil {
		s.wrong = append(s.wrong, err)
	}
	c.Agent.ByCertificate = c.Cert != ""
	c.Warnings = s.warnings
	return c, errors.Join(s.wrong...)
}

// backends are the URLs with their ports.
func (s *source) backends() (out []string) {
	v := s.values["backend-url"]
	for _, text := range v.list {
		if err := agent.CheckURL(text); err != nil {
			s.fail(v, "backend-url", err)
			continue
		}
		out = append(out, WithPort(text))
	}
	if len(v.list) == 0 {
		s.fail(v, "backend-url", errors.New("at least one is needed"))
	}
	return out
}

// WithPort returns a backend's URL with the usual port where it names none.
func WithPort(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Port() != "" {
		return text
	}
	u.Host = net.JoinHostPort(u.Hostname(), defaultPort)
	return u.String()
}

func (s *source) address(off, host, port string) string {
	disabled, number := s.bool(off), s.number(port, 65535)
	if disabled {
		return ""
	}
	return net.JoinHostPort(s.text(host), strconv.FormatUint(number, 10))
}

// pipelines reads references of the form core/v2.Pipeline.NAME.
func (s *source) pipelines(name string) (out []*monitor.Ref) {
	v := s.values[name]
	for _, text := range v.list {
		rest, ok := strings.CutPrefix(text, "core/v2.Pipeline.")
		if !ok || rest == "" {
			s.fail(v, name, fmt.Errorf("%q is not of the form core/v2.Pipeline.NAME", text))
			continue
		}
		out = append(out, &monitor.Ref{APIVersion: "core/v2", Type: "Pipeline", Name: rest})
	}
	return out
}

// logLevel gives the contract's levels in our words.
func (s *source) logLevel() string {
	switch v := s.values["log-level"]; v.text {
	case "panic", "fatal", "error":
		return "ERROR"
	case "warn", "warning", "info", "debug", "trace":
		return strings.ToUpper(v.text)
	default:
		s.fail(v, "log-level", fmt.Errorf("%q is none of panic, fatal, error, warn, info, debug, trace", v.text))
		return "INFO"
	}
}

// AllowList reads a file of allowed commands; "" is no list.
func AllowList(path string) (list []agent.Allowed, err error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(path) {
	case ".yaml", ".yml":
		err = yaml.Unmarshal(text, &list)
	case ".json":
		err = json.Unmarshal(text, &list)
	default:
		return nil, fmt.Errorf("%s ends in none of .yaml, .yml, .json", path)
	}
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s has no entry: nothing at all could run; leave the setting out to allow everything", path)
	}
	return list, err
}

// ClientTLS is how an agent checks backends, and who it says it is: by a certificate where there is one.
func ClientTLS(ca, cert, key string, insecure bool) (*tls.Config, error) {
	c := &tls.Config{InsecureSkipVerify: insecure, MinVersion: tls.VersionTLS12} // only where the operator asks for it
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("trusted-ca-file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("trusted-ca-file: %s holds no certificate in PEM", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("cert-file and key-file go together")
	}
	if cert == "" {
		return c, nil
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("cert-file, key-file: %w", err)
	}
	// Read anew at each session, so that a renewed certificate needs no restart.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
	return c, nil
}
