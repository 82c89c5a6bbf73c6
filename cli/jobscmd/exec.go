package jobscmd

import (
	"encoding/json"
	"net/url"
	"os"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/execsession"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// allocExec builds `alloc exec`.
func allocExec(e *command.Env) *cobra.Command {
	return Leaf(e, "exec ALLOCATION COMMAND...", "Run a command in a task", 2, -1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			f.SetInterspersed(false) // what follows is the command's
			name := f.String("task", "", "the task")
			ofJob := f.Bool("job", false, "the first argument is a job: in one of its allocations")
			tty := f.BoolP("t", "t", term.IsTerminal(int(os.Stdin.Fd())), "with a terminal")
			f.BoolP("i", "i", true, "pass standard input on")
			f.StringP("e", "e", "~", "")
			_ = f.MarkHidden("e") // kept for scripts
			return func(c *Call, args []string) error {
				a, err := anyAlloc(c, args[0], *ofJob, "")
				if err != nil {
					return err
				}
				one, err := task(a, *name)
				if err != nil {
					return err
				}
				words, err := json.Marshal(args[1:])
				if err != nil {
					return err
				}
				input, err := cmd.Flags().GetBool("i")
				if err != nil {
					return err
				}
				query := url.Values{"task": {one}, "command": {string(words)}, "tty": {strconv.FormatBool(*tty)},
					"namespace": {a.Namespace}}
				conn, err := c.Client.Dial(c.Ctx(), "client/allocation/"+a.ID+"/exec", query, execsession.Limits)
				if err != nil {
					return err
				}
				return execsession.Run(c.Env, conn, *tty, input)
			}
		})
}
