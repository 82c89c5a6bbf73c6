package agentconfig

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// top takes the keys of a file.
func (r *reader) top(n *node) {
	c := r.cfg
	known := fields{
		"pid_file": text(&c.PIDFile), "exit_after_auth": truth(&c.ExitAfterAuth),
		"log_level":            among(&c.Log.Level, "trace", "debug", "info", "notice", "warn", "warning", "error", "err"),
		"log_format":           among(&c.Log.Format, "standard", "json"),
		"log_file":             text(&c.Log.File),
		"log_rotate_duration":  duration(&c.Log.RotateEvery),
		"log_rotate_bytes":     whole(&c.Log.RotateBytes, 0),
		"log_rotate_max_files": whole(&c.Log.RotateFiles, -1),
		"vault":                block(r.vault), "auto_auth": block(r.autoAuth),
		"cache": block(r.cache), "api_proxy": block(r.apiProxy), "listener": labelled("type", r.listener),
		"telemetry":                ignored("figures are served at /agent/v1/metrics and /proxy/v1/metrics alone"),
		"disable_idle_connections": ignored("connections rest for 90 s"),
		"disable_keep_alives":      ignored("connections are kept"),
	}
	if r.role == Agent {
		known["template"] = blocks(r.template)
		known["template_config"] = block(r.templateConfig)
		known["env_template"] = labelled("name", r.envTemplate)
		known["exec"] = block(r.exec)
	} else {
		for _, key := range []string{"template", "template_config", "env_template", "exec"} {
			known[key] = refused("a proxy renders nothing: this is for vault agent")
		}
	}
	value{r: r, node: n, line: 1}.walk(known)
}

func (r *reader) vault(v value) {
	c := &r.cfg.Vault
	v.walk(fields{"address": text(&c.Address), "ca_cert": text(&c.CACert), "ca_path": text(&c.CAPath),
		"client_cert": text(&c.ClientCert), "client_key": text(&c.ClientKey), "tls_skip_verify": truth(&c.SkipVerify),
		"tls_server_name": text(&c.ServerName), "namespace": text(&c.Namespace),
		"retry": block(func(v value) {
			v.walk(fields{"num_retries": func(v value) {
				whole(&c.Retries, -1)(v)
				if c.Retries == 0 { // as in Vault: 0 is the default, -1 none
					c.Retries = 12
				}
			}})
		})})
}

func (r *reader) autoAuth(v value) {
	if r.cfg.AutoAuth == nil {
		r.cfg.AutoAuth = &AutoAuth{}
	}
	a := r.cfg.AutoAuth
	method := labelled("type", func(v value) {
		if a.Method.Type != "" {
			v.fail("there is one already, %s: an agent logs in by one method", a.Method.Type)
			return
		}
		r.method(v, &a.Method)
	})
	sink := labelled("type", func(v value) { a.Sinks = append(a.Sinks, r.sink(v)) })
	v.walk(fields{"method": method, "sink": sink, "sinks": blocks(func(v value) { v.walk(fields{"sink": sink}) }),
		"enable_reauth_on_new_credentials": ignored("new credentials in a file are always used")})
	if a.Method.Type == "" {
		v.fail(`a method is missing, such as method "approle" { ... }`)
	}
}

// methods are the auth methods with the keys of their config block; true marks those that must be there.
var methods = map[string]map[string]bool{
	"approle": {"role_id_file_path": true, "secret_id_file_path": false,
		"remove_secret_id_file_after_reading": false, "secret_id_response_wrapping_path": false},
	"cert": {"name": false, "ca_cert": false, "client_cert": false, "client_key": false, "reload": false},
	"jwt": {"path": true, "role": true, "remove_jwt_after_reading": false, "remove_jwt_follows_symlinks": false,
		"jwt_read_period": false},
	"kubernetes": {"role": true, "token_path": false},
	"ldap":       {"username": true, "password_file_path": true, "remove_password_after_reading": false},
	"token_file": {"token_file_path": true},
	"userpass":   {"username": true, "password_file_path": true, "remove_password_after_reading": false},
}

// foreign are methods that need what a cloud's or a directory's library signs.
var foreign = []string{"alicloud", "aws", "azure", "cf", "gcp", "kerberos", "oci"}

