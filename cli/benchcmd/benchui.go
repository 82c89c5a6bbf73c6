package benchcmd

import (
	"context"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/cli/command"
)

// benchUI builds `bench ui`.
func benchUI(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, bench.BrowsersOptions{}
	c := benchCommand(e, "ui", "What open browsers cost a server that has a fleet", b)
	f := c.Flags()
	f.IntVar(&o.Browsers, "browsers", 50, "browsers that show the overview; they are played")
	f.IntVar(&o.Nodes, "nodes", 10000, "nodes, each with six instances and four checks")
	f.IntVar(&o.ChangesPerSecond, "changes", 100, "check changes a second")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		return orNil(bench.RunBrowsers(ctx, o))
	})
	return c
}
