// Package agentconf reads the configuration of sensu-agent: flags, variables of the environment, and agent.yml, in
// this order of precedence, in Sensu's words. All mistakes are named at once, each with where it stands.
//
// Lists are separated by commas (flags) or by commas or spaces (variables); both also take JSON. A key of the file
// that is unknown is a warning, as the contract's agent passes over it. Nothing is kept; no goroutine is started.
package agentconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Kind is what a setting's value is.
type Kind uint8

// The kinds. A Flag's text is checked against its kind by Load, so that all mistakes are named together.
const (
	Text Kind = iota
	Number
	Float
	Bool
	List
	Map
	Duration
)

// Setting is one that sensu-agent takes.
type Setting struct {
	Name, Usage string
	Kind        Kind
	Default     string
	Short       string // of the flag
	Old         string // the name that it had before
	Without     string // why it has no effect, where somebody who sets it should know
}

// Settings are all of them, in the order of --help.
var Settings = []Setting{
	{Name: "config-file", Short: "c", Usage: "path to the agent's configuration file (default /etc/sensu/agent.yml)"},
	{Name: "name", Old: "id", Usage: "agent name (defaults to hostname)"},
	{Name: "namespace", Default: "default", Usage: "agent namespace"},
	{Name: "backend-url", Kind: List, Default: "ws://127.0.0.1:8081",
		Usage: "ws/wss URLs of backends (repeat, or separate by commas)"},
	{Name: "user", Default: "agent", Usage: "agent user"},
	{Name: "password", Usage: "agent password"},
	{Name: "subscriptions", Kind: List, Usage: "agent subscriptions (repeat, or separate by commas)"},
	{Name: "labels", Kind: Map, Usage: "entity labels: key=value,..."},
	{Name: "annotations", Kind: Map, Usage: "entity annotations: key=value,..."},
	{Name: "redact", Kind: List, Usage: "names of labels and annotations whose values are hidden; replaces the defaults"},
	{Name: "deregister", Kind: Bool, Usage: "ephemeral agent: its entity is removed when it disconnects"},
	{Name: "deregistration-handler", Usage: "handler of the deregistration event"},
	{Name: "agent-managed-entity", Kind: Bool, Usage: "manage this entity via the agent"},
	{Name: "strip-networks", Kind: Bool, Usage: "do not report network interfaces"},
	{Name: "detect-cloud-provider", Kind: Bool, Usage: "detect the cloud provider from the firmware"},
	{Name: "keepalive-interval", Kind: Number, Default: "20", Usage: "seconds between keepalives"},
	{Name: "keepalive-warning-timeout", Old: "keepalive-timeout", Kind: Number, Default: "120",
		Usage: "seconds of silence until a warning"},
	{Name: "keepalive-critical-timeout", Kind: Number, Default: "0",
		Usage: "seconds of silence until critical; 0 is never"},
	{Name: "keepalive-handlers", Kind: List, Usage: "handlers of keepalive events"},
	{Name: "keepalive-check-labels", Kind: Map, Usage: "labels of keepalive events"},
	{Name: "keepalive-check-annotations", Kind: Map, Usage: "annotations of keepalive events"},
	{Name: "keepalive-pipelines", Kind: List, Usage: "pipelines of keepalive events: core/v2.Pipeline.NAME"},
	{Name: "backend-handshake-timeout", Kind: Number, Default: "15", Usage: "timeout for opening a session, in seconds"},
	{Name: "backend-heartbeat-interval", Kind: Number, Default: "30", Usage: "seconds between pings"},
	{Name: "backend-heartbeat-timeout", Kind: Number, Default: "45",
		Usage: "seconds without an answer until a session ends"},
	{Name: "retry-min", Kind: Duration, Default: "1s", Usage: "shortest pause before connecting again"},
	{Name: "retry-max", Kind: Duration, Default: "120s", Usage: "longest pause before connecting again"},
	{Name: "retry-multiplier", Kind: Float, Default: "2", Usage: "factor by which the pause grows"},
	{Name: "max-session-length", Kind: Duration, Default: "0s",
		Usage: "longest time until the agent reconnects; 0 is never"},
	{Name: "trusted-ca-file", Usage: "CA certificates, PEM"},
	{Name: "cert-file", Usage: "client certificate of the agent"},
	{Name: "key-file", Usage: "its key"},
	{Name: "insecure-skip-tls-verify", Kind: Bool, Usage: "do not verify the backend's certificate (for tests)"},
	{Name: "disable-api", Kind: Bool, Usage: "disable the HTTP API"},
	{Name: "api-host", Default: "127.0.0.1", Usage: "address of the HTTP API"},
	{Name: "api-port", Kind: Number, Default: "3031", Usage: "port of the HTTP API"},
	{Name: "events-rate-limit", Kind: Float, Default: "10",
		Usage: "events sent per second from the HTTP API; 0 is no limit"},
	{Name: "events-burst-limit", Kind: Number, Default: "10", Usage: "burst size"},
	{Name: "disable-sockets", Kind: Bool, Usage: "disable the TCP and UDP sockets"},
	{Name: "socket-host", Default: "127.0.0.1", Usage: "address of the sockets"},
	{Name: "socket-port", Kind: Number, Default: "3030", Usage: "port of the sockets"},
	{Name: "statsd-disable", Kind: Bool, Usage: "disable the statsd listener"},
	{Name: "statsd-metrics-host", Default: "127.0.0.1", Usage: "address of the statsd listener"},
	{Name: "statsd-metrics-port", Kind: Number, Default: "8125", Usage: "port of the statsd listener"},
	{Name: "statsd-flush-interval", Kind: Number, Default: "10", Usage: "seconds between two flushes of statsd metrics"},
	{Name: "statsd-event-handlers", Kind: List, Usage: "handlers of statsd metrics"},
	{Name: "disable-assets", Kind: Bool, Usage: "disable runtime assets"},
	{Name: "assets-rate-limit", Kind: Float, Default: "1.39", Usage: "asset downloads per second"},
	{Name: "assets-burst-limit", Kind: Number, Default: "100", Usage: "burst size"},
	{Name: "allow-list", Usage: "file of the commands that may run, YAML or JSON"},
	{Name: "cache-dir", Default: "/var/cache/sensu/sensu-agent", Usage: "folder for assets and queued events"},
	{Name: "discover-processes", Kind: Bool, Usage: "accepted", Without: "processes are not told of, as in Sensu 6.12"},
	{Name: "require-fips", Kind: Bool, Usage: "accepted", Without: "this build makes no such promise"},
	{Name: "log-level", Default: "info", Usage: "panic, fatal, error, warn, info, debug or trace"},
}

