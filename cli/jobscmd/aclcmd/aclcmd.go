// Package aclcmd holds the commands of access control under Nomad's name: `nomad acl` and `nomad login`. They show the
// tokens and policies of the catalog, which `corbel acl` manages.
package aclcmd

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"github.com/spf13/cobra"
)

// run is what a command does with its arguments.
type run = func(*jobscmd.Call, []string) error

// ACL builds `nomad acl`.
func ACL(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, bootstrap(e),
		command.Named("policy", "Manage policies", policyList(e), policyInfo(e), policyApply(e),
			deletes(e, "delete POLICY", "Delete a policy", "acl/policy/", "policy")),
		command.Named("token", "Manage tokens", tokenList(e), tokenSelf(e), tokenInfo(e), tokenCreate(e), tokenUpdate(e),
			deletes(e, "delete ACCESSOR", "Revoke a token", "acl/token/", "token")),
		command.Named("role", "Manage roles", roleList(e), roleInfo(e), roleCreate(e), roleUpdate(e),
			deletes(e, "delete ROLE", "Delete a role, by its ID", "acl/role/", "role")),
		command.Named("auth-method", "Manage auth methods: how logins are checked", methodList(e), methodInfo(e),
			methodWrite(e, false), methodWrite(e, true),
			deletes(e, "delete METHOD", "Delete an auth method, its rules and its tokens", "acl/auth-method/", "auth method")),
		command.Named("binding-rule", "Manage binding rules: what logins get", ruleList(e), ruleInfo(e), ruleWrite(e, false),
			ruleWrite(e, true), deletes(e, "delete RULE", "Delete a binding rule", "acl/binding-rule/", "binding rule")))
}

// deletes builds a command that deletes what is named.
func deletes(e *command.Env, use, short, path, what string) *cobra.Command {
	return jobscmd.Plain(e, use, short, 1, 1, func(c *jobscmd.Call, args []string) error {
		if _, err := c.Client.Do(c.Ctx(), "DELETE", path+url.PathEscape(args[0]), nil, nil, nil); err != nil {
			return err
		}
		return c.Printf("Successfully deleted %s %s!\n", what, args[0])
	})
}

// write sends in and shows the answer: as JSON where that is asked for.
func write[T any](c *jobscmd.Call, path string, in any, show func(*jobscmd.Call, *T) error) error {
	var made T
	if err := c.Client.Put(c.Ctx(), path, nil, in, &made); err != nil {
		return err
	}
	if c.JSON {
		return command.WriteJSON(c.Out, &made, false)
	}
	return show(c, &made)
}

// info reads path and shows it.
func info[T any](c *jobscmd.Call, path string, show func(*jobscmd.Call, *T) error) error {
	if done, err := c.Show(path, nil); done {
		return err
	}
	var one T
	if err := c.Get(path, nil, &one); err != nil {
		return err
	}
	return show(c, &one)
}

// list reads path and prints a row for each.
func list[T any](c *jobscmd.Call, path string, head []string, none string, row func(*T) []string) error {
	if done, err := c.Show(path, nil); done {
		return err
	}
	var all []*T
	if err := c.Get(path, nil, &all); err != nil {
		return err
	}
	rows := [][]string{}
	for _, one := range all {
		rows = append(rows, row(one))
	}
	return c.Table(head, rows, none)
}

// link names a policy or role.
type link struct {
	ID   string `json:",omitempty"`
	Name string `json:",omitempty"`
}

func linkNames(links []link) string {
	out := make([]string, len(links))
	for i, l := range links {
		out[i] = jobview.Or(l.Name, l.ID)
	}
	return jobview.Or(strings.Join(out, ","), "<none>")
}

// token is a token as the API shows it.
type token struct {
	AccessorID     string
	SecretID       string `json:",omitempty"`
	Name, Type     string
	Policies       []string
	Roles          []link
	Global         bool
	CreateTime     time.Time
	ExpirationTime *time.Time `json:",omitempty"`
	CreateIndex    uint64
	ModifyIndex    uint64
}

func (t *token) expiry() string {
	if t.ExpirationTime == nil {
		return "<none>"
	}
	return jobview.Moment(*t.ExpirationTime)
}

