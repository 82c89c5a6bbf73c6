package cli

import (
	"strings"

	"corbel.dev/corbel/cli/childcmd"

	"github.com/spf13/cobra"
)

// flagsEnd marks commands whose flags end at the first argument.
const flagsEnd = "corbel.flags-end"

// flagsFirst makes all commands below c read flags as Consul's do: up to the first
// argument, so that `kv put key -5` writes -5.
func flagsFirst(c *cobra.Command) {
	for _, sub := range c.Commands() {
		flagsFirst(sub)
		if !sub.HasSubCommands() {
			sub.Flags().SetInterspersed(false)
			if sub.Annotations == nil {
				sub.Annotations = map[string]string{}
			}
			sub.Annotations[flagsEnd] = "yes"
		}
	}
}

// normalise turns -long and -long=value into --long, for the flags that the called
// command has, and for unknown ones too so that the error names them whole. It
// leaves alone: single letters, values of flags, everything after -- and, for
// commands that run a child and those of Consul's command line, everything after
// the first argument.
func normalise(root *cobra.Command, args []string) []string {
	out := make([]string, 0, len(args))
	cmd := root
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return append(out, args[i:]...)
		case len(a) > 1 && a[0] == '-':
			name, _, hasValue := strings.Cut(strings.TrimLeft(a, "-"), "=")
			if a[1] != '-' && len(name) > 1 && !number(a) {
				a = "-" + a
			}
			out = append(out, a)
			if !hasValue && takesValue(cmd, name) && i+1 < len(args) {
				i++
				out = append(out, args[i])
			}
		default:
			out = append(out, a)
			if sub := child(cmd, a); sub != nil {
				cmd = sub
			} else if cmd.Annotations[childcmd.ChildArgs] != "" || cmd.Annotations[flagsEnd] != "" {
				return append(out, args[i+1:]...)
			}
		}
	}
	return out
}

// number tells "-12" and "-.5" from flags.
func number(a string) bool { return a[1] == '.' || a[1] >= '0' && a[1] <= '9' }

func child(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name || c.HasAlias(name) {
			return c
		}
	}
	return nil
}

// takesValue tells whether the next argument is the value of flag name.
func takesValue(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	if f == nil {
		f = cmd.InheritedFlags().Lookup(name)
	}
	if f == nil && len(name) == 1 {
		f = cmd.Flags().ShorthandLookup(name)
	}
	return f != nil && f.NoOptDefVal == ""
}
