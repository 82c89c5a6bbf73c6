// Package cloudchild is a process that asks a cloud and does nothing else. It is a room of its own since the libraries
// of clouds are large: the binary links them, and no other program nor test of the command line does.
package cloudchild

import (
	"os"

	"corbel.dev/corbel/node/cloudjoin"
	"corbel.dev/corbel/node/clouds"
)

// Main answers on the standard output what the standard input asks, where args make this process such a child.
func Main(args []string) (code int, child bool) {
	if len(args) != 2 || args[1] != cloudjoin.ChildCommand {
		return 0, false
	}
	if err := clouds.Serve(os.Stdin, os.Stdout); err != nil {
		return 1, true
	}
	return 0, true
}
