package acl

import (
	"strings"

	"corbel.dev/corbel/kit/errkind"
)

// Template is a policy text with a hole for a name.
type Template struct {
	Name string // builtin/service
	// NeedsName tells whether the text has a hole: {{.Name}}.
	NeedsName   bool
	Description string
	Rules       string
	Schema      string // of the variables, JSON schema; "" when there are none
}

const nameSchema = `{
	"type": "object",
	"properties": {
		"name": { "type": "string", "$ref": "#/definitions/min-length-one" }
	},
	"required": ["name"],
	"definitions": {
		"min-length-one": { "type": "string", "minLength": 1 }
	}
}`

const nameHole = "{{.Name}}"

// Templates are the built-in templated policies, by name.
var Templates = []Template{
	{"builtin/api-gateway", true, "Gives the token or role permissions for a Consul api gateway", `mesh = "read"
node_prefix "" {
	policy = "read"
}
service_prefix "" {
	policy = "read"
}
service "{{.Name}}" {
	policy = "write"
}
`, nameSchema},
	{"builtin/dns", false, "Gives the token or role permissions for the Consul DNS to query services in the network",
		`node_prefix "" {
	policy = "read"
}
service_prefix "" {
	policy = "read"
}
query_prefix "" {
	policy = "read"
}
`, ""},
	{"builtin/node", true, "Gives the token or role permissions for a register an agent/node into the catalog",
		`node "{{.Name}}" {
	policy = "write"
}
service_prefix "" {
	policy = "read"
}
`, nameSchema},
	{"builtin/nomad-client", false, "Gives the token or role permissions required for integration with a nomad client",
		`agent_prefix "" {
	policy = "read"
}
node_prefix "" {
	policy = "read"
}
service_prefix "" {
	policy = "write"
}
key_prefix "" {
	policy = "read"
}
`, ""},
	{"builtin/nomad-server", false, "Gives the token or role permissions required for integration with a nomad server",
		`acl = "write"
agent_prefix "" {
	policy = "read"
}
node_prefix "" {
	policy = "read"
}
service_prefix "" {
	policy = "write"
}
`, ""},
	{"builtin/service", true, "Gives the token or role permissions to register a service and discover services in the " +
		"Consul catalog. " +
		"It also gives the specified service's sidecar proxy the permission to discover and route traffic to other services.",
		`service "{{.Name}}" {
	policy = "write"
}
service "{{.Name}}-sidecar-proxy" {
	policy = "write"
}
service_prefix "" {
	policy = "read"
}
node_prefix "" {
	policy = "read"
}
`, nameSchema},
	{"builtin/workload-identity", true, "Gives the token or role permissions for a specific workload identity",
		`identity "{{.Name}}" {
	policy = "write"
}
`, nameSchema},
}

// TemplateNamed finds a built-in template.
func TemplateNamed(name string) (Template, bool) {
	for _, t := range Templates {
		if t.Name == name {
			return t, true
		}
	}
	return Template{}, false
}

// maxIdentityName is the contract's bound on names of identities.
const maxIdentityName = 256

// ValidIdentityName reports whether a service or node may be named in an identity: lower-case
// letters, digits, - and _, which begins and ends with a letter or digit.
func ValidIdentityName(name string) bool {
	if name == "" || len(name) > maxIdentityName {
		return false
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' && c != '_' || i == 0 || i == len(name)-1) {
			return false
		}
	}
	return true
}

// Expand gives the text of a built-in template for a name.
func Expand(template, name string) (string, error) {
	t, ok := TemplateNamed(template)
	switch {
	case !ok:
		return "", errkind.Errorf(errkind.Invalid, "no such ACL templated policy with Name %q", template)
	case !t.NeedsName && name != "":
		return "", errkind.Errorf(errkind.Invalid, "the templated policy %q takes no variables", template)
	case t.NeedsName && !ValidIdentityName(name):
		return "", errkind.Errorf(errkind.Invalid,
			"the templated policy %q needs the variable Name: lower-case letters, digits, '-' and '_', "+
				"with a letter or digit at both ends, at most %d; it is %q", template, maxIdentityName, name)
	}
	return strings.ReplaceAll(t.Rules, nameHole, name), nil
}

// The built-in policies and tokens.
const (
	GlobalManagementID   = "00000000-0000-0000-0000-000000000001"
	GlobalManagementName = "global-management"
	GlobalReadOnlyID     = "00000000-0000-0000-0000-000000000002"
	GlobalReadOnlyName   = "builtin/global-read-only"
	AnonymousAccessor    = "00000000-0000-0000-0000-000000000002"
	AnonymousSecret      = "anonymous"
)

// builtinRules gives one level on everything.
func builtinRules(level string) string {
	var b strings.Builder
	for r := Agent; r < resourceCount; r++ {
		switch {
		case r == Intention || r.single():
		case !r.named():
			b.WriteString(r.String() + ` = "` + level + "\"\n")
		default:
			b.WriteString(r.String() + "_prefix \"\" {\n\tpolicy = \"" + level + "\"\n")
			if r == Service {
				b.WriteString("\tintentions = \"" + level + "\"\n")
			}
			b.WriteString("}\n")
		}
	}
	return b.String()
}

// GlobalManagementRules and GlobalReadOnlyRules are the texts of the built-in policies.
var (
	GlobalManagementRules = builtinRules("write")
	GlobalReadOnlyRules   = builtinRules("read")
)
