package childcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// watchTypes are the types of watch.
const watchTypes = "key, keyprefix, services, nodes, service, checks, event, connect_roots, connect_leaf or " +
	"agent_service"

// watchOptions are the flags of watch.
type watchOptions struct {
	command.Dial
	kind, key, prefix, service, tag, state string
	name                                   string
	passing, shell, follow                 bool
	paths                                  []string
}

// Watch builds watch.
func Watch(e *command.Env, c *cobra.Command) {
	var o watchOptions
	c.Use = "watch --type TYPE [flags] [COMMAND [ARGUMENT...]]"
	c.Long = `Watch a view and run a command at each change, the first time at once, with the
view as JSON on stdin and its index in CONSUL_INDEX and CORBEL_INDEX. If the command
fails, watch exits with its exit code. Without a command, the view is printed once,
or at each change with --follow.

  corbel watch --type key --key web/config ./reload.sh
  corbel watch --type service --service web --follow

With --path, one connection watches any number of blocking reads. Each event is one
line of JSON, or one run of the command with the path in CORBEL_WATCH:

  corbel watch --follow --path /v1/kv/web/config --path '/v1/health/service/web?passing'`
	c.Annotations = map[string]string{ChildArgs: "yes"}
	c.Args = cobra.ArbitraryArgs
	c.Flags().SetInterspersed(false)
	o.Dial.Flags(e, c)
	f := c.Flags()
	f.StringVar(&o.kind, "type", "", watchTypes)
	f.StringArrayVar(&o.paths, "path", nil, "path of the API with its query, instead of a type; may be repeated")
	f.StringVar(&o.name, "name", "", "name of events, for type event; default all")
	f.StringVar(&o.key, "key", "", "key, for type key")
	f.StringVar(&o.prefix, "prefix", "", "prefix, for type keyprefix")
	f.StringVar(&o.service, "service", "", "service, for type service, checks or connect_leaf; id for agent_service")
	f.StringVar(&o.tag, "tag", "", "tag that instances must have, for type service")
	f.StringVar(&o.state, "state", "", "state, for type checks; default any")
	f.StringVar(&o.Q.Filter, "filter", "", "expression that results must match")
	f.BoolVar(&o.passing, "passingonly", false, "only passing instances, for type service")
	f.BoolVar(&o.shell, "shell", true, "run the command with the shell")
	f.BoolVar(&o.follow, "follow", false, "without a command: print each change, one line each")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		if len(o.paths) > 0 {
			return runWatches(ctx, e, &o, args)
		}
		cl, err := o.Client()
		if err != nil {
			return err
		}
		read, err := o.view(cl)
		if err != nil {
			return err
		}
		return runWatch(ctx, e, &o, read, args)
	}
}

// seen is one state of a view.
type seen struct {
	value any
	index uint64
}

type view func(context.Context, client.Query) (seen, client.Meta, error)

func viewOf[T any](read func(context.Context, client.Query) (T, client.Meta, error)) view {
	return func(ctx context.Context, q client.Query) (seen, client.Meta, error) {
		v, meta, err := read(ctx, q)
		return seen{v, meta.Index}, meta, err
	}
}

// need complains about a flag that the type wants.
func (o *watchOptions) need(flag, value string) error {
	if value == "" {
		return command.Usagef("--type %s needs --%s", o.kind, flag)
	}
	return nil
}

// view picks the read of the watch's type and checks that its flags are there.
func (o *watchOptions) view(cl *client.Client) (view, error) {
	need := o.need
	switch o.kind {
	case "key":
		return viewOf(func(ctx context.Context, q client.Query) (*client.KVPair, client.Meta, error) {
			return cl.KV().Get(ctx, command.CleanKey(o.key), q)
		}), need("key", o.key)
	case "keyprefix":
		return viewOf(func(ctx context.Context, q client.Query) ([]client.KVPair, client.Meta, error) {
			pairs, meta, err := cl.KV().List(ctx, command.CleanKey(o.prefix), q)
			if pairs == nil {
				pairs = []client.KVPair{}
			}
			return pairs, meta, err
		}), need("prefix", o.prefix)
	case "services":
		return viewOf(cl.Services), nil
	case "nodes":
		return viewOf(cl.Nodes), nil
	case "service":
		if o.tag != "" {
			tag := strconv.Quote(o.tag) + " in Service.Tags"
			if o.Q.Filter != "" {
				tag = "(" + o.Q.Filter + ") and " + tag
			}
			o.Q.Filter = tag
		}
		return viewOf(func(ctx context.Context, q client.Query) ([]client.ServiceEntry, client.Meta, error) {
			return cl.Service(ctx, o.service, o.passing, q)
		}), need("service", o.service)
	case "checks":
		if o.service != "" && o.state != "" {
			return nil, command.Usagef("--service and --state exclude each other")
		}
		return viewOf(func(ctx context.Context, q client.Query) ([]client.Check, client.Meta, error) {
			if o.service != "" {
				return cl.ChecksOfService(ctx, o.service, q)
			}
			state := o.state
			if state == "" {
				state = "any"
			}
			return cl.ChecksInState(ctx, state, q)
		}), nil
	}
	return o.localView(cl)
}

// runWatch hands each state to the command, or prints it. Failed reads are told and
// repeated; a refusal of the server ends the watch.
func runWatch(ctx context.Context, e *command.Env, o *watchOptions, read view, args []string) error {
	var last error
	for s, err := range client.Follow(ctx, o.Q, read) {
		if last = err; err != nil {
			fmt.Fprintf(e.Err, "corbel: %v\n", err)
			continue
		}
		if len(args) == 0 {
			if err := command.WriteJSON(e.Out, s.value, o.follow); err != nil || !o.follow {
				return err
			}
			continue
		}
		var text bytes.Buffer
		if err := json.NewEncoder(&text).Encode(s.value); err != nil {
			return err
		}
		index := strconv.FormatUint(s.index, 10)
		p := childProcess{args: args, shell: o.shell, in: &text, out: e.Out, err: e.Err,
			env: []string{"CORBEL_INDEX=" + index, "CONSUL_INDEX=" + index}}
		code, err := p.run(ctx)
		if err != nil {
			return err
		}
		if code != 0 && ctx.Err() == nil {
			return command.ExitCode(code)
		}
	}
	if last != nil {
		return command.ExitCode(1) // said above
	}
	return nil
}
