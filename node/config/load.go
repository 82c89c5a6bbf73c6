package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Setting is one value from the command line, under a key of the schema.
type Setting struct {
	Key   string // "ports.http"
	Value string
	From  string // what the user typed: "-http-port"
}

// Options says where configuration comes from. The zero value of a field is "none".
type Options struct {
	Style     Style
	Dev       bool
	Server    bool     // corbel server; files may set `server` in Consul's style
	Either    bool     // judge as a server where a key of servers is set: nothing is going to start
	Files     []string // HCL or JSON, in this order
	Dirs      []string // their *.hcl and *.json files, in lexical order
	Format    string   // hcl or json for files of other names
	Env       []string // as os.Environ gives it
	Fragments []string // HCL given on the command line
	Flags     []Setting
	// PortOffset is added to each port that is a number of its own: several processes of one host differ in nothing else.
	PortOffset int

	// Sections are the keys of planes: by the name of a section, what makes a struct with the tags of Config. Its
	// method SetDefaults(Style, bool), where it has one, sets those that depend on the style and on dev.
	Sections map[string]func() any

	// Judge names what is wrong beyond what this package knows; told with all else, so that one start shows everything.
	Judge func(*Config) error

	Hostname string                                // default os.Hostname
	Template func(template string) (string, error) // default go-sockaddr
}

// maxPortOffset leaves room for the highest of the default ports.
const maxPortOffset = 40000

// shiftPorts adds an offset to the ports that are on; those that the system chooses stay.
func (l *loader) shiftPorts(by int) {
	if by < 0 || by > maxPortOffset {
		l.fail(fmt.Sprintf("-port-offset: %d must be between 0 and %d", by, maxPortOffset))
		return
	}
	p := &l.cfg.Ports
	for _, port := range []*int{&p.DNS, &p.HTTP, &p.HTTPS, &p.GRPC, &p.GRPCTLS, &p.SerfLAN, &p.SerfWAN, &p.Server,
		&p.Secrets, &p.Monitor, &p.MonitorAgents, &p.SidecarMin, &p.SidecarMax, &p.ExposeMin, &p.ExposeMax} {
		if *port > 0 {
			*port += by
		}
	}
	for _, section := range l.cfg.loaded.sections {
		if s, ok := section.(interface{ ShiftPorts(by int) }); ok {
			s.ShiftPorts(by)
		}
	}
}

// Load reads all sources and returns a complete, checked Config. The error joins
// every problem of every source.
func Load(o Options) (*Config, error) {
	c := &Config{Process: Process{Style: o.Style, Dev: o.Dev},
		loaded: loaded{origins: map[string]string{}, sections: map[string]any{}}}
	for name, make := range o.Sections {
		c.loaded.sections[name] = make()
	}
	l := &loader{cfg: c, schema: schemaOf(c)}
	l.defaults(o)
	for _, path := range o.Files {
		l.file(path, o.Format)
	}
	for _, dir := range o.Dirs {
		l.dir(dir, o.Format)
	}
	l.environment(o.Env)
	for _, text := range o.Fragments {
		l.bytes("-hcl", []byte(text), "hcl")
	}
	for _, s := range o.Flags {
		l.set(s.Key, s.Value, s.From)
	}
	if o.Either && (c.given("bootstrap") || c.given("bootstrap_expect") || c.Monitor.Enabled) {
		c.Server = true
	}
	l.shiftPorts(o.PortOffset)
	l.complete(o)
	if o.Judge != nil {
		l.judged("", o.Judge(c))
	}
	if len(l.problems) > 0 {
		return nil, &Error{Problems: l.problems}
	}
	c.Warnings = l.warnings
	return c, nil
}

// loader applies sources to one Config and collects what is wrong with them.
type loader struct {
	cfg      *Config
	schema   *schema
	problems []string
	warnings []string
	warned   map[string]bool
	text     []byte // of the file that is being applied, for the lines of its mistakes
}

// judged takes apart what was joined, so that each problem has its line; what stood before all stands before each.
func (l *loader) judged(before string, err error) {
	var many interface {
		error
		Unwrap() []error
	}
	if errors.As(err, &many) {
		head, _ := strings.CutSuffix(err.Error(), many.Error())
		for _, one := range many.Unwrap() {
			l.judged(before+head, one)
		}
	} else if err != nil {
		l.fail(before + err.Error())
	}
}

