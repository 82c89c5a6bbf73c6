package clustercmd

import (
	"encoding/json"
	"fmt"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/node/cloudjoin"
	"github.com/spf13/cobra"
)

// Discover builds discover.
func Discover(e *command.Env, c *cobra.Command) {
	c.Use = "discover ENTRY"
	c.Args = command.Between(1, 1, "an entry as retry_join has it, in quotes")
	c.Long = "Ask a cloud which machines can be joined, as an agent with this entry in retry_join would.\n\n" +
		"ENTRY is key=value pairs, as in 'provider=aws tag_key=role tag_value=server'. The providers are " +
		strings.Join(cloudjoin.Providers(), ", ") + "."
	var asJSON bool
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		entry, err := cloudjoin.Parse(args[0])
		if err != nil {
			return command.Usagef("%v", err)
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		var clouds cloudjoin.Asker
		addrs, err := clouds.Addrs(ctx, entry)
		if err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(e.Out).Encode(append([]string{}, addrs...))
		}
		if len(addrs) == 0 {
			return fmt.Errorf("%s: nobody is found", entry)
		}
		_, err = fmt.Fprintln(e.Out, strings.Join(addrs, "\n"))
		return err
	}
}
