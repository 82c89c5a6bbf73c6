package cacheruns

import (
	"os"
	"testing"
	"time"

	faultrun "corbel.dev/corbel/test/fault"
)

var lab *faultrun.Lab

func TestMain(m *testing.M) { os.Exit(faultrun.Main(m, &lab)) }

// pace has clients ask some hundred times a second each: enough to meet every step of a takeover.
const pace = 4 * time.Millisecond

// TestKilled: a host of the cache is killed while clients write. Another one goes on with its keys, all of them are
// there, and no answer is older than one before.
func TestKilled(t *testing.T) { try(t, Cache{Cycles: 2, Keys: 300, Pace: pace}) }

// TestRolled: each host drains and ends, one after the other, as in a rollout, and their ports have TLS: their keys are
// at the others. Calls do not fail, but where a host loses the catalog's leader for seconds, as on a machine that is
// overloaded: one in a thousand is too many all the same.
func TestRolled(t *testing.T) {
	r := try(t, Cache{Cycles: 3, Keys: 300, Pace: pace, Roll: true, TLS: true})
	if calls := r.Reads + r.Writes; r.Failed*1000 > calls {
		t.Errorf("%d of %d calls failed, the first with: %s", r.Failed, calls, r.First)
	}
}

func try(t *testing.T, cfg Cache) Report {
	r, err := Run(t.Context(), lab, cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.Wrong != 0 || r.Misses > r.Hits { // hosts that hang for long on a busy machine are given up
		t.Errorf("%d of %d keys are there, and %d answers are wrong", r.Hits, r.Hits+r.Misses, r.Wrong)
	}
	return r
}
