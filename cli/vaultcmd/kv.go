package vaultcmd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
)

// KV builds kv.
func KV(e *command.Env, cmd *cobra.Command) {
	cmd.Example = "  vault kv put -mount=secret app password=x\n  vault kv get secret/app"
	command.Group(cmd, kvGet(e), kvPut(e), kvPatch(e), kvList(e), kvDelete(e),
		kvVersions(e, "undelete", "Take a deletion of versions back"),
		kvVersions(e, "destroy", "Take the data of versions away for good"), kvRollback(e), kvEnableVersioning(e),
		kvMetadata(e))
}

// keyed makes a command whose first argument is a key: KEY with -mount, or MOUNT/KEY.
func keyed(e *command.Env, use, short string, low, high int,
	build func(cmd *cobra.Command) func(k *key, args []string) error) *cobra.Command {
	return With(e, use, short, low, high, func(cmd *cobra.Command) func(*Call, []string) error {
		mount := cmd.Flags().String("mount", "", "mount of the KV store; the first argument is then the key in it")
		run := build(cmd)
		return func(c *Call, args []string) error {
			k, err := c.key(*mount, args[0])
			if err != nil {
				return err
			}
			return run(k, args[1:])
		}
	})
}

// key is a key of a KV store, with the mount that it was found in.
type key struct {
	*Call
	mount, name string // without slashes at their ends
	versioned   bool
}

// key asks the server which mount path lies in and which version of the store that is.
func (c *Call) key(mount, path string) (*key, error) {
	full := Clean(path)
	if mount != "" {
		full = strings.TrimSuffix(Clean(mount)+"/"+full, "/")
	}
	a, err := c.Do("GET", "sys/internal/ui/mounts/"+full, nil)
	if err != nil {
		return nil, Doing("asking where "+full+" is mounted", err)
	}
	k := &key{Call: c, mount: Clean(fmt.Sprint(a.Data["path"]))}
	k.name = strings.TrimPrefix(strings.TrimPrefix(full, k.mount), "/")
	options, _ := a.Data["options"].(map[string]any)
	k.versioned = options["version"] == "2"
	if k.versioned && mount == "" { // people write the path of the API as well
		k.name = strings.TrimPrefix(k.name, "data/")
	}
	return k, nil
}

// path is where the API has the key: below kind in a versioned store.
func (k *key) path(kind string) string {
	if !k.versioned {
		return strings.TrimSuffix(k.mount+"/"+k.name, "/")
	}
	return strings.TrimSuffix(k.mount+"/"+kind+"/"+k.name, "/")
}

// needVersions refuses what only a versioned store can do.
func (k *key) needVersions() error {
	if k.versioned {
		return nil
	}
	return fmt.Errorf("%s is a KV store of version 1, which keeps no versions: enable one of version 2, or `kv "+
		"enable-versioning`", k.mount)
}

func kvGet(e *command.Env) *cobra.Command {
	return keyed(e, "get KEY", "Show a secret", 1, 1, func(cmd *cobra.Command) func(*key, []string) error {
		version := cmd.Flags().Int("version", 0, "version to show; default the newest")
		return func(k *key, _ []string) error {
			query := map[string]string{}
			if *version > 0 && k.versioned {
				query["version"] = strconv.Itoa(*version)
			}
			path := k.path("data")
			a, err := k.Ask("GET", path, query, nil)
			var refused *vault.Error
			switch {
			case errors.As(err, &refused) && refused.Status == 404 && refused.Answer != nil && refused.Answer.Data != nil:
				// deleted or destroyed: there is metadata to show
				if err := k.showVersion(path, refused.Answer); err != nil {
					return err
				}
				return CodeRefused
			case NotFound(err):
				return k.Nothing(path)
			case err != nil:
				return Doing("reading "+path, err)
			case !k.versioned:
				return k.showPlain(a)
			}
			return k.showVersion(path, a)
		}
	})
}

// showPlain prints a secret of a store without versions.
func (k *key) showPlain(a *vault.Answer) error {
	if k.Format != "table" || k.Field != "" {
		return k.Secret(a)
	}
	k.warn(a)
	return k.titledPairs("Data", a.Data)
}

