package config

import (
	"reflect"
	"time"

	"corbel.dev/corbel/node/cloudjoin"
)

// Flag is a command-line flag of server and agent that sets a key.
type Flag struct {
	Name, Key string
	Bool      bool // may stand without a value
	List      bool // may be repeated
	Usage     string
}

// flagKeys are the flags and the keys that they set, in the order of --help.
var flagKeys = [][2]string{
	{"node", "node_name"}, {"node-id", "node_id"}, {"node-meta", "node_meta"}, {"datacenter", "datacenter"},
	{"data-dir", "data_dir"},
	{"bind", "bind_addr"}, {"client", "client_addr"}, {"advertise", "advertise_addr"},
	{"advertise-wan", "advertise_addr_wan"}, {"serf-lan-bind", "serf_lan"},
	{"bootstrap", "bootstrap"}, {"bootstrap-expect", "bootstrap_expect"}, {"retry-join", "retry_join"},
	{"retry-interval", "retry_interval"},
	{"retry-max", "retry_max"}, {"join", "start_join"}, {"retry-join-wan", "retry_join_wan"},
	{"retry-interval-wan", "retry_interval_wan"},
	{"retry-max-wan", "retry_max_wan"}, {"join-wan", "start_join_wan"}, {"serf-wan-bind", "serf_wan"},
	{"rejoin", "rejoin_after_leave"}, {"drain-wait", "drain_wait"}, {"encrypt", "encrypt"},
	{"allow-plaintext", "tls.disabled"}, {"allow-unencrypted-gossip", "allow_unencrypted_gossip"},
	{"http-port", "ports.http"}, {"https-port", "ports.https"}, {"dns-port", "ports.dns"}, {"grpc-port", "ports.grpc"},
	{"grpc-tls-port", "ports.grpc_tls"},
	{"server-port", "ports.server"}, {"serf-lan-port", "ports.serf_lan"}, {"serf-wan-port", "ports.serf_wan"},
	{"domain", "domain"}, {"alt-domain", "alt_domain"}, {"recursor", "recursors"},
	{"enable-script-checks", "enable_script_checks"}, {"enable-local-script-checks", "enable_local_script_checks"},
	{"log-level", "log_level"}, {"log-json", "log_json"}, {"log-file", "log_file"},
	{"log-rotate-bytes", "log_rotate_bytes"},
	{"log-rotate-duration", "log_rotate_duration"}, {"log-rotate-max-files", "log_rotate_max_files"},
	{"syslog", "enable_syslog"},
	{"pid-file", "pid_file"}, {"disable-host-node-id", "disable_host_node_id"},
	{"default-query-time", "default_query_time"}, {"max-query-time", "max_query_time"},
	{"segment", "segment"}, {"ui-content-path", "ui_content_path"},
	{"allow-write-http-from", "http_config.allow_write_http_from"},
	{"primary-gateway", "primary_gateways"}, {"auto-reload-config", "auto_reload_config"},
	{"raft-protocol", "raft_protocol"}, {"protocol", "protocol"}, {"ui", "ui_config.enabled"}, {"ui-dir", "ui_dir"},
	{"disable-keyring-file", "disable_keyring_file"}, {"check_output_max_size", "check_output_max_size"},
}

// Flags describes the flags of server and agent: those of the schema, then those
// accepted without effect.
func Flags() []Flag {
	s := schemaOf(new(Config))
	out := make([]Flag, 0, len(flagKeys))
	for _, pair := range flagKeys {
		f := Flag{Name: pair[0], Key: pair[1]}
		k, ok := s.keys[f.Key]
		if !ok {
			f.Usage = "no effect: " + ignoredKeys[f.Key]
			f.Bool = f.Name == "ui" || f.Key == "auto_reload_config" || f.Key == "disable_keyring_file"
			out = append(out, f)
			continue
		}
		f.Usage = k.doc
		f.Bool = k.value.Kind() == reflect.Bool
		f.List = k.value.Kind() == reflect.Slice || k.value.Kind() == reflect.Map
		if k.def != "" && k.def != "0" && !f.Bool {
			f.Usage += " (default " + k.def + ")"
		}
		out = append(out, f)
	}
	return out
}

// NeedsRestart lists the keys that differ between two configurations and that a
// reload does not apply.
func NeedsRestart(old, fresh *Config) []string {
	a, b := schemaOf(old), schemaOf(fresh)
	var out []string
	for _, path := range a.order {
		x, y := a.keys[path], b.keys[path]
		if !x.reload && !reflect.DeepEqual(x.value.Interface(), y.value.Interface()) {
			out = append(out, path)
		}
	}
	return out
}

// Hidden stands for a secret that is set.
const Hidden = "hidden"

// Public is the configuration by key, with secrets replaced by Hidden: for
// /v1/agent/self and logs.
func (c *Config) Public() map[string]any {
	out := map[string]any{}
	for path, k := range schemaOf(c).keys {
		v := k.value.Interface()
		if k.secret && !k.value.IsZero() {
			v = Hidden
		}
		switch plain := v.(type) {
		case time.Duration:
			v = plain.String()
		case []string:
			v = cloudjoin.Shown(plain)
		}
		out[path] = v
	}
	return out
}
