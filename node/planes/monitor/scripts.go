package monitorplane

import (
	"context"
	"io"

	"corbel.dev/corbel/monitor/script"
)

// ScriptChild is the only argument of a process that runs operators' JavaScript for the server or agent that started
// it.
const ScriptChild = script.ChildCommand

// ScriptCommand starts such a process: this binary.
func ScriptCommand() []string { return script.OwnCommand() }

// RunScripts is such a process: it answers on out what in asks, until in ends.
func RunScripts(ctx context.Context, in io.Reader, out io.Writer) error {
	return script.Serve(ctx, in, out)
}
