package jobscmd

import (
	"fmt"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// Short builds a command of another one's group under a name of its own, as in `nomad run`.
func Short(of func(e *command.Env) *cobra.Command) func(*command.Env, *cobra.Command) {
	return func(e *command.Env, cmd *cobra.Command) { Replace(cmd, of(e)) }
}

// The commands that `nomad` has without their groups too.
var (
	Run      = Short(jobRun)
	Plan     = Short(jobPlan)
	Stop     = Short(jobStop)
	Inspect  = Short(jobInspect)
	Init     = Short(jobInit)
	Validate = Short(jobValidate)
	Logs     = Short(allocLogs)
	FS       = Short(allocFS)
	Exec     = Short(allocExec)
)

// Status builds `nomad status`: a job, or whatever has an id that begins so.
func Status(e *command.Env, cmd *cobra.Command) {
	built := Leaf(e, "status [ID]", cmd.Short, 0, 1, func(*cobra.Command) func(*Call, []string) error {
		return func(c *Call, args []string) error {
			if len(args) == 0 {
				return c.jobList()
			}
			return anything(c, args[0])
		}
	})
	Replace(cmd, built)
}

// Replace makes cmd what built is, under its own name and group.
func Replace(cmd, built *cobra.Command) {
	cmd.Use, cmd.Args, cmd.RunE, cmd.Run = built.Use, built.Args, built.RunE, nil
	cmd.Flags().AddFlagSet(built.Flags())
}

// anything shows what an id or a prefix of one leads to.
func anything(c *Call, prefix string) error {
	var answer struct{ Matches map[string][]string }
	if _, err := c.Client.Do(c.Ctx(), "POST", "search", nil, map[string]string{"Prefix": prefix, "Context": "all"},
		&answer); err != nil {
		return err
	}
	for _, id := range answer.Matches["jobs"] {
		if id == prefix || len(answer.Matches["jobs"]) == 1 {
			return c.jobDetail(id, false, false, false)
		}
	}
	for _, kind := range []struct {
		context string
		show    func(id string) error
	}{{"allocs", func(id string) error {
		a, err := c.alloc(id)
		if err != nil {
			return err
		}
		return allocDetail(c, a, false)
	}}, {"nodes", c.nodeDetail}, {"deployment", c.showDeployment}, {"evals", c.monitorEval}} {
		if list := answer.Matches[kind.context]; len(list) == 1 {
			return kind.show(list[0])
		}
	}
	return fmt.Errorf("nothing, or more than one object, begins with %q", prefix)
}
