package usagecmd

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/cli/command"
)

// drainStatus is what a host of the cache says of its drain.
type drainStatus struct {
	State, Reason, Ceiling, Result string
	MaintenanceKey                 string `json:"maintenance_key"`
	Waiting                        int
	Clients                        []struct{ Addr, Name, Why string } `json:"waiting_for"`
}

// drain takes the cache of a host out of use.
func drain(e *command.Env) *cobra.Command {
	var a asking
	var undo, status bool
	c := &cobra.Command{Use: "drain", Short: "Take the cache of this host out of use, and show who still needs it",
		Long: `Take the cache of the host that is asked out of use: its maintenance key exists, so that proxies send no more
to it, the catalog says draining, and every connection is served on. Afterwards stop the process, or --undo.

  corbel usage drain
  corbel usage drain --status --watch
  corbel usage drain --undo`,
		Args: command.Between(0, 0, "flags only")}
	a.flags(e, c)
	c.Flags().BoolVar(&undo, "undo", false, "take work again")
	c.Flags().BoolVar(&status, "status", false, "only show what the drain waits for")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if undo && status {
			return command.Usagef("--undo and --status: choose one")
		}
		if !status {
			cl, err := a.Client()
			if err != nil {
				return err
			}
			method := http.MethodPut
			if undo {
				method = http.MethodDelete
			}
			if err := cl.Send(c.Context(), method, "/v1/usage/drain", nil, nil, nil); err != nil {
				return err
			}
		}
		return show(c.Context(), e, &a, "/v1/usage/drain", func(w io.Writer, s drainStatus) error {
			_, err := fmt.Fprintf(w, "%s, maintenance key %s, ceiling %s\n", s.State, s.MaintenanceKey, s.Ceiling)
			if err != nil {
				return err
			}
			if s.Result != "" {
				_, err := fmt.Fprintln(w, s.Result)
				return err
			}
			if s.Waiting == 0 {
				return nil
			}
			t := command.Table{Head: []string{"Client", "Name", "Why"}}
			for _, client := range s.Clients {
				t.Add(client.Addr, client.Name, client.Why)
			}
			return t.Write(w)
		})
	}
	return c
}
