// Package backendconf reads what sensu-backend is told: flags, SENSU_BACKEND_* variables and a YAML file, in this
// order of precedence, and makes a configuration of Corbel of it: one server with the monitor plane alone.
//
// Nothing of Sensu's is an error: what has no effect here is named in a warning, where somebody set it. Wrong values
// are named by the option and where it stands, all at once.
package backendconf

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"corbel.dev/corbel/node/config"
)

// maxFile bounds the file of configuration.
const maxFile = 1 << 20

// Config is what was told.
type Config struct {
	Process  *config.Config
	Warnings []string
	values   map[string]given
}

// given is a value and where it stands.
type given struct{ text, from string }

// Get returns the value of an option, or its default.
func (c *Config) Get(name string) string {
	if g, ok := c.values[name]; ok {
		return g.text
	}
	for _, s := range Settings {
		if s.Name == name {
			return s.Default
		}
	}
	return ""
}

// Read gathers the options without judging what they mean together. flags are those that were given, by name.
func Read(flags map[string]string, getenv func(string) string) (*Config, error) {
	c := &Config{values: map[string]given{}}
	file, named := "/etc/sensu/backend.yml", false
	if v := getenv(variable("config-file")); v != "" {
		file, named = v, true
	}
	if v, ok := flags["config-file"]; ok {
		file, named = v, true
	}
	wrong := c.file(file, named)
	for _, s := range Settings {
		if v := getenv(variable(s.Name)); v != "" {
			c.values[s.Name] = given{v, "the variable " + variable(s.Name)}
		}
		if v, ok := flags[s.Name]; ok {
			c.values[s.Name] = given{v, "--" + s.Name}
		}
		if g, ok := c.values[s.Name]; ok {
			if err := s.check(g.text); err != nil {
				wrong = append(wrong, fmt.Errorf("%s (%s): %w", s.Name, g.from, err))
			}
			if s.without != "" {
				c.Warnings = append(c.Warnings, fmt.Sprintf("%s (%s) is ignored: %s", s.Name, g.from, s.without))
			}
		}
	}
	return c, errors.Join(wrong...)
}

// variable is the environment's name of an option.
func variable(name string) string {
	return "SENSU_BACKEND_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func (s *Setting) check(v string) error {
	var err error
	switch s.kind {
	case number:
		_, err = strconv.ParseInt(v, 10, 64)
	case float:
		_, err = strconv.ParseFloat(v, 64)
	case boolean:
		_, err = strconv.ParseBool(v)
	case duration:
		_, err = time.ParseDuration(v)
	}
	if err != nil {
		return fmt.Errorf("%q is no %s", v, [...]string{number: "whole number", float: "number", boolean: "true or false",
			duration: "duration such as 15s"}[s.kind])
	}
	return nil
}

// file reads the YAML file; one that nobody named need not be there.
func (c *Config) file(path string, named bool) []error {
	f, err := os.Open(path)
	if err != nil {
		if !named && errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return []error{fmt.Errorf("config-file: %w", err)}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil || len(b) > maxFile {
		return []error{fmt.Errorf("config-file %s: it cannot be read, or has more than %d bytes: %w", path, maxFile, err)}
	}
	return c.yaml(path, b)
}

func (c *Config) yaml(path string, b []byte) (wrong []error) {
	var tree map[string]any
	if err := yaml.Unmarshal(b, &tree); err != nil {
		return []error{fmt.Errorf("config-file %s: %w", path, err)}
	}
	for name, v := range tree {
		if !slices.ContainsFunc(Settings, func(s Setting) bool { return s.Name == name }) {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s (%s) is no option of sensu-backend, and is ignored", name, path))
			continue
		}
		switch v := v.(type) {
		case nil:
		case string, bool, int, int64, uint64, float64:
			c.values[name] = given{fmt.Sprint(v), path}
		case []any:
			var words []string
			for _, one := range v {
				words = append(words, fmt.Sprint(one))
			}
			c.values[name] = given{strings.Join(words, ","), path}
		case map[string]any:
			var words []string
			for k, one := range v {
				words = append(words, fmt.Sprintf("%s=%v", k, one))
			}
			slices.Sort(words)
			c.values[name] = given{strings.Join(words, ","), path}
		default:
			wrong = append(wrong, fmt.Errorf("%s (%s): it must be a text, a number, true, false or a list", name, path))
		}
	}
	slices.Sort(c.Warnings)
	return wrong
}

// levels are the reference's names for log levels.
var levels = map[string]string{"panic": "ERROR", "fatal": "ERROR", "error": "ERROR", "warn": "WARN", "warning": "WARN",
	"info": "INFO", "debug": "DEBUG", "trace": "TRACE"}

// alone is what a server has that is a monitor and nothing else: the other planes' ports are closed, and its own are
// on the loopback.
const alone = `
bind_addr = "127.0.0.1"
bootstrap = true
monitor { enabled = true }
connect { enabled = false }
ports { http = -1, dns = -1, grpc = -1, serf_wan = -1, serf_lan = 0, server = 0 }
`

// Load reads the options and makes the process's configuration of them.
func Load(flags map[string]string, getenv func(string) string) (*Config, error) {
	c, err := Read(flags, getenv)
	if err != nil {
		return nil, err
	}
	var set []config.Setting
	add := func(key, value, from string) { set = append(set, config.Setting{Key: key, Value: value, From: from}) }
	for _, s := range Settings {
		g, ok := c.values[s.Name]
		if !ok {
			g = given{s.Default, "the default of --" + s.Name}
		}
		if s.key != "" && g.text != "" {
			add(s.key, g.text, g.from)
		}
	}
	var wrong []error
	host, port, err := net.SplitHostPort(c.Get("api-listen-address"))
	if err != nil {
		wrong = append(wrong, fmt.Errorf("api-listen-address: %w", err))
	}
	add("addresses.monitor", anyAddress(host), "api-listen-address")
	add("ports.monitor", port, "api-listen-address")
	_, hostNamed := c.values["dashboard-host"]
	if _, portNamed := c.values["dashboard-port"]; hostNamed || portNamed {
		add("ui_config.address", net.JoinHostPort(strings.Trim(c.Get("dashboard-host"), "[]"), c.Get("dashboard-port")),
			"dashboard-host")
	}
	add("addresses.monitor_agents", anyAddress(strings.Trim(c.Get("agent-host"), "[]")), "agent-host")
	add("monitor.agent_write_timeout", c.Get("agent-write-timeout")+"s", "agent-write-timeout")
	level := levels[strings.ToLower(c.Get("log-level"))]
	if level == "" {
		wrong = append(wrong, fmt.Errorf("log-level: %q is none of panic, fatal, error, warn, info, debug, trace",
			c.Get("log-level")))
	}
	add("log_level", level, "log-level")
	if c.Get("debug") == "true" {
		add("enable_debug", "true", "debug")
		add("addresses.http", "127.0.0.1", "debug")
		add("ports.http", "6060", "debug")
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	c.Process, err = config.Load(config.Options{Style: config.Consul, Server: true, Fragments: []string{alone},
		Flags: set})
	if err != nil {
		return nil, err
	}
	c.Warnings = append(c.Warnings, c.Process.Warnings...)
	return c, nil
}

// anyAddress is a host as Corbel takes it: an IP address.
func anyAddress(host string) string {
	switch host {
	case "":
		return "::"
	case "localhost":
		return "127.0.0.1"
	}
	return host
}