func (r *reader) method(v value, m *Method) {
	m.Type = strings.ToLower(v.label)
	keys, ok := methods[m.Type]
	known := strings.Join(slices.Sorted(maps.Keys(methods)), ", ")
	switch {
	case slices.Contains(foreign, m.Type):
		v.fail("the method %s is not built here: log in by one of %s", m.Type, known)
		return
	case !ok:
		v.fail("there is no method %q: it is one of %s", v.label, known)
		return
	}
	m.MountPath, m.MinBackoff, m.MaxBackoff = "auth/"+m.Type, time.Second, 5*time.Minute
	m.Config = map[string]string{}
	v.path += "." + m.Type
	v.walk(fields{"type": silently, "mount_path": func(v value) {
		text(&m.MountPath)(v)
		if m.MountPath = strings.Trim(m.MountPath, "/"); !strings.HasPrefix(m.MountPath, "auth/") {
			v.fail("must begin with auth/, as in auth/%s", m.MountPath)
		}
	}, "namespace": text(&m.Namespace), "wrap_ttl": duration(&m.WrapTTL), "min_backoff": duration(&m.MinBackoff),
		"max_backoff": duration(&m.MaxBackoff), "exit_on_err": truth(&m.ExitOnError),
		"config": block(func(v value) { v.walk(settings(keys, m.Config)) })})
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if keys[key] && m.Config[key] == "" {
			v.fail("config.%s is missing", key)
		}
	}
	if m.MinBackoff <= 0 || m.MaxBackoff < m.MinBackoff {
		v.fail("min_backoff must be above 0, and max_backoff not below it")
	}
}

// settings are the keys of a method; remove_, reload and the like are truths.
func settings(keys map[string]bool, into map[string]string) fields {
	known := fields{}
	for key := range keys {
		known[key] = func(v value) {
			into[key] = v.text
			switch {
			case strings.HasPrefix(key, "remove_") || key == "reload":
				var on bool
				truth(&on)(v)
				into[key] = strconv.FormatBool(on)
			case key == "jwt_read_period":
				var d time.Duration
				duration(&d)(v)
			case v.kind != isText:
				v.wants("a text")
			}
		}
	}
	for wrong, file := range map[string]string{"role_id": "role_id_file_path", "secret_id": "secret_id_file_path",
		"password": "password_file_path"} {
		if _, ok := keys[file]; ok {
			known[wrong] = refused("give the file that holds it, in " + file)
		}
	}
	return known
}

func (r *reader) sink(v value) Sink {
	s := Sink{Type: strings.ToLower(v.label), Mode: 0o640}
	if s.Type != "file" {
		v.fail("there is no sink %q: it is file", v.label)
		return s
	}
	v.path += ".file"
	const derived = "how that key is made is documented nowhere: leave it out, the key of both is used as it is"
	kind, variable := "", ""
	v.walk(fields{"type": silently, "wrap_ttl": duration(&s.WrapTTL), "dh_type": text(&kind), "dh_path": text(&s.DHPath),
		"derive_key": unless(derived), "aad": text(&s.AAD), "aad_env_var": text(&variable),
		"config": block(func(v value) {
			v.walk(fields{"path": text(&s.Path), "mode": mode(&s.Mode),
				"owner": refused("the file belongs to the user that the agent runs as"),
				"group": refused("the file belongs to the group that the agent runs as")})
		})})
	if s.Path == "" {
		v.fail("config.path is missing")
	}
	switch {
	case kind != "" && kind != "curve25519":
		v.fail("dh_type must be curve25519")
	case (kind == "") != (s.DHPath == ""):
		v.fail("dh_type and dh_path: one needs the other")
	case kind == "" && (s.AAD != "" || variable != ""):
		v.fail("aad and aad_env_var are for sinks with dh_type")
	case s.AAD != "" && variable != "":
		v.fail("aad and aad_env_var: give one of them")
	case variable != "":
		if s.AAD = os.Getenv(variable); s.AAD == "" {
			v.fail("aad_env_var: the variable %s is not set", variable)
		}
	}
	return s
}