// Given is a flag as it was given, each time it was.
type Given struct {
	Name   string
	Values []string
}

const defaultFile = "/etc/sensu/agent.yml"

// maxFile bounds the configuration file.
const maxFile = 1 << 20

// value is a setting's value and where it was found.
type value struct {
	from string
	text string
	list []string
	m    map[string]string
}

// source finds values in order of precedence, and gathers what is wrong with them.
type source struct {
	values   map[string]value
	wrong    []error
	warnings []string
}

func (s *source) fail(v value, name string, err error) {
	s.wrong = append(s.wrong, fmt.Errorf("%s (%s): %w", name, v.from, err))
}

// read resolves all settings.
func read(flags []Given, getenv func(string) string) *source {
	s := &source{values: map[string]value{}}
	given := map[string][]string{}
	for _, f := range flags {
		given[f.Name] = f.Values
	}
	file := s.file(given["config-file"], getenv)
	for _, x := range Settings {
		v := value{from: "default", text: x.Default}
		if x.Default != "" && x.Kind == List {
			v.list = []string{x.Default}
		}
		var err error
		env := variable(x.Name)
		if old := variable(x.Old); x.Old != "" && getenv(env) == "" && getenv(old) != "" {
			env = old
		}
		node, inFile := file[x.Name]
		if old, ok := file[x.Old]; ok && x.Old != "" && !inFile {
			s.warnings = append(s.warnings, fmt.Sprintf("%s is called %s now", x.Old, x.Name))
			node, inFile = old, true
		}
		delete(file, x.Name)
		delete(file, x.Old)
		values := given[x.Name]
		if x.Old != "" && len(values) == 0 {
			values = given[x.Old]
		}
		switch {
		case len(values) > 0:
			v.from = "--" + x.Name
			err = v.fromFlag(x.Kind, values)
		case getenv(env) != "":
			v.from = env
			err = v.fromText(x.Kind, getenv(env), ", \t\n")
		case inFile:
			v.from = "configuration file"
			err = v.fromNode(x.Kind, &node)
		}
		if err != nil {
			s.fail(v, x.Name, err)
		}
		if x.Without != "" && v.from != "default" {
			s.warnings = append(s.warnings, fmt.Sprintf("%s (%s) is ignored: %s", x.Name, v.from, x.Without))
		}
		s.values[x.Name] = v
	}
	for _, key := range slices.Sorted(maps.Keys(file)) {
		s.warnings = append(s.warnings, fmt.Sprintf("the configuration file has an unknown key, %q: it is passed over", key))
	}
	return s
}

