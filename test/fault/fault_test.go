package faultrun

import (
	"os"
	"testing"

	"corbel.dev/corbel/kit/spawn/harness"
)

// lab is shared by the tests of this package.
var lab *Lab

func TestMain(m *testing.M) { os.Exit(Main(m, &lab)) }

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
