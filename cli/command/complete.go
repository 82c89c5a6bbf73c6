package command

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

const (
	// completeWithin is how long a shell waits for names: a person pressed Tab.
	completeWithin = time.Second
	// maxCompletions bounds what a shell gets; more is no choice.
	maxCompletions = 1000
)

// Completes gives the first argument of c names of what there is, asked of the server that its flags name. A server
// that does not answer in a second completes nothing.
func Completes(c *cobra.Command, names func(ctx context.Context, begun string) ([]string, error)) *cobra.Command {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completeWithin)
		defer cancel()
		all, err := names(ctx, begun)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		directive := cobra.ShellCompDirectiveNoFileComp
		for _, name := range all {
			if !strings.HasPrefix(name, begun) || len(out) == maxCompletions {
				continue
			}
			if strings.HasSuffix(name, "/") {
				directive |= cobra.ShellCompDirectiveNoSpace // a folder goes on
			}
			out = append(out, name)
		}
		return out, directive
	}
	return c
}

// asked is Completes for what a client of the catalog knows.
func (d *Dial) asked(c *cobra.Command, names func(ctx context.Context, cl *client.Client, begun string) ([]string,
	error)) *cobra.Command {
	return Completes(c, func(ctx context.Context, begun string) ([]string, error) {
		cl, err := d.Client()
		if err != nil {
			return nil, err
		}
		return names(ctx, cl, begun)
	})
}

// CompleteServices completes names of services.
func (d *Dial) CompleteServices(c *cobra.Command) *cobra.Command {
	return d.asked(c, func(ctx context.Context, cl *client.Client, _ string) ([]string, error) {
		services, _, err := cl.Services(ctx, d.Q)
		return slices.Sorted(maps.Keys(services)), err
	})
}

// CompleteNodes completes names of nodes.
func (d *Dial) CompleteNodes(c *cobra.Command) *cobra.Command {
	return d.asked(c, func(ctx context.Context, cl *client.Client, _ string) ([]string, error) {
		nodes, _, err := cl.Nodes(ctx, d.Q)
		out := make([]string, len(nodes))
		for i := range nodes {
			out[i] = nodes[i].Node
		}
		return out, err
	})
}

// CompleteKeys completes keys, a folder at a time.
func (d *Dial) CompleteKeys(c *cobra.Command) *cobra.Command {
	return d.asked(c, func(ctx context.Context, cl *client.Client, begun string) ([]string, error) {
		keys, _, err := cl.KV().Keys(ctx, begun, "/", d.Q)
		return keys, err
	})
}