func (r *reader) cache(v value) {
	r.cfg.Cache = true
	const enterprise = "static secrets are read anew each time: leave it out"
	v.walk(fields{
		"use_auto_auth_token":             func(v value) { r.useToken(v) },
		"enforce_consistency":             func(v value) { r.consistency()["enforce_consistency"](v) },
		"when_inconsistent":               func(v value) { r.consistency()["when_inconsistent"](v) },
		"persist":                         refused("the cache is in memory alone: leave persist out"),
		"cache_static_secrets":            unless(enterprise),
		"disable_caching_dynamic_secrets": unless("leave the cache stanza out instead"),
		"static_secret_token_capability_refresh_interval": ignored(enterprise),
		"static_secret_token_capability_refresh_behavior": ignored(enterprise)})
}

func (r *reader) proxying() *APIProxy {
	if r.cfg.APIProxy == nil {
		r.cfg.APIProxy = &APIProxy{Inconsistent: "retry"}
	}
	return r.cfg.APIProxy
}

func (r *reader) useToken(v value) {
	p := r.proxying()
	if v.kind == isText && strings.EqualFold(v.text, "force") {
		p.UseAutoAuthToken, p.Force = true, true
		return
	}
	p.Force = false
	if b, err := strconv.ParseBool(v.text); v.kind <= isTruth && err == nil {
		p.UseAutoAuthToken = b
		return
	}
	v.wants(`true, false or "force"`)
}

func (r *reader) consistency() fields {
	p := r.proxying()
	word := ""
	return fields{"enforce_consistency": func(v value) {
		among(&word, "always", "never")(v)
		p.EnforceConsistency = word == "always"
	}, "when_inconsistent": func(v value) {
		among(&p.Inconsistent, "retry", "forward", "fail")(v)
	}}
}

func (r *reader) apiProxy(v value) {
	p := r.proxying()
	known := r.consistency()
	known["use_auto_auth_token"] = r.useToken
	known["prepend_configured_namespace"] = truth(&p.PrependNamespace)
	v.walk(known)
}

func (r *reader) listener(v value) {
	l := Listener{Type: strings.ToLower(v.label), OwnPlaces: true}
	role := "default"
	if l.Type != "tcp" && l.Type != "unix" {
		v.fail("there is no listener %q: it is tcp or unix", v.label)
		return
	}
	v.path += "." + l.Type
	own := block(func(v value) { v.walk(fields{"enable_quit": truth(&l.EnableQuit)}) })
	known := fields{"type": silently, "address": text(&l.Address), "tls_disable": truth(&l.TLSDisable),
		"tls_cert_file": text(&l.CertFile), "tls_key_file": text(&l.KeyFile), "tls_client_ca_file": text(&l.ClientCAFile),
		"tls_require_and_verify_client_cert": truth(&l.RequireClientCert),
		"tls_min_version":                    among(&l.MinVersion, "tls12", "tls13"),
		"tls_disable_client_certs":           silently, "tls_prefer_server_cipher_suites": silently,
		"tls_max_version":   ignored("the newest that both ends know is used"),
		"tls_cipher_suites": ignored("Go's are used"),
		"socket_mode":       mode(&l.SocketMode), "require_request_header": truth(&l.RequireRequestHeader),
		"socket_user":  refused("the socket belongs to the user that runs the process"),
		"socket_group": refused("the socket belongs to the group that runs the process"),
		"role":         among(&role, "default", "metrics_only")}
	if r.role == Agent {
		known["agent_api"] = own
		known["proxy_api"] = refused("this is an agent: it is agent_api")
	} else {
		known["proxy_api"] = own
		known["agent_api"] = refused("this is a proxy: it is proxy_api")
	}
	v.walk(known)
	l.MetricsOnly = role == "metrics_only"
	switch {
	case l.Address == "" && l.Type == "tcp":
		l.Address = "127.0.0.1:8200"
	case l.Address == "":
		v.fail("address is missing: the path of the socket")
	}
	l.Address = strings.TrimPrefix(l.Address, "unix://")
	if l.Type == "unix" && l.CertFile == "" {
		l.TLSDisable = true
	}
	if !l.TLSDisable && (l.CertFile == "" || l.KeyFile == "") {
		v.fail("tls_cert_file and tls_key_file are missing; or tls_disable = true where nobody can listen in")
	}
	r.cfg.Listeners = append(r.cfg.Listeners, l)
}

