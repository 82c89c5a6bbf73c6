package aclcmd

import (
	"net/url"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"github.com/spf13/cobra"
)

// policy is a policy as the API shows it.
type policy struct {
	Name, Description, Rules string
	CreateIndex, ModifyIndex uint64
}

func policyList(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "list", "List the policies", 0, 0, func(c *jobscmd.Call, _ []string) error {
		return list(c, "acl/policies", []string{"Name", "Description"}, "No policies", func(p *policy) []string {
			return []string{p.Name, jobview.Or(p.Description, "<none>")}
		})
	})
}

func policyInfo(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "info POLICY", "Show a policy with its rules", 1, 1,
		func(c *jobscmd.Call, args []string) error {
			return info(c, "acl/policy/"+url.PathEscape(args[0]), func(c *jobscmd.Call, p *policy) error {
				c.Fields("Name", p.Name, "Description", jobview.Or(p.Description, "<none>"), "CreateIndex",
					strconv.FormatUint(p.CreateIndex, 10), "ModifyIndex", strconv.FormatUint(p.ModifyIndex, 10))
				return c.Printf("\nRules\n\n%s\n", p.Rules)
			})
		})
}

func policyApply(e *command.Env) *cobra.Command {
	return jobscmd.Leaf(e, "apply POLICY FILE", "Create or change a policy, with the rules in FILE (- is stdin)", 2, 2,
		func(cmd *cobra.Command) run {
			description := cmd.Flags().String("description", "", "what it is for")
			return func(c *jobscmd.Call, args []string) error {
				text, err := c.FileOrStdin(args[1])
				if err != nil {
					return err
				}
				in := policy{Name: args[0], Description: *description, Rules: string(text)}
				if err := c.Client.Put(c.Ctx(), "acl/policy/"+url.PathEscape(args[0]), nil, in, nil); err != nil {
					return err
				}
				return c.Printf("Successfully wrote %q ACL policy!\n", args[0])
			}
		})
}

// role is a role as the API shows it.
type role struct {
	ID                       string `json:",omitempty"`
	Name, Description        string
	Policies                 []link
	CreateIndex, ModifyIndex uint64
}

func showRole(c *jobscmd.Call, r *role) error {
	c.Fields("ID", r.ID, "Name", r.Name, "Description", jobview.Or(r.Description, "<none>"), "Policies",
		linkNames(r.Policies), "Create Index", strconv.FormatUint(r.CreateIndex, 10), "Modify Index",
		strconv.FormatUint(r.ModifyIndex, 10))
	return nil
}

func roleList(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "list", "List the roles", 0, 0, func(c *jobscmd.Call, _ []string) error {
		return list(c, "acl/roles", []string{"ID", "Name", "Description", "Policies"}, "No ACL roles",
			func(r *role) []string {
				return []string{r.ID, r.Name, jobview.Or(r.Description, "<none>"), linkNames(r.Policies)}
			})
	})
}

func roleInfo(e *command.Env) *cobra.Command {
	return jobscmd.Leaf(e, "info ROLE", "Show a role", 1, 1, func(cmd *cobra.Command) run {
		byName := cmd.Flags().Bool("by-name", false, "ROLE is its name, not its ID")
		return func(c *jobscmd.Call, args []string) error {
			path := "acl/role/"
			if *byName {
				path += "name/"
			}
			return info(c, path+url.PathEscape(args[0]), showRole)
		}
	})
}

// roleFlags are those of create and update.
type roleFlags struct {
	name, description *string
	policies          *[]string
}

func newRoleFlags(cmd *cobra.Command) *roleFlags {
	f := cmd.Flags()
	return &roleFlags{f.String("name", "", "its name"), f.String("description", "", "what it is for"),
		f.StringArray("policy", nil, "a policy of the role; repeat it for more")}
}

// over lays the flags that were given over a role.
func (f *roleFlags) over(r *role) {
	if *f.name != "" {
		r.Name = *f.name
	}
	if *f.description != "" {
		r.Description = *f.description
	}
	if len(*f.policies) > 0 {
		r.Policies = nil
	}
	for _, name := range *f.policies {
		r.Policies = append(r.Policies, link{Name: name})
	}
}

func roleCreate(e *command.Env) *cobra.Command {
	return jobscmd.Leaf(e, "create", "Make a role", 0, 0, func(cmd *cobra.Command) run {
		f := newRoleFlags(cmd)
		return func(c *jobscmd.Call, _ []string) error {
			var in role
			f.over(&in)
			return write(c, "acl/role", in, showRole)
		}
	})
}

func roleUpdate(e *command.Env) *cobra.Command {
	return jobscmd.Leaf(e, "update ROLE", "Change a role, by its ID; what no flag names stays", 1, 1,
		func(cmd *cobra.Command) run {
			f := newRoleFlags(cmd)
			return func(c *jobscmd.Call, args []string) error {
				path := "acl/role/" + url.PathEscape(args[0])
				var r role
				if err := c.Get(path, nil, &r); err != nil {
					return err
				}
				f.over(&r)
				return write(c, path, r, showRole)
			}
		})
}