// fail notes a problem once.
func (l *loader) fail(text string) {
	if !slices.Contains(l.problems, text) {
		l.problems = append(l.problems, text)
	}
}

// warn notes a line once.
func (l *loader) warn(text string) {
	if l.warned == nil {
		l.warned = map[string]bool{}
	}
	if !l.warned[text] {
		l.warned[text] = true
		l.warnings = append(l.warnings, text)
	}
}

// defaults applies the schema's defaults, then those of the style, then dev's.
func (l *loader) defaults(o Options) {
	for _, path := range l.schema.order {
		if k := l.schema.keys[path]; k.def != "" {
			l.set(path, k.def, "")
		}
	}
	c := l.cfg
	c.Server = o.Server || o.Dev
	c.ACL.DefaultPolicy = "allow"
	if o.Style == Corbel && !o.Dev {
		c.ACL.Enabled, c.ACL.DefaultPolicy = true, "deny"
		c.TLS.Defaults.VerifyServerHostname = true
	}
	if o.Style == Corbel && o.Dev {
		c.ACL.Enabled, c.ACL.InitialManagement = true, DevToken
		c.Ports.Secrets, c.Monitor.Enabled, c.Monitor.Agent.Enabled = 8200, true, true
	}
	for _, section := range c.loaded.sections {
		if s, ok := section.(interface{ SetDefaults(style Style, dev bool) }); ok {
			s.SetDefaults(o.Style, o.Dev)
		}
	}
	if o.Dev {
		c.Addresses.Bind, c.Addresses.Client = "127.0.0.1", "127.0.0.1"
		c.Raft.Bootstrap, c.Ports.GRPC = true, 8502
		c.Logging.EnableDebug = true
		c.Telemetry.PrometheusRetention = 60e9
		c.Autopilot.ServerStabilizationTime = 0
	}
}

// environment applies CORBEL_<KEY>, with _ for the dots of a key. Names that are
// not keys belong to others (the client's CORBEL_HTTP_ADDR) and give a warning
// only when nobody knows them.
func (l *loader) environment(env []string) {
	byName := map[string]string{}
	for path := range l.schema.keys {
		byName["CORBEL_"+strings.ToUpper(strings.ReplaceAll(path, ".", "_"))] = path
	}
	sorted := slices.Clone(env)
	slices.Sort(sorted)
	for _, pair := range sorted {
		name, value, _ := strings.Cut(pair, "=")
		if name == "CONSUL_INTRO_TOKEN" {
			l.set("auto_config.intro_token", value, "the variable "+name)
		}
		if !strings.HasPrefix(name, "CORBEL_") {
			continue
		}
		if path, ok := byName[name]; ok {
			l.set(path, value, "the variable "+name)
		} else if !slices.Contains(clientVariables, strings.TrimPrefix(name, "CORBEL_")) {
			l.warn("the variable " + name + " names no option and is ignored")
		}
	}
}

// clientVariables are read by others (the client package, the commands), not here.
var clientVariables = []string{"HTTP_ADDR", "MONITOR_ADDR", "MONITOR_USERNAME", "MONITOR_PASSWORD", "MONITOR_API_KEY",
	"TOKEN", "HTTP_TOKEN", "HTTP_TOKEN_FILE", "HTTP_AUTH", "HTTP_SSL", "HTTP_SSL_VERIFY",
	"CACERT", "CAPATH", "CLIENT_CERT", "CLIENT_KEY", "TLS_SERVER_NAME", "FAULT_FD", "FAULT_BEGIN", "ALLOW_CORE_DUMPS",
	"KEEP_SOCKETS"}

func hostname(o Options) (string, error) {
	if o.Hostname != "" {
		return o.Hostname, nil
	}
	return os.Hostname()
}

// Error is what is wrong with a configuration, one line each.
type Error struct{ Problems []string }

// Error implements error.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0]
	}
	return "the configuration has several problems:\n  - " + strings.Join(e.Problems, "\n  - ")
}

// Problems lists what is wrong, one line each, for any error of this package.
func Problems(err error) []string {
	var e *Error
	if errors.As(err, &e) {
		return e.Problems
	}
	return []string{err.Error()}
}
