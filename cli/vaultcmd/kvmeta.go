package vaultcmd

import (
	"cmp"
	"slices"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

func kvMetadata(e *command.Env) *cobra.Command {
	return command.Named("metadata", "Look after what is kept about a secret",
		kvMetaGet(e), kvMetaChange(e, "put", "PUT", "Set what is kept about a secret"),
		kvMetaChange(e, "patch", "PATCH", "Change some of it"),
		keyed(e, "delete KEY", "Take a secret away with all its versions", 1, 1,
			func(*cobra.Command) func(*key, []string) error {
				return func(k *key, _ []string) error {
					if err := k.needVersions(); err != nil {
						return err
					}
					path := k.path("metadata")
					a, err := k.Do("DELETE", path, nil)
					if err != nil {
						return Doing("deleting "+path, err)
					}
					return k.Changed(a, "Data deleted (if it existed) at: %s", path)
				}
			}))
}

func kvMetaGet(e *command.Env) *cobra.Command {
	return keyed(e, "get KEY", "Show a secret's settings and versions", 1, 1,
		func(*cobra.Command) func(*key, []string) error {
			return func(k *key, _ []string) error {
				if err := k.needVersions(); err != nil {
					return err
				}
				path := k.path("metadata")
				a, err := k.Do("GET", path, nil)
				switch {
				case NotFound(err):
					return k.Nothing(path)
				case err != nil:
					return Doing("reading "+path, err)
				case k.Field != "":
					return k.Member(a.Data)
				}
				if done, err := k.envelope(a); done {
					return err
				}
				versions, _ := a.Data["versions"].(map[string]any)
				delete(a.Data, "versions")
				if err := k.showMeta(path, "Metadata Path", a.Data); err != nil {
					return err
				}
				return k.showVersions(versions)
			}
		})
}

func (k *key) showVersions(versions map[string]any) error {
	names := command.SortedKeys(versions)
	slices.SortFunc(names, func(a, b string) int {
		m, _ := strconv.Atoi(a) // the server counts versions
		n, _ := strconv.Atoi(b)
		return cmp.Compare(m, n)
	})
	for _, n := range names {
		one, _ := versions[n].(map[string]any)
		k.Say("\n")
		if err := k.titledPairs("Version "+n, notYet(one)); err != nil {
			return err
		}
	}
	return nil
}

// kvMetaChange makes metadata put and patch: flags that were not given are not sent.
func kvMetaChange(e *command.Env, name, method, short string) *cobra.Command {
	return keyed(e, name+" KEY", short, 1, 1, func(cmd *cobra.Command) func(*key, []string) error {
		f := cmd.Flags()
		max := f.Int("max-versions", 0, "how many versions to keep; 0: the store's own number")
		cas := f.Bool("cas-required", false, "refuse writes without -cas")
		after := f.String("delete-version-after", "", "delete versions this long after they are written")
		custom := f.StringArray("custom-metadata", nil, "name=value to keep beside the secret (repeat)")
		return func(k *key, _ []string) error {
			if err := k.needVersions(); err != nil {
				return err
			}
			if err := checkDuration("delete-version-after", *after); err != nil {
				return err
			}
			meta, err := stringMap("custom-metadata", *custom)
			if err != nil {
				return err
			}
			body := map[string]any{}
			if f.Changed("max-versions") {
				body["max_versions"] = *max
			}
			if f.Changed("cas-required") {
				body["cas_required"] = *cas
			}
			Put(body, "delete_version_after", *after)
			if meta != nil {
				body["custom_metadata"] = meta
			}
			path := k.path("metadata")
			a, err := k.Do(method, path, body)
			if err != nil {
				return Doing("writing data to "+path, err)
			}
			return k.Changed(a, "Data written to: %s", path)
		}
	})
}
