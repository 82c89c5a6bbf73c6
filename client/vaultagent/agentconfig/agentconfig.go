// Package agentconfig reads the configuration of `vault agent` and `vault proxy`: HCL or JSON, in files and folders of
// them, in the words that Vault's users have.
//
// All problems of all files are told at once, each with its file and line, and an unknown key with what was perhaps
// meant. What is understood but not built here is refused in words, never passed over, so that an agent that starts
// does what its file says. Load reads files and touches nothing else. A Config is not changed afterwards.
package agentconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Config is what an agent or a proxy does.
type Config struct {
	PIDFile        string
	ExitAfterAuth  bool
	Log            Log
	Vault          Vault
	AutoAuth       *AutoAuth // nil: none
	Cache          bool
	APIProxy       *APIProxy // nil: none
	Listeners      []Listener
	Templates      []Template
	EnvTemplates   []Template
	TemplateConfig TemplateConfig
	Exec           *Exec // nil: none
	// Warnings are keys that are accepted without effect.
	Warnings []string
}

// Log says what is logged, and where.
type Log struct {
	Level, Format, File string
	RotateEvery         time.Duration
	RotateBytes         int
	RotateFiles         int
}

// Vault is the server, and how it is reached.
type Vault struct {
	Address, CACert, CAPath, ClientCert, ClientKey, ServerName, Namespace string
	SkipVerify                                                            bool
	Retries                                                               int // default 12; below 0 is none
}

// AutoAuth is how a token is got, and where it goes.
type AutoAuth struct {
	Method Method
	Sinks  []Sink
}

// Method is an auth method. Its Config has the keys that Methods lists for its Type.
type Method struct {
	Type, MountPath, Namespace string
	WrapTTL                    time.Duration
	MinBackoff, MaxBackoff     time.Duration
	ExitOnError                bool
	Config                     map[string]string
}

// On reports whether a truth of Config is set, with what it is where it is not there.
func (m *Method) On(key string, unset bool) bool {
	if v, ok := m.Config[key]; ok {
		return v == "true"
	}
	return unset
}

// Sink is a file that tokens are written to.
type Sink struct {
	Type    string
	WrapTTL time.Duration
	Path    string
	Mode    fs.FileMode
	DHPath  string // the file of the reader's key, for whom it is encrypted; "": it is not
	AAD     string // is bound to what is encrypted
}

// APIProxy is how requests of clients are passed on.
type APIProxy struct {
	UseAutoAuthToken, Force bool // Force: in place of the client's own, too
	EnforceConsistency      bool
	Inconsistent            string // what then: retry, forward or fail
	PrependNamespace        bool
}

// Listener is where clients connect to.
type Listener struct {
	Type, Address         string
	TLSDisable            bool
	CertFile, KeyFile     string
	ClientCAFile          string
	RequireClientCert     bool
	MinVersion            string
	SocketMode            fs.FileMode // of a unix socket; 0: as the umask has it
	RequireRequestHeader  bool
	MetricsOnly           bool
	EnableQuit, OwnPlaces bool // OwnPlaces: it is an api listener, with /agent/v1/ or /proxy/v1/
}

// Template is a file, or a variable of the environment, that secrets are rendered to.
type Template struct {
	Name string // of the variable; "" for a file
	Text
	Destination      string
	CreateDirs       bool
	Command          []string // one word: for the shell
	CommandTimeout   time.Duration
	Perms            fs.FileMode // 0: as the file has it, or 0644
	User, Group      string
	Backup           bool
	MinWait, MaxWait time.Duration
}

// Text is what a template says: one of Source, a file, and Contents.
type Text struct {
	Source, Contents      string
	ErrorOnMissingKey     bool
	LeftDelim, RightDelim string
	Sandbox               string
	Denied                []string // functions
}

// TemplateConfig holds for all templates.
type TemplateConfig struct {
	ExitOnRetryFailure    bool
	StaticSecretInterval  time.Duration
	MaxConnectionsPerHost int
	LeaseRenewalThreshold float64
}

// Exec is the process that an agent supervises.
type Exec struct {
	Command        []string
	Restart        bool // when a secret changes
	StopSignal     string
	Stdout, Stderr string
}

// Role is what the configuration is for.
type Role string

// The roles.
const (
	Agent Role = "agent"
	Proxy Role = "proxy"
)

// maxFileBytes bounds a file; templates stand in files of their own.
const maxFileBytes = 8 << 20