// variable is a setting's name in the environment.
func variable(name string) string {
	return "SENSU_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// file reads the configuration file; one that nobody asked for may be missing.
func (s *source) file(flag []string, getenv func(string) string) map[string]yaml.Node {
	path, asked := defaultFile, false
	if v := getenv(variable("config-file")); v != "" {
		path, asked = v, true
	}
	if len(flag) > 0 {
		path, asked = flag[len(flag)-1], true
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil
	}
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	out := map[string]yaml.Node{}
	if err == nil {
		if err = yaml.NewDecoder(bytes.NewReader(text)).Decode(&out); err != nil && err.Error() == "EOF" {
			err = nil // empty, or nothing but comments
		}
	}
	if err != nil {
		s.wrong = append(s.wrong, fmt.Errorf("config-file: %w", err))
	}
	return out
}

func (v *value) fromFlag(k Kind, values []string) error {
	if k != List && k != Map {
		v.text = values[len(values)-1]
		return nil
	}
	v.list = nil
	for _, text := range values {
		var one value
		if err := one.fromText(k, text, ","); err != nil {
			return err
		}
		v.list = append(v.list, one.list...)
		if v.m == nil {
			v.m = map[string]string{}
		}
		maps.Copy(v.m, one.m)
	}
	return nil
}

// fromText reads a text; separators are those of lists.
func (v *value) fromText(k Kind, text, separators string) error {
	v.text, v.list, v.m = text, nil, nil
	switch text = strings.TrimSpace(text); {
	case k == List && strings.HasPrefix(text, "["):
		return json.Unmarshal([]byte(text), &v.list)
	case k == Map && strings.HasPrefix(text, "{"):
		return json.Unmarshal([]byte(text), &v.m)
	case k == List:
		v.list = strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(separators, r) })
		for i := range v.list {
			v.list[i] = strings.TrimSpace(v.list[i])
		}
	case k == Map:
		v.m = map[string]string{}
		for part := range strings.SplitSeq(text, ",") {
			if part == "" {
				continue
			}
			key, val, ok := strings.Cut(part, "=")
			if key = strings.TrimSpace(key); !ok || key == "" {
				return fmt.Errorf("%q is no key=value", part)
			}
			v.m[key] = val
		}
	}
	return nil
}

func (v *value) fromNode(k Kind, n *yaml.Node) error {
	switch {
	case n.Kind == yaml.ScalarNode:
		return v.fromText(k, n.Value, ", \t\n")
	case k == List:
		v.list = nil
		return n.Decode(&v.list)
	case k == Map:
		return n.Decode(&v.m)
	}
	return errors.New("it is to be one value")
}

func (s *source) text(name string) string             { return s.values[name].text }
func (s *source) list(name string) []string           { return s.values[name].list }
func (s *source) mapOf(name string) map[string]string { return s.values[name].m }

// parsed reads a value by parse; what is empty is the zero value.
func parsed[T any](s *source, name string, parse func(string) (T, error), what string) T {
	v := s.values[name]
	var zero T
	if v.text == "" {
		return zero
	}
	out, err := parse(strings.TrimSpace(v.text))
	if err != nil {
		s.fail(v, name, fmt.Errorf("%q is not %s", v.text, what))
		return zero
	}
	return out
}

func (s *source) number(name string, most uint64) uint64 {
	what := fmt.Sprintf("a number from 0 to %d", most)
	n := parsed(s, name, func(t string) (uint64, error) {
		n, err := strconv.ParseUint(t, 10, 64)
		if err == nil && n > most {
			err = strconv.ErrRange
		}
		return n, err
	}, what)
	return n
}

func (s *source) float(name string) float64 {
	return parsed(s, name, func(t string) (float64, error) {
		f, err := strconv.ParseFloat(t, 64)
		if err == nil && !(f >= 0 && f < 1e9) {
			err = strconv.ErrRange
		}
		return f, err
	}, "a number that is not negative")
}

func (s *source) bool(name string) bool { return parsed(s, name, strconv.ParseBool, "true or false") }

func (s *source) duration(name string) time.Duration {
	return parsed(s, name, func(t string) (time.Duration, error) {
		d, err := time.ParseDuration(t)
		if err == nil && d < 0 {
			err = strconv.ErrRange
		}
		return d, err
	}, "a time such as 30s")
}

func (s *source) seconds(name string) time.Duration {
	return time.Duration(s.number(name, 1<<31)) * time.Second
}
