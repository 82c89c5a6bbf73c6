package cacheruns

import (
	"os"
	"testing"

	faultrun "corbel.dev/corbel/test/fault"
)

var lab *faultrun.Lab

func TestMain(m *testing.M) { os.Exit(faultrun.Main(m, &lab)) }

// TestKilled: a host of the cache is killed while clients write. Another one goes on with its keys, all of them are
// there, and no answer is older than one before.
func TestKilled(t *testing.T) { try(t, Cache{Cycles: 2, Keys: 500}) }

// TestRolled: hosts end one after the other, as in a rollout, and their ports have TLS: their keys are at the others.
func TestRolled(t *testing.T) { try(t, Cache{Cycles: 2, Keys: 500, Roll: true, TLS: true}) }

func try(t *testing.T, cfg Cache) {
	r, err := Run(t.Context(), lab, cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.Wrong != 0 || r.Misses > r.Hits { // hosts that hang for long on a busy machine are given up
		t.Errorf("%d of %d keys are there, and %d answers are wrong", r.Hits, r.Hits+r.Misses, r.Wrong)
	}
}
