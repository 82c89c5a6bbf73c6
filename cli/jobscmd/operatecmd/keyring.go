package operatecmd

import (
	"net/url"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"github.com/spf13/cobra"
)

// key is one of the keys that sign workload identities.
type key struct {
	KeyID, Algorithm, State string
	CreateTime              int64
}

func (k *key) row(c *jobscmd.Call) []string {
	id := k.KeyID
	if !c.Verbose && len(id) > 8 {
		id = id[:8]
	}
	return []string{id, k.State, jobview.When(k.CreateTime)}
}

var keyHead = []string{"Key", "State", "Create Time"}

// keyring builds `nomad operator root keyring`.
func keyring(e *command.Env) *cobra.Command {
	const path = "operator/keyring/keys"
	return command.Named("keyring", "Manage the keys that sign workload identities",
		jobscmd.Plain(e, "list", "List the keys: one signs, the others verify what they have signed", 0, 0,
			func(c *jobscmd.Call, _ []string) error {
				if done, err := c.Show(path, nil); done {
					return err
				}
				var keys []*key
				if err := c.Get(path, nil, &keys); err != nil {
					return err
				}
				rows := [][]string{}
				for _, k := range keys {
					rows = append(rows, k.row(c))
				}
				return c.Table(keyHead, rows, "No keys: the first one is made with the first identity")
			}),
		jobscmd.Leaf(e, "rotate", "Have a new key sign from now on", 0, 0, func(cmd *cobra.Command) func(*jobscmd.Call,
			[]string) error {
			full := cmd.Flags().Bool("full", false, "accepted: variables are sealed by the secrets plane, not by these keys")
			return func(c *jobscmd.Call, _ []string) error {
				query := url.Values{}
				if *full {
					query.Set("full", "true")
				}
				var answer struct{ Key key }
				if err := c.Client.Put(c.Ctx(), "operator/keyring/rotate", query, nil, &answer); err != nil {
					return err
				}
				if c.JSON {
					return command.WriteJSON(c.Out, answer.Key, false)
				}
				return c.Table(keyHead, [][]string{answer.Key.row(c)}, "")
			}
		}),
		jobscmd.Plain(e, "remove KEY", "Forget a key that signs no more: identities that it signed end", 1, 1,
			func(c *jobscmd.Call, args []string) error {
				if _, err := c.Client.Do(c.Ctx(), "DELETE", "operator/keyring/key/"+url.PathEscape(args[0]), nil, nil,
					nil); err != nil {
					return err
				}
				return c.Printf("Removed key %s\n", args[0])
			}))
}
