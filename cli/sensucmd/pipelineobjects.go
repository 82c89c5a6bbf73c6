package sensucmd

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

// handler is a handler as far as it is printed.
type handler struct {
	Metadata struct{ Name, Namespace string }
	Type     string
	Command  string
	Mutator  string
	Timeout  uint32
	Filters  []string
	Handlers []string
	Socket   *struct {
		Host string
		Port uint32
	}
}

// Handlers builds `handlers`.
func Handlers(e *command.Env, c *cobra.Command) {
	command.Group(c,
		list(e, "handlers", "handlers", []string{"Name", "Type", "Does", "Filters", "Mutator"}, func(h *handler) []string {
			does := h.Command
			if h.Type == "set" {
				does = strings.Join(h.Handlers, ",")
			}
			return []string{h.Metadata.Name, h.Type, line(does), strings.Join(h.Filters, ","), h.Mutator}
		}),
		info(e, "handlers", "NAME", "Show one handler", 1, func(h *handler, f *command.Fields) {
			f.Add("Name", h.Metadata.Name)
			f.Add("Namespace", h.Metadata.Namespace)
			f.Add("Type", h.Type)
			f.Add("Command", h.Command)
			f.Add("Handlers", strings.Join(h.Handlers, ", "))
			f.Add("Filters", strings.Join(h.Filters, ", "))
			f.Add("Mutator", h.Mutator)
			f.Add("Timeout", (time.Duration(h.Timeout) * time.Second).String())
		}),
		handlerCreate(e),
		remove(e, "handlers", "NAME", "Delete a handler", 1, joined),
	)
}

func handlerCreate(e *command.Env) *cobra.Command {
	var run, mutator string
	var filters, set []string
	var timeout time.Duration
	return act(e, "create NAME", "Create or replace a handler that runs a command, or a set of handlers",
		command.Between(1, 1, "NAME"), func(c *cobra.Command, _ *dial) {
			f := c.Flags()
			f.StringVar(&run, "command", "", "what it runs, with the event on its standard input")
			f.StringSliceVar(&set, "handlers", nil, "handlers that the set has, instead of a command")
			f.StringSliceVar(&filters, "filters", nil, "filters that an event must pass")
			f.StringVar(&mutator, "mutator", "", "mutator that changes the event before")
			f.DurationVar(&timeout, "timeout", 0, "how long it may take, in whole seconds")
		}, func(ctx context.Context, d *dial, cl *sensu.Client, args []string) error {
			body := map[string]any{"type": "pipe", "command": run, "filters": filters, "mutator": mutator,
				"timeout": int64(timeout / time.Second)}
			switch {
			case (run == "") == (len(set) == 0):
				return command.Usagef("handlers create needs either --command or --handlers")
			case len(set) > 0:
				body["type"], body["handlers"] = "set", set
			}
			return d.put(ctx, cl, "handlers", args[0], body)
		})
}

// put creates or replaces an object of the namespace.
func (d *dial) put(ctx context.Context, cl *sensu.Client, typ, name string, object map[string]any) error {
	object["metadata"] = map[string]string{"name": name, "namespace": d.namespace}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	if _, _, err := cl.Do(ctx, "PUT", d.path(typ, name), nil, body); err != nil {
		return err
	}
	return d.env.Printf("Created %s\n", name)
}

// filter is an event filter as far as it is printed.
type filter struct {
	Metadata    struct{ Name, Namespace string }
	Action      string
	Expressions []string
}

// Filters builds `filters`.
func Filters(e *command.Env, c *cobra.Command) {
	var action string
	var expressions []string
	create := act(e, "create NAME", "Create or replace a filter of events", command.Between(1, 1, "NAME"),
		func(c *cobra.Command, _ *dial) {
			c.Flags().StringVar(&action, "action", "allow", "allow or deny the events that match")
			c.Flags().StringArrayVar(&expressions, "expression", nil, "what an event must match, in JavaScript (repeat)")
		}, func(ctx context.Context, d *dial, cl *sensu.Client, args []string) error {
			if len(expressions) == 0 {
				return command.Usagef("filters create needs --expression")
			}
			return d.put(ctx, cl, "filters", args[0], map[string]any{"action": action, "expressions": expressions})
		})
	command.Group(c,
		list(e, "filters", "filters", []string{"Name", "Action", "Expressions"}, func(x *filter) []string {
			return []string{x.Metadata.Name, x.Action, line(strings.Join(x.Expressions, " && "))}
		}),
		info(e, "filters", "NAME", "Show one filter", 1, func(x *filter, f *command.Fields) {
			f.Add("Name", x.Metadata.Name)
			f.Add("Namespace", x.Metadata.Namespace)
			f.Add("Action", x.Action)
			for _, one := range x.Expressions {
				f.Add("Expression", one)
			}
		}),
		create, remove(e, "filters", "NAME", "Delete a filter", 1, joined))
}

// mutator is a mutator as far as it is printed.
type mutator struct {
	Metadata      struct{ Name, Namespace string }
	Type, Command string
	Eval          string
	Timeout       uint32
}

// Mutators builds `mutators`.
func Mutators(e *command.Env, c *cobra.Command) {
	var run, eval string
	create := act(e, "create NAME", "Create or replace a mutator of events", command.Between(1, 1, "NAME"),
		func(c *cobra.Command, _ *dial) {
			c.Flags().StringVar(&run, "command", "", "what it runs, from the event on standard input to standard output")
			c.Flags().StringVar(&eval, "eval", "", "or JavaScript that returns the event")
		}, func(ctx context.Context, d *dial, cl *sensu.Client, args []string) error {
			if (run == "") == (eval == "") {
				return command.Usagef("mutators create needs either --command or --eval")
			}
			body := map[string]any{"type": "pipe", "command": run}
			if eval != "" {
				body = map[string]any{"type": "javascript", "eval": eval}
			}
			return d.put(ctx, cl, "mutators", args[0], body)
		})
	command.Group(c,
		list(e, "mutators", "mutators", []string{"Name", "Type", "Does"}, func(m *mutator) []string {
			return []string{m.Metadata.Name, m.Type, line(m.Command + m.Eval)}
		}),
		info(e, "mutators", "NAME", "Show one mutator", 1, func(m *mutator, f *command.Fields) {
			f.Add("Name", m.Metadata.Name)
			f.Add("Namespace", m.Metadata.Namespace)
			f.Add("Type", m.Type)
			f.Add("Command", m.Command)
			f.Add("Eval", m.Eval)
			f.Add("Timeout", (time.Duration(m.Timeout) * time.Second).String())
		}),
		create, remove(e, "mutators", "NAME", "Delete a mutator", 1, joined))
}
