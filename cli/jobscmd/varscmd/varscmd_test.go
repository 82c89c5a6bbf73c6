package varscmd

import (
	"testing"

	"corbel.dev/corbel/cli/jobscmd/jobscmdtest"
)

// TestCommands: what commands print, ask and refuse.
func TestCommands(t *testing.T) {
	of := jobscmdtest.Of
	jobscmdtest.Run(t, []jobscmdtest.Case{
		of("variables", Var, map[string]string{"GET /v1/vars": `[{"Namespace":"default","Path":"a/b","ModifyTime":1}]`},
			"list", "default    a/b   1970-01-01T00:00:00Z", ""),
		of("an item", Var, map[string]string{"GET /v1/var/a/b": `{"Items":{"k":"v"}}`}, "get --item k a/b", "v\n", ""),
		of("no item", Var, map[string]string{"GET /v1/var/a/b": `{"Items":{"k":"v"}}`}, "get --item x a/b", "", "it has k"),
		of("a template", Var, map[string]string{"GET /v1/var/a/b": `{"Items":{"k":"${v}"}}`}, "get --out hcl a/b",
			`"k" = "$${v}"`, ""),
		of("no variable", Var, nil, "get a/b", "", `there is no variable "a/b"`),
		of("nothing to put", Var, nil, "put a/b", "", "one item at least"),
		of("no pair to put", Var, nil, "put a/b c", "", "must be NAME=VALUE"),
		of("put", Var, map[string]string{"PUT /v1/var/a/b": `{"Path":"a/b","ModifyIndex":4}`}, "put a/b k=v",
			"modify index 4", ""),
	})
}
