package varscmd

import (
	"testing"

	"corbel.dev/corbel/cli/jobscmd/jobscmdtest"
)

// TestCommands: what commands print, ask and refuse.
func TestCommands(t *testing.T) {
	jobscmdtest.Run(t, []jobscmdtest.Case{
		{"variables", Var, map[string]string{"GET /v1/vars": `[{"Namespace":"default","Path":"a/b","ModifyTime":1}]`},
			"list", "default    a/b   1970-01-01T00:00:00Z", ""},
		{"an item", Var, map[string]string{"GET /v1/var/a/b": `{"Items":{"k":"v"}}`}, "get --item k a/b", "v\n", ""},
		{"no item", Var, map[string]string{"GET /v1/var/a/b": `{"Items":{"k":"v"}}`}, "get --item x a/b", "", "it has k"},
		{"a template", Var, map[string]string{"GET /v1/var/a/b": `{"Items":{"k":"${v}"}}`}, "get --out hcl a/b",
			`"k" = "$${v}"`, ""},
		{"no variable", Var, nil, "get a/b", "", `there is no variable "a/b"`},
		{"nothing to put", Var, nil, "put a/b", "", "one item at least"},
		{"no pair to put", Var, nil, "put a/b c", "", "must be NAME=VALUE"},
		{"put", Var, map[string]string{"PUT /v1/var/a/b": `{"Path":"a/b","ModifyIndex":4}`}, "put a/b k=v",
			"modify index 4", ""},
	})
}
