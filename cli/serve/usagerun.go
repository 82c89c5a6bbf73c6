package serve

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/usagecmd"
)

// OwnUsage builds `corbel usage`: the commands that speak to a server, and the one that runs a process.
func OwnUsage(e *command.Env, c *cobra.Command) {
	usagecmd.Command(e, c)
	run := &cobra.Command{Use: "run", Short: "Run a process with a few roles of the usage plane"}
	usageRun(e, run)
	c.AddCommand(run)
}

// usageRoles are those that a process can have.
var usageRoles = []string{"router", "counter", "aggregator", "cache"}

// usageRun builds `corbel usage run`: a server without a vote, and without the other planes; for the cache alone, an
// agent.
func usageRun(e *command.Env, c *cobra.Command) {
	c.Long = `Run a process of the usage plane by itself, so that it can be rolled by itself. It joins a
cluster of corbel server, which keeps products, limits and the table of parts:

  router      takes events, at its HTTP port and by dogstatsd
  counter     has parts of the log of events, or copies of them, once it is named in
              PUT /v1/usage/servers
  aggregator  answers questions, at its HTTP port
  cache       speaks the Redis protocol, at port 6379 or usage.cache.port

A process with the role cache alone is an agent; any other is a server without a vote. It takes
the flags of corbel server.

  corbel usage run --roles router,aggregator --retry-join 10.0.0.5 --data-dir /var/lib/corbel-router`
	o := &startOptions{}
	roles := c.Flags().String("roles", "", "router, counter, aggregator, cache: those that it has (required)")
	starter(e, c, o)
	start := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		list := strings.FieldsFunc(*roles, func(r rune) bool { return r == ',' || r == ' ' })
		for _, role := range list {
			if !slices.Contains(usageRoles, role) {
				return command.Usagef("--roles: %q is none of %s", role, strings.Join(usageRoles, ", "))
			}
		}
		if len(list) == 0 {
			return command.Usagef("--roles: name some of %s", strings.Join(usageRoles, ", "))
		}
		cached := slices.Contains(list, "cache")
		list = slices.DeleteFunc(list, func(role string) bool { return role == "cache" })
		var first []string // what the command line says comes later, and wins
		if cached {
			first = append(first, "usage { cache { port = 6379 } }")
		}
		if len(list) > 0 {
			o.isServer = true
			first = append(first, "read_replica = true\nusage { roles = "+hclList(list)+" }",
				"monitor { enabled = false }\njobs { enabled = false }\nusage { own_planes = false }")
		}
		o.Fragments = append(first, o.Fragments...)
		return start(c, args)
	}
}

func hclList(words []string) string { return `["` + strings.Join(words, `", "`) + `"]` }
