package meshcmd

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

func meshCertificates(e *command.Env) *cobra.Command {
	return command.Read(e, "certificates [SERVICE]", "Show the leaf certificates of a service, or of all, host by host",
		command.Between(0, 1, "at most one service"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, args []string) error {
			path := "/v1/internal/mesh/certificates"
			if len(args) > 0 {
				path += "?service=" + url.QueryEscape(args[0])
			}
			var raw json.RawMessage
			if _, err := cl.Get(ctx, path, r.Q, &raw); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, raw, false)
			}
			var a struct {
				List []struct {
					Node, Service, SerialNumber, RootID, State, Error string
					ValidBefore                                       time.Time
				}
				More   int
				Silent []silent
			}
			if err := json.Unmarshal(raw, &a); err != nil {
				return err
			}
			t := command.Table{Head: []string{"SERVICE", "NODE", "STATE", "SERIAL", "ROOT", "ENDS", "SAYS"}}
			for _, l := range a.List {
				t.Add(l.Service, l.Node, l.State, shortID(l.SerialNumber), shortID(l.RootID), moment(l.ValidBefore), l.Error)
			}
			if err := t.Write(e.Out); err != nil {
				return err
			}
			if a.More > 0 {
				if err := e.Printf("and %d more, which are no worse\n", a.More); err != nil {
					return err
				}
			}
			return writeSilent(e.Out, a.Silent)
		})
}

// shortID is enough of a serial number or of a root's id to tell two apart.
func shortID(id string) string { return id[:min(len(id), len("aa:bb:cc:dd"))] }