func showToken(c *jobscmd.Call, t *token) error {
	policies := jobview.Or(strings.Join(t.Policies, ","), "<none>")
	if t.Type == "management" {
		policies = "n/a"
	}
	c.Fields("Accessor ID", t.AccessorID, "Secret ID", t.SecretID, "Name", jobview.Or(t.Name, "<none>"), "Type", t.Type,
		"Global", strconv.FormatBool(t.Global), "Create Time", jobview.Moment(t.CreateTime), "Expiry Time", t.expiry(),
		"Create Index", strconv.FormatUint(t.CreateIndex, 10), "Modify Index", strconv.FormatUint(t.ModifyIndex, 10),
		"Policies", policies, "Roles", linkNames(t.Roles))
	return nil
}

func bootstrap(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "bootstrap [FILE]", "Make the first management token, with the secret in FILE (- is stdin)",
		0, 1, func(c *jobscmd.Call, args []string) error {
			var in struct{ BootstrapSecret string }
			if len(args) == 1 {
				text, err := c.FileOrStdin(args[0])
				if err != nil {
					return err
				}
				in.BootstrapSecret = strings.TrimSpace(string(text))
			}
			return write(c, "acl/bootstrap", in, showToken)
		})
}

func tokenList(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "list", "List the tokens, without their secrets", 0, 0, func(c *jobscmd.Call,
		_ []string) error {
		return list(c, "acl/tokens", []string{"Name", "Type", "Global", "Accessor ID", "Expired"}, "No ACL tokens",
			func(t *token) []string {
				expired := t.ExpirationTime != nil && t.ExpirationTime.Before(time.Now())
				return []string{jobview.Or(t.Name, "<none>"), t.Type, strconv.FormatBool(t.Global), t.AccessorID,
					strconv.FormatBool(expired)}
			})
	})
}

func tokenSelf(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "self", "Show the token that is in use", 0, 0, func(c *jobscmd.Call, _ []string) error {
		return info(c, "acl/token/self", showToken)
	})
}

func tokenInfo(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "info ACCESSOR", "Show a token", 1, 1, func(c *jobscmd.Call, args []string) error {
		return info(c, "acl/token/"+url.PathEscape(args[0]), showToken)
	})
}

// tokenFlags are those of create and update.
type tokenFlags struct {
	name, kind               *string
	policies, roles, roleIDs *[]string
}

func newTokenFlags(cmd *cobra.Command, kind string) *tokenFlags {
	f := cmd.Flags()
	return &tokenFlags{f.String("name", "", "what it is for"), f.String("type", kind, "client or management"),
		f.StringArray("policy", nil, "a policy of the token; repeat it for more"),
		f.StringArray("role-name", nil, "a role of the token, by its name; repeat it for more"),
		f.StringArray("role-id", nil, "a role of the token, by its ID; repeat it for more")}
}

func (f *tokenFlags) links() (roles []link) {
	for _, id := range *f.roleIDs {
		roles = append(roles, link{ID: id})
	}
	for _, name := range *f.roles {
		roles = append(roles, link{Name: name})
	}
	return roles
}

func tokenCreate(e *command.Env) *cobra.Command {
	return jobscmd.Leaf(e, "create", "Make a token", 0, 0, func(cmd *cobra.Command) run {
		f := newTokenFlags(cmd, "client")
		global := cmd.Flags().Bool("global", false, "in all regions")
		ttl := cmd.Flags().String("ttl", "", "how long it lives, as 8h; 1m to 24h, empty is for ever")
		return func(c *jobscmd.Call, _ []string) error {
			in := map[string]any{"Name": *f.name, "Type": *f.kind, "Policies": *f.policies, "Roles": f.links(),
				"Global": *global}
			if *ttl != "" {
				if _, err := time.ParseDuration(*ttl); err != nil {
					return command.Usagef("-ttl=%s is no duration: write it as 8h", *ttl)
				}
				in["ExpirationTTL"] = *ttl
			}
			return write(c, "acl/token", in, showToken)
		}
	})
}

func tokenUpdate(e *command.Env) *cobra.Command {
	return jobscmd.Leaf(e, "update ACCESSOR", "Change what a token gives; what no flag names stays", 1, 1,
		func(cmd *cobra.Command) run {
			f := newTokenFlags(cmd, "")
			return func(c *jobscmd.Call, args []string) error {
				path := "acl/token/" + url.PathEscape(args[0])
				var t token
				if err := c.Get(path, nil, &t); err != nil {
					return err
				}
				if *f.name != "" {
					t.Name = *f.name
				}
				if *f.kind != "" {
					t.Type = *f.kind
				}
				if len(*f.policies) > 0 {
					t.Policies = *f.policies
				}
				if roles := f.links(); len(roles) > 0 {
					t.Roles = roles
				}
				if t.Type == "management" {
					t.Policies, t.Roles = nil, nil
				}
				return write(c, path, t, showToken)
			}
		})
}
