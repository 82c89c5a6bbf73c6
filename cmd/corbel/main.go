// Command corbel is the control plane of a fleet in one binary.
package main

import (
	"os"

	"corbel.dev/corbel/cli"
	"corbel.dev/corbel/cli/cloudchild"
)

func main() {
	if code, child := cloudchild.Main(os.Args); child {
		os.Exit(code)
	}
	os.Exit(cli.Main(os.Args))
}
