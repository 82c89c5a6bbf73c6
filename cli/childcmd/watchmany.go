package childcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
)

// runWatches follows the paths over one connection. Each event is printed as one line of
// JSON, or given to the command. Without --follow and a command it ends when every path
// was told once.
func runWatches(ctx context.Context, e *command.Env, o *watchOptions, args []string) error {
	if o.kind != "" {
		return command.Usagef("--path and --type exclude each other")
	}
	cl, err := o.Client()
	if err != nil {
		return err
	}
	list := make([]client.Watch, len(o.paths))
	for i, path := range o.paths {
		list[i] = client.Watch{ID: path, Path: path}
	}
	told := make(map[string]bool, len(list))
	var last error
	for event, err := range cl.Watches(ctx, list) {
		if last = err; err != nil {
			fmt.Fprintf(e.Err, "corbel: %v\n", err)
			continue
		}
		told[event.ID] = true
		if len(args) == 0 {
			if err := command.WriteJSON(e.Out, event, true); err != nil {
				return err
			}
			if !o.follow && len(told) == len(list) {
				return nil
			}
			continue
		}
		code, err := runWatched(ctx, e, o, event, args)
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

func runWatched(ctx context.Context, e *command.Env, o *watchOptions, event client.WatchEvent, args []string) (int,
	error) {
	text, err := json.Marshal(event.Body)
	if err != nil {
		return 0, err
	}
	index := strconv.FormatUint(event.Index, 10)
	p := childProcess{args: args, shell: o.shell, in: bytes.NewReader(append(text, '\n')), out: e.Out, err: e.Err,
		env: []string{"CORBEL_INDEX=" + index, "CONSUL_INDEX=" + index, "CORBEL_WATCH=" + event.ID,
			"CORBEL_STATUS=" + strconv.Itoa(event.Status)}}
	return p.run(ctx)
}