// Load reads files and folders; a folder's files are those that end in .hcl or .json, by their names. Later ones win
// where a key may stand once.
func Load(role Role, paths []string) (*Config, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("-config: %w", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		list, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("-config: %w", err)
		}
		before := len(files)
		for _, f := range list {
			if ext := filepath.Ext(f.Name()); !f.IsDir() && (ext == ".hcl" || ext == ".json") {
				files = append(files, filepath.Join(path, f.Name()))
			}
		}
		if len(files) == before {
			return nil, fmt.Errorf("-config: the folder %s has no file that ends in .hcl or .json", path)
		}
	}
	sources := make([]Source, 0, len(files))
	for _, path := range files {
		info, err := os.Stat(path)
		if err == nil && info.Size() > maxFileBytes {
			err = fmt.Errorf("%s is larger than %d MiB", path, maxFileBytes>>20)
		}
		var text []byte
		if err == nil {
			text, err = os.ReadFile(path)
		}
		if err != nil {
			return nil, fmt.Errorf("-config: %w", err)
		}
		sources = append(sources, Source{path, text})
	}
	return Parse(role, sources...)
}

// Source is the text of a file.
type Source struct {
	Name string
	Text []byte
}

// Parse reads texts as one configuration.
func Parse(role Role, sources ...Source) (*Config, error) {
	r := &reader{role: role, cfg: &Config{Log: Log{Level: "info", Format: "standard"}, Vault: Vault{Retries: 12},
		TemplateConfig: TemplateConfig{StaticSecretInterval: 5 * time.Minute, MaxConnectionsPerHost: 10,
			LeaseRenewalThreshold: 0.9}}}
	for _, s := range sources {
		r.file = s.Name
		top, err := parseTree(s.Text)
		if err != nil {
			r.wrong = append(r.wrong, fmt.Errorf("%s:%w", s.Name, err))
			continue
		}
		r.top(top)
	}
	r.check()
	return r.cfg, errors.Join(r.wrong...)
}

// Holds reports whether text is a configuration of this kind, by its stanzas: other programs have none of them.
func Holds(text []byte) bool {
	top, err := parseTree(text)
	return err == nil && slices.ContainsFunc(top.entries, func(e entry) bool {
		return slices.Contains([]string{"auto_auth", "api_proxy", "env_template", "template_config"}, strings.ToLower(e.key))
	})
}

// check judges what no single key can.
func (r *reader) check() {
	c := r.cfg
	if len(r.wrong) > 0 {
		return // what is missing may be what was wrong
	}
	fail := func(format string, args ...any) { r.wrong = append(r.wrong, fmt.Errorf(format, args...)) }
	auth := c.AutoAuth
	switch {
	case auth == nil && (len(c.Templates) > 0 || len(c.EnvTemplates) > 0) && r.role == Agent:
		c.Warnings = append(c.Warnings, "templates without auto_auth use the token in VAULT_TOKEN")
	case auth == nil && len(c.Listeners) == 0:
		fail("nothing to do: give auto_auth with a sink, a listener, or a template")
	}
	if c.APIProxy != nil && c.APIProxy.UseAutoAuthToken && auth == nil {
		fail("api_proxy.use_auto_auth_token needs auto_auth: there is no other token")
	}
	if auth != nil && auth.Method.WrapTTL > 0 {
		switch {
		case c.APIProxy != nil && c.APIProxy.UseAutoAuthToken, len(c.Templates)+len(c.EnvTemplates) > 0:
			fail("auto_auth.method.wrap_ttl wraps the only token: leave it out, or wrap it in a sink")
		case slices.ContainsFunc(auth.Sinks, func(s Sink) bool { return s.WrapTTL > 0 }):
			fail("wrap_ttl stands at the method and at a sink: a token is wrapped once")
		}
	}
	if auth != nil && len(auth.Sinks) == 0 && len(c.Templates)+len(c.EnvTemplates) == 0 && (c.APIProxy == nil ||
		!c.APIProxy.UseAutoAuthToken) {
		fail("auto_auth: nobody gets the token: give a sink, a template, or api_proxy with use_auto_auth_token")
	}
	if (c.Cache || c.APIProxy != nil) && len(c.Listeners) == 0 && r.role == Proxy {
		fail("api_proxy and cache need a listener that clients reach them through")
	}
	if len(c.EnvTemplates) > 0 && c.Exec == nil {
		fail("env_template needs exec: the process whose environment it makes")
	}
	if c.Exec != nil && len(c.EnvTemplates) == 0 {
		fail("exec needs at least one env_template")
	}
	if c.Exec != nil && len(c.Templates) > 0 {
		fail("exec and template do not go together: run a second agent for the files")
	}
	names := map[string]bool{}
	for _, t := range c.EnvTemplates {
		if names[t.Name] {
			fail("env_template %q stands twice", t.Name)
		}
		names[t.Name] = true
	}
}
