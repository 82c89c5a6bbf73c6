package faultrun

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"corbel.dev/corbel/kit/spawn/harness"
)

// lab is shared by the tests of this package: one binary, one folder.
var lab *Lab

// KeepEnv names a folder where failed runs leave histories and pictures; default is below the system's temporary
// folder.
const keepEnv = "CORBEL_FAULT_KEEP"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "corbel-fault")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin, err := Build(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	keep := os.Getenv(keepEnv)
	if keep == "" {
		keep = filepath.Join(os.TempDir(), "corbel-fault-kept")
	}
	lab = &Lab{Binary: bin, Dir: dir, Keep: keep}
	return m.Run()
}

func TestSmoke(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		c, err := lab.Open(t.Context(), harness.Config{Servers: n})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Converged(t.Context(), harness.StartLimit); err != nil {
			t.Fatalf("%v\n%s", err, c.Logs())
		}
		t.Log(c.Logs())
		c.Close()
	}
}
