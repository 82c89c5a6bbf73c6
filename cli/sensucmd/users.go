package sensucmd

import (
	"context"
	"encoding/json"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

// user is a user as far as it is printed.
type user struct {
	Username string
	Groups   []string
	Disabled bool
}

// Users builds `users`. Users belong to no namespace, and a deleted one stays disabled, so that no other person gets
// the name with its rights by accident: that is the contract of the monitor's API.
func Users(e *command.Env, c *cobra.Command) {
	var password string
	var groups []string
	create := act(e, "create NAME", "Create a user, or replace one", command.Between(1, 1, "NAME"),
		func(c *cobra.Command, _ *dial) {
			c.Flags().StringVar(&password, "new-password", "", "password of the user: text, @file or - for stdin")
			c.Flags().StringSliceVar(&groups, "groups", nil, "groups of the user")
		}, func(ctx context.Context, d *dial, cl *sensu.Client, args []string) error {
			text, err := e.Input(password)
			if err != nil {
				return err
			}
			fresh := strings.TrimRight(string(text), "\r\n")
			if fresh == "" {
				return command.Usagef("users create needs --new-password")
			}
			body, err := json.Marshal(map[string]any{"username": args[0], "password": fresh, "groups": groups})
			if err != nil {
				return err
			}
			if _, _, err := cl.Do(ctx, "PUT", userPath(args[0]), nil, body); err != nil {
				return err
			}
			return d.env.Printf("Created %s\n", args[0])
		})
	show := act(e, "info NAME", "Show one user", command.Between(1, 1, "NAME"), reading,
		func(ctx context.Context, d *dial, cl *sensu.Client, args []string) error {
			var raw json.RawMessage
			if err := cl.Get(ctx, userPath(args[0]), &raw); err != nil {
				return absent(err, "users", args)
			}
			if d.json {
				return command.WriteJSON(d.env.Out, raw, false)
			}
			var u user
			if err := json.Unmarshal(raw, &u); err != nil {
				return err
			}
			f := &command.Fields{Width: 16}
			f.Add("Name", u.Username)
			f.Add("Groups", strings.Join(u.Groups, ", "))
			f.Add("Enabled", yes(!u.Disabled))
			return f.Write(d.env.Out)
		})
	disable := act(e, "delete NAME", "Disable a user: the name stays taken", command.Between(1, 1, "NAME"), nil,
		func(ctx context.Context, d *dial, cl *sensu.Client, args []string) error {
			if _, _, err := cl.Do(ctx, "DELETE", userPath(args[0]), nil, nil); err != nil {
				return absent(err, "users", args)
			}
			return d.env.Printf("Disabled %s\n", args[0])
		})
	all := act(e, "list", "List users", command.Between(0, 0, "flags only"), reading,
		func(ctx context.Context, d *dial, cl *sensu.Client, _ []string) error {
			d.all = true
			return printList(ctx, d, cl, "users", []string{"Name", "Groups", "Enabled"}, func(u *user) []string {
				return []string{u.Username, strings.Join(u.Groups, ","), yes(!u.Disabled)}
			})
		})
	command.Group(c, all, show, create, disable)
}

func userPath(name string) string { return sensu.ObjectPath("core/v2/users", false, "", name) }
