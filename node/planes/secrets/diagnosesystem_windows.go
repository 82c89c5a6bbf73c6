package secretsplane

import (
	"errors"
	"os"

	"corbel.dev/corbel/node/diagnosis"
	"corbel.dev/corbel/node/vaultconf"
)

func mayWrite(string) bool { return true } // the attempt tells

func ofRoot(os.FileInfo) bool { return false }

func checkSystem(*vaultconf.Config) *diagnosis.Check {
	return diagnosis.Failed("Check Operating System", errors.New("servers run on Linux and macOS, not on Windows"))
}