// showVersion prints a version: where it is, its metadata, its data if it has some.
func (k *key) showVersion(path string, a *vault.Answer) error {
	data, _ := a.Data["data"].(map[string]any)
	meta, _ := a.Data["metadata"].(map[string]any)
	if k.Field != "" {
		return k.Member(data)
	}
	if done, err := k.envelope(a); done {
		return err
	}
	k.warn(a)
	if err := k.showMeta(path, "Secret Path", meta); err != nil || data == nil {
		return err
	}
	k.Say("\n")
	return k.titledPairs("Data", data)
}

// showMeta prints a path under its head and the metadata of one version.
func (k *key) showMeta(path, head string, meta map[string]any) error {
	if err := k.titled(head, len(path)); err != nil {
		return err
	}
	k.Say("%s\n\n", path)
	return k.titledPairs("Metadata", notYet(meta))
}

// notYet writes n/a for a deletion that did not happen.
func notYet(meta map[string]any) map[string]any {
	if meta["deletion_time"] == "" {
		meta["deletion_time"] = "n/a"
	}
	return meta
}

// written prints what a change of a secret brought.
func (k *key) written(path string, a *vault.Answer) error {
	if !k.versioned || a.Data == nil {
		return k.Changed(a, "Data written to: %s", path)
	}
	if k.Field != "" {
		return k.Member(a.Data)
	}
	if done, err := k.envelope(a); done {
		return err
	}
	k.warn(a)
	return k.showMeta(path, "Secret Path", a.Data)
}

func kvPut(e *command.Env) *cobra.Command {
	return keyed(e, "put KEY NAME=VALUE...", "Write a secret; in a store with versions, a new version", 1, -1,
		func(cmd *cobra.Command) func(*key, []string) error {
			cas := cmd.Flags().Int("cas", -1, "write only if this is the newest version; 0: only if there is no version")
			return func(k *key, args []string) error {
				if len(args) == 0 {
					return command.Usagef("Must supply data")
				}
				data, err := k.parse(args)
				if err != nil {
					return err
				}
				body := data
				if k.versioned {
					body = versionBody(data, *cas)
				} else if *cas >= 0 {
					return k.needVersions()
				}
				path := k.path("data")
				a, err := k.Do("PUT", path, body)
				if err != nil {
					return Doing("writing data to "+path, err)
				}
				return k.written(path, a)
			}
		})
}

func versionBody(data map[string]any, cas int) map[string]any {
	options := map[string]any{}
	if cas >= 0 {
		options["cas"] = cas
	}
	return map[string]any{"data": data, "options": options}
}

func kvPatch(e *command.Env) *cobra.Command {
	return keyed(e, "patch KEY NAME=VALUE...", "Change some fields of a secret", 1, -1,
		func(cmd *cobra.Command) func(*key, []string) error {
			f := cmd.Flags()
			cas := f.Int("cas", -1, "patch only if this is the newest version")
			method := f.String("method", "", "patch (default): the server merges; rw: read, merge and write here")
			remove := f.StringArray("remove-data", nil, "field to take out (repeat)")
			return func(k *key, args []string) error {
				if len(args)+len(*remove) == 0 {
					return command.Usagef("Must supply data")
				}
				if err := k.needVersions(); err != nil {
					return err
				}
				data, err := k.parse(args)
				if err != nil {
					return err
				}
				for _, name := range *remove {
					data[name] = nil
				}
				path := k.path("data")
				if *method == "rw" {
					return k.mergeHere(path, data)
				}
				if *method != "" && *method != "patch" {
					return command.Usagef("-method=%s must be patch or rw", *method)
				}
				a, err := k.Do("PATCH", path, versionBody(data, *cas))
				switch {
				case NotFound(err):
					return k.Nothing(path)
				case refusedWith(err, 403) && !cmd.Flags().Changed("method"): // a policy may give read and update alone
					return k.mergeHere(path, data)
				case err != nil:
					return Doing("patching "+path, err)
				}
				return k.written(path, a)
			}
		})
}

// mergeHere reads the newest version, merges and writes it, on the condition that it is still the newest.
func (k *key) mergeHere(path string, change map[string]any) error {
	a, err := k.Do("GET", path, nil)
	if refusedWith(err, 404) {
		return k.Nothing(path)
	}
	if err != nil {
		return Doing("reading "+path, err)
	}
	data, _ := a.Data["data"].(map[string]any)
	if data == nil {
		return k.Nothing(path)
	}
	for name, v := range change {
		data[name] = v
		if v == nil {
			delete(data, name)
		}
	}
	if a, err = k.Do("PUT", path, versionBody(data, newest(a.Data["metadata"]))); err != nil {
		return Doing("writing data to "+path, err)
	}
	return k.written(path, a)
}

