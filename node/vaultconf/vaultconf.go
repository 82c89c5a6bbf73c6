// Package vaultconf reads the configuration of a server of the secrets plane, in the words of Vault and
// OpenBao: `vault server -config`, and the block `secrets` of Corbel's own configuration.
//
// Load reads files and the environment and touches nothing else. What is wrong is reported all at once, by
// file and key; a key that nobody knows is a warning with its name, as in Vault, never an error.
package vaultconf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/notify"
	"corbel.dev/corbel/node/config"
)

// Block is a stanza with a type: storage "raft" { ... }. Its keys are its owner's to read.
type Block struct {
	Type string
	Keys *Keys
}

// Config is what a server is told.
type Config struct {
	Warnings []string // what was accepted and has no effect, one line each

	Storage   Block
	Listeners []Listener
	Seals     []Block // none: Shamir's shares; a disabled one is where to come from

	Cluster

	Logging
	// What all answers tell of the server.
	HostnameHeader, RaftNodeIDHeader bool
	PIDFile                          string
	Sockets                          *notify.Sockets // that the service manager holds; nil holds none
	UI                               bool
	Telemetry                        Telemetry

	DefaultLeaseTTL    time.Duration // 768 h
	MaxLeaseTTL        time.Duration // 768 h
	MaxRequestDuration time.Duration // 90 s
	// Limits hold where the server is a process of its own: request_memory and max_conns_per_client are read.
	Limits             config.Limits
	DisableCache       bool
	DisableMlock       bool // memory may be swapped
	StandbyReads       bool
	RawStorageEndpoint bool
	Introspection      bool

	Lockouts  map[string]Lockout // user_lockout, by type of auth method or "all"
	NoLockout bool               // VAULT_DISABLE_USER_LOCKOUT

	Auditing
	Programs
}

// Programs are the plug-ins that may be run.
type Programs struct {
	PluginDir string // "": none
	PluginTmp string // where their sockets are; "": the system's folder
}

// Cluster is how other servers and clients reach this one.
type Cluster struct {
	APIAddr           string // "" derives it from the first listener
	ClusterAddr       string // likewise, with the port after the listener's
	ClusterName       string
	DisableClustering bool
	Registrations     []Block // the catalogs that have an entry of this server
}

// Logging is what is logged, and where.
type Logging struct {
	LogLevel string
	LogJSON  bool
	LogFile  string
	// When the log file is begun anew: at a size, after a time; how many are kept. 0: never, 24 h, all.
	LogRotateBytes   int
	LogRotateAfter   time.Duration
	LogRotateFiles   int
	LogRequestsLevel string // "" and off: requests are not told of
}

// Auditing is the audit devices of the beginning, and what later ones may.
type Auditing struct {
	AuditDir      string // where audit devices that are made over the API may have files
	AuditAnywhere bool   // they may anywhere, and sockets
	Audits        []Audit
	AuditPrefix   bool // and text in front of their lines
}

// Listener is one place to serve clients at.
type Listener struct {
	Type           string // tcp or unix
	Address        string
	ClusterAddress string
	TLS            TLS
	Socket

	RequestLimits
	Unauthenticated
	ForwardedFor    ForwardedFor
	ResponseHeaders map[string]map[string]string // by "default", "2xx" or "200"
	// use_always, allow_authorized, deny_unauthorized; "": none is expected
	ProxyProtocol          string
	ProxyAuthorized        []string
	MetricsOnly, NoMetrics bool
}

// Socket is how the file of a unix listener is made.
type Socket struct {
	SocketMode  string
	SocketUser  string
	SocketGroup string
}

// RequestLimits bounds connections and requests.
type RequestLimits struct {
	IdleTimeout, ReadHeaderTimeout time.Duration
	MaxRequestSize                 int64
	MaxRequestDuration             time.Duration
	ReadTimeout                    time.Duration // of a request's body
	// from a request's header to the end of its answer; 0: the request's own time
	WriteTimeout time.Duration
}

// Unauthenticated is what is answered without a token.
type Unauthenticated struct {
	OpenRekey, OpenGenerateRoot bool // the endpoints without a token are on
	UnauthenticatedMetrics      bool
	UnauthenticatedPprof        bool
	UnauthenticatedInFlight     bool
	UnauthenticatedDoctor       bool // of Corbel's own
}

// Audit is a device that is there from the beginning.
type Audit struct {
	Type, Path, Description string // the path has its '/'
	Options                 map[string]string
	Local                   bool
}

