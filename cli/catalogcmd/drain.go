package catalogcmd

import (
	"fmt"
	"time"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// drainStep is how long one question to the agent waits: what is waited for is said as often.
const drainStep = time.Second

func servicesDrain(e *command.Env) *cobra.Command {
	var r command.Reading
	var wait, quiet time.Duration
	var reason string
	var undo bool
	c := &cobra.Command{Use: "drain ID", Short: "Take an instance of this agent out of traffic and wait for its work " +
		"to finish",
		Args: command.Between(1, 1, "the id of one service")}
	c.Long = `Take an instance of this agent out of traffic and wait for its work to finish.

The instance disappears from DNS and passing results, and proxies no longer choose it. The
command then waits until every proxy has acknowledged that and no connection to the instance
or its sidecar is in use, and reports what it is waiting for. The exit code is 0 when the
instance has no work left, and 1 when the time runs out first. Use it as a pre-stop
hook; --undo puts the instance back.`
	r.Flags(e, c, false)
	c.Flags().DurationVar(&wait, "wait", 120*time.Second, "how long to wait at most")
	c.Flags().DurationVar(&quiet, "quiet", 2*time.Second, "a connection without traffic for this long is not in use")
	c.Flags().StringVar(&reason, "reason", "", "description for other operators")
	c.Flags().BoolVar(&undo, "undo", false, "put the instance back")
	c.RunE = func(c *cobra.Command, args []string) error {
		if wait < 0 || quiet < 0 {
			return command.Usagef("--wait and --quiet must not be negative")
		}
		cl, err := r.Client()
		if err != nil {
			return err
		}
		id := args[0]
		if undo {
			if err := cl.Undrain(c.Context(), id); err != nil {
				return err
			}
			return e.Printf("Service %s takes work again\n", id)
		}
		begin, said := time.Now(), ""
		for {
			left := wait - time.Since(begin)
			d, err := cl.Drain(c.Context(), id, reason, min(max(left, 0), drainStep), quiet)
			if err != nil {
				return err
			}
			if d.Waiting != "" && d.Waiting != said && !r.JSON {
				said = d.Waiting
				fmt.Fprintf(e.Err, "waiting: %s\n", said)
			}
			if !d.Done && left > 0 {
				continue
			}
			if r.JSON {
				if err := command.WriteJSON(e.Out, d, false); err != nil {
					return err
				}
			} else if d.Done {
				return e.Printf("Service %s is drained: %d proxies know, no connection is in use\n", id, d.Proxies)
			}
			if !d.Done {
				return fmt.Errorf("%s still has work after %v: %s", id, wait, d.Waiting)
			}
			return nil
		}
	}
	return c
}