// newest is the number of the version that a version's metadata tells of.
func newest(meta any) int {
	m, _ := meta.(map[string]any)
	n, _ := strconv.Atoi(PlainText(m["version"]))
	return n
}

func kvList(e *command.Env) *cobra.Command {
	return keyed(e, "list PATH", "List keys", 1, 1, func(*cobra.Command) func(*key, []string) error {
		return func(k *key, _ []string) error { return k.list(k.path("metadata")) }
	})
}

func kvDelete(e *command.Env) *cobra.Command {
	return keyed(e, "delete KEY", "Delete a secret; in a store with versions, so that it can be taken back", 1, 1,
		func(cmd *cobra.Command) func(*key, []string) error {
			versions := versionsFlag(cmd, "versions to delete; default the newest")
			return func(k *key, _ []string) error {
				path, method, body := k.path("data"), "DELETE", any(nil)
				if len(*versions) > 0 {
					if err := k.needVersions(); err != nil {
						return err
					}
					method, body = "PUT", map[string]any{"versions": *versions}
					path = k.path("delete")
				}
				a, err := k.Do(method, path, body)
				if err != nil {
					return Doing("deleting "+path, err)
				}
				return k.Changed(a, "Data deleted (if it existed) at: %s", k.path("data"))
			}
		})
}

func versionsFlag(cmd *cobra.Command, text string) *[]int {
	return cmd.Flags().IntSlice("versions", nil, text+" (1,2 or repeat)")
}

// kvVersions makes undelete and destroy.
func kvVersions(e *command.Env, name, short string) *cobra.Command {
	return keyed(e, name+" KEY", short, 1, 1, func(cmd *cobra.Command) func(*key, []string) error {
		versions := versionsFlag(cmd, "versions to "+name)
		return func(k *key, _ []string) error {
			if len(*versions) == 0 {
				return command.Usagef("No versions provided, use the \"-versions\" flag to specify the version to %s.", name)
			}
			if err := k.needVersions(); err != nil {
				return err
			}
			path := k.path(name)
			a, err := k.Do("PUT", path, map[string]any{"versions": *versions})
			if err != nil {
				return Doing("writing data to "+path, err)
			}
			return k.Changed(a, "Data written to: %s", path)
		}
	})
}

func kvRollback(e *command.Env) *cobra.Command {
	return keyed(e, "rollback KEY", "Make an old version the newest again", 1, 1,
		func(cmd *cobra.Command) func(*key, []string) error {
			version := cmd.Flags().Int("version", 0, "version to go back to")
			return func(k *key, _ []string) error {
				if *version <= 0 {
					return command.Usagef("Version flag must be specified: -version=N")
				}
				if err := k.needVersions(); err != nil {
					return err
				}
				path := k.path("data")
				now, err := k.Do("GET", k.path("metadata"), nil)
				if err != nil {
					return Doing("reading "+k.path("metadata"), err)
				}
				old, err := k.Ask("GET", path, map[string]string{"version": strconv.Itoa(*version)}, nil)
				if err != nil {
					return Doing(fmt.Sprintf("reading version %d of %s", *version, path), err)
				}
				current, err := strconv.Atoi(PlainText(now.Data["current_version"]))
				if err != nil {
					return fmt.Errorf("%s: current_version is no number", k.path("metadata"))
				}
				data, _ := old.Data["data"].(map[string]any)
				a, err := k.Do("PUT", path, versionBody(data, current))
				if err != nil {
					return Doing("writing data to "+path, err)
				}
				return k.written(path, a)
			}
		})
}

func kvEnableVersioning(e *command.Env) *cobra.Command {
	return Leaf(e, "enable-versioning MOUNT", "Make a KV store keep versions", 1, 1, func(c *Call, args []string) error {
		mount := Clean(args[0])
		a, err := c.Do("PUT", "sys/mounts/"+mount+"/tune", map[string]any{"options": map[string]string{"version": "2"}})
		if err != nil {
			return Doing("tuning secrets engine "+mount, err)
		}
		return c.Changed(a, "Tuned the secrets engine at: %s/", mount)
	})
}
