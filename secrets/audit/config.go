package audit

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Config is a device as it is stored.
type Config struct {
	Path        string            `json:"path"` // with its '/' at the end
	Type        string            `json:"type"` // file, syslog, socket
	Description string            `json:"description"`
	Options     map[string]string `json:"options"`
	Local       bool              `json:"local"`
	UUID        string            `json:"uuid"`
	Accessor    string            `json:"accessor"`
	Salt        []byte            `json:"salt"`
	Declared    bool              `json:"declared,omitempty"` // by the configuration
}

// Check judges a device of the configuration, which may write anywhere.
func Check(c *Config) error {
	_, err := read(c, Rules{Unsafe: true, Prefix: true})
	return err
}

// Rules bound what devices may be made over the API: who may make one makes the server write somewhere.
type Rules struct {
	// Folder is where files may be; "" is nowhere, but stdout and discard.
	Folder string
	// Unsafe allows files anywhere and sockets (unsafe_allow_api_audit_creation).
	Unsafe bool
	// Prefix allows text of the operator's in front of each line (allow_audit_log_prefixing), which
	// can make a log something else than a log.
	Prefix bool
	// SyslogPaths are the sockets of the machine's log that are tried in turn; nil: the usual ones.
	SyslogPaths []string
}

// settings are a Config's options, read.
type settings struct {
	raw, hashAccessor, elideLists, sync bool
	jsonx                               bool // lines are XML
	prefix                              string
	weak                                bool // cannot tell whether it took an entry
	sink                                sink
}

// known are the options of each type beside those of all.
var known = map[string][]string{
	"file":   {"file_path", "path", "mode", "fsync"},
	"syslog": {"facility", "tag"},
	"socket": {"address", "socket_type", "write_timeout"},
}

var common = []string{"log_raw", "hmac_accessor", "elide_list_responses", "format", "prefix"}

// read checks a device's options. Errors are of kind Invalid and name the option.
func read(c *Config, rules Rules) (*settings, error) {
	options, ok := known[c.Type]
	if !ok {
		return nil, errkind.Errorf(errkind.Invalid, "unknown backend type: %q", c.Type)
	}
	for name := range c.Options {
		if !slices.Contains(options, name) && !slices.Contains(common, name) {
			return nil, wrong(name, "is no option of an audit device of type "+c.Type)
		}
	}
	s := &settings{prefix: c.Options["prefix"]}
	var err error
	for name, at := range map[string]*bool{"log_raw": &s.raw, "hmac_accessor": &s.hashAccessor,
		"elide_list_responses": &s.elideLists, "fsync": &s.sync} {
		if *at, err = truth(c.Options, name, name == "hmac_accessor"); err != nil {
			return nil, err
		}
	}
	switch format := c.Options["format"]; format {
	case "", "json":
	case "jsonx":
		s.jsonx = true
	default:
		return nil, wrong("format", strconv.Quote(format)+" is unknown; it is json or jsonx")
	}
	if s.prefix != "" && !rules.Prefix {
		return nil, wrong("prefix", "is allowed only where allow_audit_log_prefixing is set in the server's configuration")
	}
	switch c.Type {
	case "file":
		return s, s.file(c.Options, rules)
	case "syslog":
		return s, s.syslog(c.Options, rules)
	}
	return s, s.socket(c.Options, rules)
}

func wrong(option, why string) error {
	return errkind.Errorf(errkind.Invalid, "option %q: %s", option, why)
}

func truth(options map[string]string, name string, def bool) (bool, error) {
	text := options[name]
	if text == "" {
		return def, nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, wrong(name, "must be true or false")
	}
	return b, nil
}

func (s *settings) file(options map[string]string, rules Rules) error {
	path := options["file_path"]
	if path == "" {
		path = options["path"]
	}
	f := &fileSink{path: path, mode: 0o600, sync: s.sync}
	if text := options["mode"]; text != "" {
		mode, err := strconv.ParseUint(text, 8, 32)
		switch {
		case err != nil || mode > 0o777:
			return wrong("mode", "must be permissions in octal, as 0600")
		case mode&0o111 != 0:
			return wrong("mode", "a log must not be executable")
		}
		f.mode, f.keepMode = uint32(mode), mode == 0
	}
	s.sink = f
	switch path {
	case "":
		return wrong("file_path", "is required")
	case "stdout":
		return nil
	case "discard":
		s.weak = true
		return nil
	}
	if !filepath.IsAbs(path) && !rules.Unsafe {
		return wrong("file_path", "must be absolute")
	}
	if rules.Unsafe {
		return nil
	}
	inside, err := filepath.Rel(rules.Folder, path)
	if rules.Folder == "" || err != nil || !filepath.IsLocal(inside) || inside == "." {
		return wrong("file_path", "must be stdout, discard or below the server's audit_dir; the server's configuration "+
			"allows other places with unsafe_allow_api_audit_creation")
	}
	f.folder, f.path = rules.Folder, inside
	return nil
}

// facilities of syslog by name, with their numbers.
var facilities = []string{"KERN", "USER", "MAIL", "DAEMON", "AUTH", "SYSLOG", "LPR", "NEWS", "UUCP", "CRON",
	"AUTHPRIV", "FTP",
	"", "", "", "", "LOCAL0", "LOCAL1", "LOCAL2", "LOCAL3", "LOCAL4", "LOCAL5", "LOCAL6", "LOCAL7"}

func (s *settings) syslog(options map[string]string, rules Rules) error {
	name := strings.ToUpper(options["facility"])
	if name == "" {
		name = "AUTH"
	}
	facility := slices.Index(facilities, name)
	if facility < 0 {
		return wrong("facility", strconv.Quote(name)+" is unknown")
	}
	tag := options["tag"]
	if tag == "" {
		tag = "vault"
	}
	if strings.ContainsFunc(tag, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' || r == '[' }) {
		return wrong("tag", "must be one printable word")
	}
	paths := rules.SyslogPaths
	if paths == nil {
		paths = []string{"/dev/log", "/var/run/syslog", "/var/run/log"}
	}
	const info = 6
	s.sink = &syslogSink{paths: paths, priority: facility<<3 | info, tag: tag}
	return nil
}

func (s *settings) socket(options map[string]string, rules Rules) error {
	if !rules.Unsafe {
		return wrong("address", "sockets are allowed only where unsafe_allow_api_audit_creation is set in the server's "+
			"configuration")
	}
	n := &socketSink{network: options["socket_type"], address: options["address"], timeout: 2 * time.Second}
	if n.network == "" {
		n.network = "tcp"
	}
	if !slices.Contains([]string{"tcp", "udp", "unix"}, n.network) {
		return wrong("socket_type", "must be tcp, udp or unix")
	}
	if n.address == "" {
		return wrong("address", "is required")
	}
	if text := options["write_timeout"]; text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return wrong("write_timeout", `must be a duration above 0, as "2s"`)
		}
		n.timeout = d
	}
	s.weak, s.sink = n.network == "udp", n
	return nil
}
