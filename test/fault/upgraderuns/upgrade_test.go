package upgraderuns

import (
	"os"
	"testing"

	"corbel.dev/corbel/kit/loud"
	faultrun "corbel.dev/corbel/test/fault"
	"corbel.dev/corbel/test/fault/secretsruns"
)

// lab is shared by the tests of this package.
var lab *faultrun.Lab

func TestMain(m *testing.M) { os.Exit(faultrun.Main(m, &lab)) }

// TestReplaced replaces each server by itself: what an upgrade does to clients, whatever the releases.
func TestReplaced(t *testing.T) {
	r, err := Run(t.Context(), lab, Upgrade{Last: lab.Binary, Writers: 2, Once: true}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *r)
}

// TestLastRelease goes from the last release to this one and back.
func TestLastRelease(t *testing.T) {
	if os.Getenv(BinaryEnv) == "" {
		loud.Skip(t, "an upgrade from the last release takes a build of it: go run ./test/fault/deep --only upgrade, or "+
			BinaryEnv+"=PROGRAM go test ./test/fault/upgraderuns")
	}
	last, err := Last(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), lab, Upgrade{Last: last}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *r)
	secrets, err := secretsruns.RunSecretsUpgrade(t.Context(), lab, last, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *secrets)
}
