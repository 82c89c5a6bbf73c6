package command

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

const (
	// completeWithin is how long a shell waits for names: a person pressed Tab.
	completeWithin = 2 * time.Second
	// maxCompletions bounds what a shell gets; more is no choice.
	maxCompletions = 1000
)

// Completes gives the first argument of c names of what there is, asked of the server that its flags name. A server
// that does not answer in two seconds completes nothing.
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

// CompletesFlag gives a flag of c names of what there is, as Completes does for the first argument.
func CompletesFlag(c *cobra.Command, flag string, names func(ctx context.Context, begun string) ([]string, error)) {
	one := Completes(&cobra.Command{}, names).ValidArgsFunction
	// It fails for a flag that c does not have alone.
	_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, begun string) ([]string,
		cobra.ShellCompDirective) {
		return one(c, nil, begun)
	})
}

// bashAlone stands in for what cobra's script takes from the package bash-completion, where that is not installed:
// without it the script completes nothing at all. Words are split at blanks, as the script asks for (-n =:).
const bashAlone = `if ! declare -F _get_comp_words_by_ref >/dev/null; then
_get_comp_words_by_ref()
{
    local line="${COMP_LINE:0:COMP_POINT}"
    read -r -a words <<<"$line"
    [[ -z $line || $line == *[[:space:]] ]] && words+=("")
    cword=$((${#words[@]} - 1))
    cur="${words[cword]}"
    prev=""
    ((cword > 0)) && prev="${words[cword - 1]}"
    return 0
}
fi
if ! declare -F __ltrim_colon_completions >/dev/null; then
__ltrim_colon_completions()
{
    [[ $1 == *:* && $COMP_WORDBREAKS == *:* ]] || return 0
    local head="${1%"${1##*:}"}" i
    for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]="${COMPREPLY[i]#"$head"}"; done
}
fi

`

// BashAlone makes the script that 'completion bash' prints stand alone.
func BashAlone(root *cobra.Command) {
	c, _, err := root.Find([]string{"completion", "bash"})
	if err != nil || c.RunE == nil {
		return
	}
	script := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if _, err := io.WriteString(root.OutOrStdout(), bashAlone); err != nil {
			return err
		}
		return script(c, args)
	}
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

// CompleteServiceFlag completes names of services for a flag.
func (d *Dial) CompleteServiceFlag(c *cobra.Command, flag string) {
	CompletesFlag(c, flag, func(ctx context.Context, _ string) ([]string, error) {
		cl, err := d.Client()
		if err != nil {
			return nil, err
		}
		services, _, err := cl.Services(ctx, d.Q)
		return slices.Sorted(maps.Keys(services)), err
	})
}

// CompleteOwnServices completes ids of the services that are registered at the agent.
func (d *Dial) CompleteOwnServices(c *cobra.Command) *cobra.Command {
	return d.asked(c, func(ctx context.Context, cl *client.Client, _ string) ([]string, error) {
		var own map[string]struct{}
		_, err := cl.Get(ctx, "/v1/agent/services", client.Query{}, &own)
		return slices.Sorted(maps.Keys(own)), err
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