// ForwardedFor says whose X-Forwarded-For is believed.
type ForwardedFor struct {
	Authorized                            []string
	HopSkips                              int
	RejectNotPresent, RejectNotAuthorized bool
	CertHeader                            string // where a proxy tells the client's certificate
	CertDecoders                          []string
}

// TLS is a listener's.
type TLS struct {
	Disable             bool
	CertFile, KeyFile   string
	MinVersion          string
	MaxVersion          string
	CipherSuites        []string
	ClientCAFile        string
	RequireClientCert   bool
	DisableClientCerts  bool
	PreferServerCiphers bool
}

// Telemetry is the telemetry stanza.
type Telemetry struct {
	StatsdAddress, StatsiteAddress, DogstatsdAddr string
	OTLPTracesEndpoint                            string // our own key, as the agent has it
	DogstatsdTags, PrefixFilter                   []string
	PrometheusRetention                           time.Duration // 24 h
	DisableHostname, HostnameLabel                bool
	Usage                                         Usage
	FilterDefault                                 bool
	Prefix                                        string
	DisableDoctor                                 bool // our own key: this process gathers no evidence
}

// Usage says how tokens, leases, entities and secrets are counted for the gauges.
type Usage struct {
	Every      time.Duration // usage_gauge_period; negative: never
	Most       int           // maximum_gauge_cardinality
	Epsilon    time.Duration // lease_metrics_epsilon
	Buckets    int           // num_lease_metrics_buckets
	Namespaces bool          // add_lease_metrics_namespace_labels
}

// Lockout says when failed logins lock an alias out. Zero values are not set.
type Lockout struct {
	Threshold              int // failures
	Duration, CounterReset time.Duration
	Disable                *bool
}

// Source is one text with its name.
type Source struct{ Name, Format, Text string }

// Load reads files and folders (their *.hcl and *.json, in lexical order), one after the other: later ones win,
// listeners and seals add up. getenv gives the variables that Vault's users know; nil is none.
func Load(paths []string, getenv func(string) string) (*Config, error) {
	var sources []Source
	for _, path := range paths {
		more, err := read(path)
		if err != nil {
			return nil, err
		}
		sources = append(sources, more...)
	}
	if getenv != nil {
		if text := first(getenv, "LOCAL_CONFIG"); text != "" {
			sources = append(sources, Source{Name: "VAULT_LOCAL_CONFIG", Text: text})
		}
	}
	return Parse(sources, getenv)
}

func read(path string) ([]Source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w; check the -config path", err)
	}
	if !info.IsDir() {
		text, err := os.ReadFile(path)
		return []Source{{Name: path, Format: format(path), Text: string(text)}}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var out []Source
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if e.IsDir() || format(name) == "" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, Source{Name: name, Format: format(name), Text: string(text)})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: has no *.hcl and no *.json", path)
	}
	return out, nil
}

func format(path string) string {
	if ext := strings.TrimPrefix(filepath.Ext(path), "."); ext == "hcl" || ext == "json" {
		return ext
	}
	return ""
}

// first is a variable's value under OpenBao's name, else Vault's.
func first(getenv func(string) string, name string) string {
	if v := getenv("BAO_" + name); v != "" {
		return v
	}
	return getenv("VAULT_" + name)
}

// Parse is Load of texts.
func Parse(sources []Source, getenv func(string) string) (*Config, error) {
	trees := make([]map[string]any, 0, len(sources))
	for _, s := range sources {
		tree, err := config.Tree([]byte(s.Text), s.Format)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		trees = append(trees, tree)
	}
	return FromTrees(trees, getenv)
}

// FromTrees is Parse of what config.Tree gave.
func FromTrees(trees []map[string]any, getenv func(string) string) (*Config, error) {
	r := &reader{cfg: &Config{}}
	merged := &Keys{r: r, values: map[string]any{}}
	for _, tree := range trees {
		for _, name := range slices.Sorted(maps.Keys(tree)) {
			key := strings.ToLower(name)
			if list, ok := adds(key, merged.values[key], tree[name]); ok {
				merged.values[key] = list
				continue
			}
			merged.values[key] = tree[name]
		}
	}
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	r.top(merged)
	r.environment(getenv)
	if len(r.wrong) > 0 {
		return nil, errors.Join(r.wrong...)
	}
	return r.cfg, nil
}

// adds joins what several sources say of a key that may be there several times.
func adds(key string, before, more any) ([]any, bool) {
	if key != "listener" && key != "seal" && key != "user_lockout" || before == nil {
		return nil, false
	}
	return append(asList(before), asList(more)...), true
}

func asList(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	return []any{v}
}
