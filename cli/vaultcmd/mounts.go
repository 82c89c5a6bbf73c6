package vaultcmd

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// area is what secrets and auth have in common: both look after mounts.
type area struct {
	table, thing, kind string // sys/mounts, "secrets engine", what -path defaults to
}

// authTable is where mounts that people log in at are.
const authTable = "sys/auth"

// Secrets builds secrets.
func Secrets(e *command.Env, cmd *cobra.Command) {
	cmd.Example = "  vault secrets enable -path=team kv-v2\n  vault secrets list"
	m := area{"sys/mounts", "secrets engine", "secrets"}
	command.Group(cmd, m.list(e), m.enable(e), m.disable(e), m.tune(e),
		Leaf(e, "move FROM TO", "Move a secrets engine to another path", 2, 2, func(c *Call, args []string) error {
			from, to := Clean(args[0])+"/", Clean(args[1])+"/"
			a, err := c.Do("PUT", "sys/remount", map[string]string{"from": from, "to": to})
			if err != nil {
				return Doing("moving secrets engine "+from+" to "+to, err)
			}
			return c.Changed(a, "Moved secrets engine %s to: %s", from, to)
		}))
}

// Auth builds auth.
func Auth(e *command.Env, cmd *cobra.Command) {
	m := area{authTable, "auth method", "auth"}
	command.Group(cmd, m.list(e), m.enable(e), m.disable(e), m.tune(e))
}

func (m area) list(e *command.Env) *cobra.Command {
	return With(e, "list", "List each "+m.thing, 0, 0, func(cmd *cobra.Command) func(*Call, []string) error {
		detailed := cmd.Flags().Bool("detailed", false, "show all columns")
		return func(c *Call, _ []string) error {
			a, err := c.Do("GET", m.table, nil)
			if err != nil {
				return Doing("listing "+m.thing+"s", err)
			}
			if done, err := c.Structured(a.Data); done {
				return err
			}
			if *detailed {
				return detailedMounts(c, m, a.Data)
			}
			var rows [][]string
			for _, path := range command.SortedKeys(a.Data) {
				mount, _ := a.Data[path].(map[string]any)
				row := []string{path, Shown(mount["type"]), Shown(mount["accessor"]), OrNA(mount["description"])}
				if m.kind == "auth" {
					row = append(row, OrNA(mount["deprecation_version"]))
				}
				rows = append(rows, row)
			}
			head := []string{"Path", "Type", "Accessor", "Description"}
			if m.kind == "auth" {
				head = append(head, "Version")
			}
			return c.Columns(head, rows)
		}
	})
}

// Shown is a member of a mount as a table has it.
func Shown(v any) string {
	if v == nil {
		return ""
	}
	return PlainText(v)
}

func OrNA(v any) string {
	if s := Shown(v); s != "" {
		return s
	}
	return "n/a"
}

func detailedMounts(c *Call, m area, mounts map[string]any) error {
	head := []string{"Path", "Plugin", "Accessor", "Default TTL", "Max TTL", "Force No Cache", "Replication", "Seal Wrap",
		"External Entropy Access",
		"Options", "Description", "UUID", "Version", "Running Version", "Running SHA256", "Deprecation Status"}
	var rows [][]string
	for _, path := range command.SortedKeys(mounts) {
		mount, _ := mounts[path].(map[string]any)
		config, _ := mount["config"].(map[string]any)
		replication := "replicated"
		if mount["local"] == true {
			replication = "local"
		}
		options := "map[]"
		if o, ok := mount["options"].(map[string]any); ok {
			options = PlainText(o)
		}
		rows = append(rows, []string{path, Shown(mount["type"]), Shown(mount["accessor"]),
			lifetime(config["default_lease_ttl"]), lifetime(config["max_lease_ttl"]),
			Shown(config["force_no_cache"]), replication, Shown(mount["seal_wrap"]), Shown(mount["external_entropy_access"]),
			options,
			Shown(mount["description"]), Shown(mount["uuid"]), OrNA(mount["plugin_version"]),
			OrNA(mount["running_plugin_version"]),
			OrNA(mount["running_sha256"]), OrNA(mount["deprecation_status"])})
	}
	return c.Columns(head, rows)
}

// lifetime is a mount's TTL: 0 is the system's.
func lifetime(v any) string {
	if s := Shown(v); s != "0" && s != "" {
		return s
	}
	return "system"
}

// tuning are the flags that enable and tune share.
type tuning struct {
	description, defaultTTL, maxTTL, listing, tokenType string
	options                                             []string
	version                                             int
	nonHMACRequest, nonHMACResponse, passthrough, allow []string

	lock  lockoutFlags
	given func(flag string) bool
}

// lockoutFlags are the flags of auth methods alone.
type lockoutFlags struct {
	lockoutAfter            uint
	lockoutFor, lockoutZero string
	lockoutOff              bool
}

