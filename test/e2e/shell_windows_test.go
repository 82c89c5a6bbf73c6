package e2e

import (
	"fmt"
	"os"
)

func shellMain() {
	fmt.Fprintln(os.Stderr, "scripts need a shell of Unix")
	os.Exit(1)
}