// rendered are the keys that files and variables of the environment share.
func rendered(t *Template) fields {
	return fields{"source": text(&t.Source), "contents": text(&t.Contents),
		"error_on_missing_key": truth(&t.ErrorOnMissingKey),
		"left_delimiter":       text(&t.LeftDelim), "right_delimiter": text(&t.RightDelim),
		"sandbox_path": text(&t.Sandbox), "function_denylist": words(&t.Denied), "function_blacklist": words(&t.Denied),
		"wait": block(func(v value) {
			v.walk(fields{"min": duration(&t.MinWait), "max": duration(&t.MaxWait)})
			if t.MaxWait == 0 {
				t.MaxWait = 4 * t.MinWait
			}
			if t.MaxWait < t.MinWait {
				v.fail("max must not be below min")
			}
		})}
}

func (r *reader) template(v value) {
	t := Template{CreateDirs: true, CommandTimeout: 30 * time.Second}
	known := rendered(&t)
	known["destination"], known["create_dest_dirs"] = text(&t.Destination), truth(&t.CreateDirs)
	known["command"], known["command_timeout"] = words(&t.Command), duration(&t.CommandTimeout)
	known["perms"], known["backup"] = mode(&t.Perms), truth(&t.Backup)
	known["user"], known["group"] = text(&t.User), text(&t.Group)
	known["uid"], known["gid"] = number(&t.User), number(&t.Group)
	known["error_fatal"] = unless("errors are logged; template_config.exit_on_retry_failure ends the agent")
	known["exec"] = block(func(v value) {
		v.walk(fields{"command": words(&t.Command), "timeout": duration(&t.CommandTimeout)})
	})
	v.walk(known)
	if t.Destination == "" {
		v.fail("destination is missing")
	}
	v.complete(&t)
	r.cfg.Templates = append(r.cfg.Templates, t)
}

// complete judges where a template's text comes from.
func (v value) complete(t *Template) {
	switch {
	case (t.Source == "") == (t.Contents == ""):
		v.fail("give one of source and contents")
	case t.Source != "":
		if _, err := os.Stat(t.Source); err != nil {
			v.fail("source: %v", err)
		}
	}
}

// number is a user or a group by its number.
func number(dst *string) func(v value) {
	return func(v value) {
		n := 0
		whole(&n, 0)(v)
		*dst = fmt.Sprint(n)
	}
}

func (r *reader) envTemplate(v value) {
	t := Template{Name: v.label}
	if t.Name == "" || strings.ContainsAny(t.Name, "= \x00") {
		v.fail("%q is no name of a variable", t.Name)
		return
	}
	v.path += "." + t.Name
	known := rendered(&t)
	known["name"] = silently
	v.walk(known)
	v.complete(&t)
	r.cfg.EnvTemplates = append(r.cfg.EnvTemplates, t)
}

func (r *reader) templateConfig(v value) {
	c := &r.cfg.TemplateConfig
	v.walk(fields{"exit_on_retry_failure": truth(&c.ExitOnRetryFailure),
		"static_secret_render_interval": duration(&c.StaticSecretInterval),
		"max_connections_per_host":      whole(&c.MaxConnectionsPerHost, 1),
		"lease_renewal_threshold":       share(&c.LeaseRenewalThreshold)})
	if c.StaticSecretInterval <= 0 {
		v.fail("static_secret_render_interval must be above 0")
	}
}

func (r *reader) exec(v value) {
	e := &Exec{Restart: true, StopSignal: "SIGTERM"}
	restart := "always"
	v.walk(fields{"command": words(&e.Command), "restart_on_secret_changes": among(&restart, "always", "never"),
		"restart_stop_signal":  text(&e.StopSignal),
		"child_process_stdout": text(&e.Stdout), "child_process_stderr": text(&e.Stderr)})
	e.Restart = restart == "always"
	if len(e.Command) == 0 || e.Command[0] == "" {
		v.fail("command is missing: a list of the program and its arguments")
	}
	r.cfg.Exec = e
}