func (t *tuning) add(cmd *cobra.Command, m area) {
	f := cmd.Flags()
	t.given = f.Changed
	f.StringVar(&t.description, "description", "", "comment")
	f.StringVar(&t.defaultTTL, "default-lease-ttl", "", "default lifetime of its leases and tokens")
	f.StringVar(&t.maxTTL, "max-lease-ttl", "", "their longest lifetime")
	f.StringVar(&t.listing, "listing-visibility", "", "hidden or unauth")
	f.StringVar(&t.tokenType, "token-type", "", "type of the tokens that it makes")
	f.StringArrayVar(&t.options, "options", nil, "name=value (repeat)")
	f.IntVar(&t.version, "version", 0, "version of a KV store, 1 or 2")
	f.StringArrayVar(&t.nonHMACRequest, "audit-non-hmac-request-keys", nil,
		"member of requests that audit shows in plain (repeat)")
	f.StringArrayVar(&t.nonHMACResponse, "audit-non-hmac-response-keys", nil,
		"member of answers that audit shows in plain (repeat)")
	f.StringArrayVar(&t.passthrough, "passthrough-request-headers", nil, "header that it sees (repeat)")
	f.StringArrayVar(&t.allow, "allowed-response-headers", nil, "header that it may set (repeat)")
	if m.table != authTable {
		return
	}
	f.UintVar(&t.lock.lockoutAfter, "user-lockout-threshold", 0,
		"failed logins until somebody is locked out; 0: as the server's configuration says")
	f.StringVar(&t.lock.lockoutFor, "user-lockout-duration", "", "how long to wait after the last of them")
	f.StringVar(&t.lock.lockoutZero, "user-lockout-counter-reset-duration", "",
		"time without a failed login after which they count no more")
	f.BoolVar(&t.lock.lockoutOff, "user-lockout-disable", false, "never lock anyone out")
}

// lifetimes checks durations; -1 gives a mount back to the system's.
func lifetimes(flags map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if flags[name] == "-1" {
			continue
		}
		if err := checkDuration(name, flags[name]); err != nil {
			return err
		}
	}
	return nil
}

// lockout is user_lockout_config, empty where no flag tells of it.
func (t *tuning) lockout() (map[string]any, error) {
	err := errors.Join(checkDuration("user-lockout-duration", t.lock.lockoutFor),
		checkDuration("user-lockout-counter-reset-duration", t.lock.lockoutZero))
	config := map[string]any{}
	Put(config, "lockout_duration", t.lock.lockoutFor)
	Put(config, "lockout_counter_reset_duration", t.lock.lockoutZero)
	if t.given("user-lockout-threshold") {
		config["lockout_threshold"] = t.lock.lockoutAfter
	}
	if t.given("user-lockout-disable") {
		config["lockout_disable"] = t.lock.lockoutOff
	}
	return config, err
}

// settings are the members that config has at enable and the body has at tune.
func (t *tuning) settings(body map[string]any) error {
	lockout, err := t.lockout()
	if err := errors.Join(err, lifetimes(map[string]string{"default-lease-ttl": t.defaultTTL,
		"max-lease-ttl": t.maxTTL})); err != nil {
		return err
	}
	if len(lockout) > 0 {
		body["user_lockout_config"] = lockout
	}
	for name, v := range map[string]string{"default_lease_ttl": t.defaultTTL, "max_lease_ttl": t.maxTTL,
		"listing_visibility": t.listing, "token_type": t.tokenType} {
		Put(body, name, v)
	}
	for name, list := range map[string][]string{"audit_non_hmac_request_keys": t.nonHMACRequest,
		"audit_non_hmac_response_keys": t.nonHMACResponse,
		"passthrough_request_headers":  t.passthrough, "allowed_response_headers": t.allow} {
		if len(list) > 0 {
			body[name] = list
		}
	}
	return nil
}

// chosen are the options of the mount.
func (t *tuning) chosen(body map[string]any) error {
	options, err := stringMap("options", t.options)
	if err != nil {
		return err
	}
	if t.version > 0 {
		if options == nil {
			options = map[string]string{}
		}
		options["version"] = fmt.Sprint(t.version)
	}
	if options != nil {
		body["options"] = options
	}
	return nil
}

func (m area) enable(e *command.Env) *cobra.Command {
	return With(e, "enable TYPE", "Enable a "+m.thing, 1, 1, func(cmd *cobra.Command) func(*Call, []string) error {
		var t tuning
		t.add(cmd, m)
		f := cmd.Flags()
		path := f.String("path", "", "where to mount it; default its type")
		local := f.Bool("local", false, "do not replicate it")
		sealWrap := f.Bool("seal-wrap", false, "wrap its records with the seal")
		return func(c *Call, args []string) error {
			kind := args[0]
			at := Clean(*path)
			if at == "" {
				if at = kind; kind == "kv-v1" || kind == "kv-v2" {
					at = "kv"
				}
			}
			config := map[string]any{}
			body := map[string]any{"type": kind, "description": t.description, "local": *local, "seal_wrap": *sealWrap,
				"config": config}
			if err := errors.Join(t.settings(config), t.chosen(body)); err != nil {
				return err
			}
			a, err := c.Do("POST", m.table+"/"+at, body)
			if err != nil {
				return Doing("enabling", err)
			}
			return c.Changed(a, "Enabled the %s %s at: %s/", kind, m.thing, at)
		}
	})
}

func (m area) disable(e *command.Env) *cobra.Command {
	return Leaf(e, "disable PATH", "Disable a "+m.thing+" and take away what it kept", 1, 1,
		func(c *Call, args []string) error {
			path := Clean(args[0])
			a, err := c.Do("DELETE", m.table+"/"+path, nil)
			if err != nil {
				return Doing("disabling "+m.thing+" at "+path+"/", err)
			}
			return c.Changed(a, "Disabled the %s (if it existed) at: %s/", m.thing, path)
		})
}

func (m area) tune(e *command.Env) *cobra.Command {
	return With(e, "tune PATH", "Change a "+m.thing+"'s settings", 1, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			var t tuning
			t.add(cmd, m)
			return func(c *Call, args []string) error {
				path := Clean(args[0])
				body := map[string]any{}
				if cmd.Flags().Changed("description") {
					body["description"] = t.description
				}
				if err := errors.Join(t.settings(body), t.chosen(body)); err != nil {
					return err
				}
				a, err := c.Do("POST", m.table+"/"+strings.TrimSuffix(path, "/tune")+"/tune", body)
				if err != nil {
					return Doing("tuning "+m.thing+" "+path, err)
				}
				return c.Changed(a, "Tuned the %s at: %s/", m.thing, path)
			}
		})
}
