package ldap

import (
	"context"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/directory"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/record"
)

// config is the mount's, under "config".
type config struct {
	directory.Place
	userRule
	groupRule
	Folded bool        `json:"folded"` // names are lower case: not case_sensitive_names
	Tokens auth.Params `json:"params"`
}

// userRule is how users are found.
type userRule struct {
	UserDN     string `json:"userdn,omitempty"`
	UserAttr   string `json:"userattr"`
	UserFilter string `json:"userfilter"`
	UPNDomain  string `json:"upndomain,omitempty"`
	Discover   bool   `json:"discoverdn,omitempty"`
}

// groupRule is how their groups are.
type groupRule struct {
	GroupDN     string `json:"groupdn,omitempty"`
	GroupAttr   string `json:"groupattr"`
	GroupFilter string `json:"groupfilter"`
	Anonymous   bool   `json:"anonymous_group_search,omitempty"`
}

const (
	nameBytes  = 256
	userPlain  = "({{.UserAttr}}={{.Username}})"
	groupPlain = "(|(memberUid={{.Username}})(member={{.UserDN}})(uniqueMember={{.UserDN}}))"
)

func fresh() *config {
	return &config{Place: directory.Fresh(), Folded: true,
		userRule:  userRule{UserAttr: "cn", UserFilter: userPlain},
		groupRule: groupRule{GroupAttr: "cn", GroupFilter: groupPlain}}
}

// settings reads the mount's; nil: there are none.
func settings(ctx context.Context, view engine.View) (*config, error) {
	return auth.Find[config](ctx, view, configKey, "")
}

func (c *config) params() record.Params {
	return append(c.Place.Params(), record.Params{
		{Name: "userdn", At: &c.UserDN}, {Name: "userattr", At: &c.UserAttr}, {Name: "userfilter", At: &c.UserFilter},
		{Name: "upndomain", At: &c.UPNDomain}, {Name: "discoverdn", At: &c.Discover}, {Name: "groupdn", At: &c.GroupDN},
		{Name: "groupattr", At: &c.GroupAttr}, {Name: "groupfilter", At: &c.GroupFilter},
		{Name: "anonymous_group_search", At: &c.Anonymous}}...)
}

func (c *config) show() map[string]any {
	out := map[string]any{}
	c.params().Show(out)
	c.Tokens.Show(out)
	out["case_sensitive_names"], out["deny_null_bind"], out["use_token_groups"] = !c.Folded, true, false
	out["username_as_alias"] = true
	return out
}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

// read takes what was given, and refuses what cannot be.
func (c *config) read(f *secrets.Fields) error {
	if err := c.params().Read(f); err != nil {
		return err
	}
	if err := c.Tokens.Read(f); err != nil {
		return err
	}
	c.Folded = !f.Bool("case_sensitive_names", !c.Folded)
	c.ReadHidden(f)
	deny, token := f.Bool("deny_null_bind", true), f.Bool("use_token_groups", false)
	if err := f.Err(); err != nil {
		return err
	}
	switch {
	case !deny:
		return invalid("field \"deny_null_bind\": must be true: a directory lets in who has no password as nobody")
	case token:
		return invalid("field \"use_token_groups\": is not supported: name groups by groupfilter")
	case c.UserAttr == "" || strings.ContainsAny(c.UserAttr, "=,()*\\ "):
		return invalid("field \"userattr\": must be the name of an attribute")
	}
	for name, text := range map[string]string{"userfilter": c.UserFilter, "groupfilter": c.GroupFilter} {
		if err := checkFilter(c.filled(text, "x", "cn=x")); err != nil {
			return invalid("field %q: %v", name, err)
		}
	}
	return c.Check()
}

func (c *config) fold(name string) string {
	if c != nil && !c.Folded {
		return name
	}
	return strings.ToLower(name)
}
