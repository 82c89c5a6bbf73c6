// Command corbel is the control plane of a fleet in one binary.
package main

import (
	"os"

	"corbel.dev/corbel/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
