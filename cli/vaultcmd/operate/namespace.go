package operate

import (
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
)

const namespaces = "sys/namespaces"

// Namespace builds namespace.
func Namespace(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, namespaceList(e, "list", "List the namespaces below this one", "LIST"),
		namespaceList(e, "scan", "List all namespaces below this one, at any depth", "SCAN"),
		namespaceOn(e, "lookup PATH", "Show a namespace", "GET", "looking up namespace"),
		namespaceCreate(e), namespacePatch(e),
		namespaceOn(e, "delete PATH", "Delete a namespace with all that is in it", "DELETE", "deleting namespace"),
		vaultcmd.Leaf(e, "lock [PATH]", "Refuse all requests in this namespace, or in one below it", 0, 1,
			func(c *vaultcmd.Call, args []string) error {
				return namespaceDo(c, "PUT", lockPath("lock", args), nil, "locking namespace", "Locked namespace")
			}), namespaceUnlock(e))
}

func namespaceList(e *command.Env, use, short, method string) *cobra.Command {
	return vaultcmd.With(e, use, short, 0, 0, func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
		detailed := cmd.Flags().Bool("detailed", false, "show ids and metadata too")
		return func(c *vaultcmd.Call, _ []string) error {
			a, err := c.Do(method, namespaces, nil)
			if vaultcmd.NotFound(err) {
				return c.Nothing(namespaces)
			}
			if err != nil {
				return vaultcmd.Doing("listing namespaces", err)
			}
			if *detailed {
				return namespaceDetails(c, a)
			}
			return names(c, a)
		}
	})
}

func namespaceDetails(c *vaultcmd.Call, a *vault.Answer) error {
	if done, err := c.Structured(a.Data["key_info"]); done {
		return err
	}
	info, _ := a.Data["key_info"].(map[string]any)
	var rows [][]string
	for _, name := range vaultcmd.Texts(a.Data["keys"]) {
		one, _ := info[name].(map[string]any)
		rows = append(rows, []string{name, vaultcmd.PlainText(one["id"]), vaultcmd.PlainText(one["custom_metadata"])})
	}
	return c.Columns([]string{"Path", "ID", "Custom Metadata"}, rows)
}

func namespaceOn(e *command.Env, use, short, method, doing string) *cobra.Command {
	return vaultcmd.Leaf(e, use, short, 1, 1, func(c *vaultcmd.Call, args []string) error {
		name := vaultcmd.Clean(args[0])
		return namespaceDo(c, method, namespaces+"/"+name, nil, doing, "Namespace deleted (if it existed) at: "+name+"/")
	})
}

// namespaceDo asks, and shows the answer, or says what was done where that is all.
func namespaceDo(c *vaultcmd.Call, method, path string, body any, doing, done string) error {
	a, err := c.Do(method, path, body)
	if vaultcmd.NotFound(err) {
		return c.Nothing(path)
	}
	if err != nil {
		return vaultcmd.Doing(doing, err)
	}
	if a.Empty() {
		return c.Success("%s", done)
	}
	return c.Secret(a)
}

func namespaceCreate(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "create PATH", "Make a namespace", 1, 1, func(cmd *cobra.Command) func(*vaultcmd.Call,
		[]string) error {
		custom := cmd.Flags().StringArray("custom-metadata", nil, "name=value to keep with the namespace (repeat)")
		return func(c *vaultcmd.Call, args []string) error {
			meta, err := metadata(*custom, nil)
			if err != nil {
				return err
			}
			body := map[string]any{}
			if len(meta) > 0 {
				body["custom_metadata"] = meta
			}
			return namespaceDo(c, "PUT", namespaces+"/"+vaultcmd.Clean(args[0]), body, "creating namespace", "Done")
		}
	})
}

func namespacePatch(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "patch PATH", "Change the metadata of a namespace", 1, 1,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			custom := cmd.Flags().StringArray("custom-metadata", nil, "name=value to set (repeat)")
			gone := cmd.Flags().StringArray("remove-custom-metadata", nil, "name to take away (repeat)")
			return func(c *vaultcmd.Call, args []string) error {
				meta, err := metadata(*custom, *gone)
				if err != nil {
					return err
				}
				return namespaceDo(c, "PATCH", namespaces+"/"+vaultcmd.Clean(args[0]), map[string]any{"custom_metadata": meta},
					"patching namespace", "Done")
			}
		})
}

// metadata is what is to be set, and null where a name is to go.
func metadata(set, gone []string) (map[string]any, error) {
	out := map[string]any{}
	for _, name := range gone {
		out[name] = nil
	}
	for _, text := range set {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, command.Usagef("-custom-metadata: %q must be name=value", text)
		}
		out[name] = value
	}
	return out, nil
}

func lockPath(what string, args []string) string {
	path := namespaces + "/api-lock/" + what
	if len(args) > 0 {
		path += "/" + vaultcmd.Clean(args[0])
	}
	return path
}

func namespaceUnlock(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "unlock [PATH]", "Answer requests in a locked namespace again", 0, 1,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			key := cmd.Flags().String("unlock-key", "", "what lock gave; root tokens need none")
			return func(c *vaultcmd.Call, args []string) error {
				return namespaceDo(c, "PUT", lockPath("unlock", args), map[string]any{"unlock_key": *key}, "unlocking namespace",
					"Unlocked namespace")
			}
		})
}
