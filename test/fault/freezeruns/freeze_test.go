package freezeruns

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
	faultrun "corbel.dev/corbel/test/fault"
)

// TestFreezes: whoever asks a process that runs is answered within seconds, whichever other one is stopped: the
// leader, a follower, a client agent, and one right after the other. The aim is 3 s on a quiet machine; this one may
// be busy. It was 17 to 28 s.
func TestFreezes(t *testing.T) {
	r, err := RunFreezes(t.Context(), lab, Freezes{Rounds: 4, Least: 4 * time.Second, Most: 6 * time.Second,
		Limit: 8 * time.Second}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d reads, %d writes, %d of them of unknown outcome; the slowest took %s: %s", r.Reads, r.Writes, r.Unknown,
		r.Slowest, r.Slow)
}

// TestSecretsFreezes: standbys of the secrets plane answer within seconds while the active server is stopped. The aim
// is 3 s.
func TestSecretsFreezes(t *testing.T) {
	for _, storage := range []string{"raft", "postgresql"} {
		t.Run(storage, func(t *testing.T) {
			if _, err := pgtest.Bin(); err != nil && storage == "postgresql" {
				loud.Skip(t, "%v", err)
			}
			r, err := RunSecretsFreezes(t.Context(), lab, storage,
				Freezes{Rounds: 1, Most: 6 * time.Second, Limit: 8 * time.Second}, 1)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d reads, %d writes, %d of them not acknowledged; the slowest took %s: %s", r.Reads, r.Writes, r.Unknown,
				r.Slowest, r.Slow)
		})
	}
}

// TestFederationFreezes: requests for another datacenter are answered within seconds while one of its servers is
// stopped, and those that come after it was found silent go elsewhere at once. Either server of it may be the first
// that is asked.
func TestFederationFreezes(t *testing.T) {
	ctx := t.Context()
	ports, err := testport.Free(4)
	if err != nil {
		t.Fatal(err)
	}
	here, err := lab.Open(ctx, harness.Config{Servers: 1,
		HCL: []string{fmt.Sprintf("datacenter = \"dc1\"\nports { serf_wan = %d }", ports[0])}})
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	wan := func(_ *faultrun.Server, i int) []string {
		return []string{fmt.Sprintf("ports { serf_wan = %d }\nretry_join_wan = [\"127.0.0.1:%d\"]", ports[1+i], ports[0])}
	}
	there, err := lab.Open(ctx, harness.Config{Servers: 3, HCL: []string{"datacenter = \"dc2\""}, Each: wan})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	read := func() faultrun.Reply { return here.Admin.Do(ctx, "GET", "/v1/kv/none?dc=dc2", nil) }
	here.Admin.Timeout = 40 * time.Second
	if err := spawn.Until(ctx, harness.StartLimit, "all servers of dc2 to be reached", func() error {
		if r := here.Admin.Do(ctx, "GET", "/v1/agent/members?wan=1", nil); strings.Count(string(r.Body), `.dc2"`) < 3 {
			return errors.New(r.String())
		}
		if r := read(); r.Status != 404 {
			return errors.New(r.String())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for range 20 { // the first server asked is drawn: have connections to all
		read()
	}
	leader, err := there.AwaitLeader(ctx, harness.StartLimit)
	if err != nil {
		t.Fatal(err)
	}
	victim := there.Followers(leader)[0]
	if err := victim.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer victim.Thaw()
	var slowest time.Duration
	for begin := time.Now(); time.Since(begin) < 10*time.Second; {
		r := read()
		if slowest = max(slowest, r.Took); r.Status != 404 || r.Took > 8*time.Second {
			t.Fatalf("%s after %s", r, r.Took)
		}
		if err := spawn.Sleep(ctx, 20*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("the slowest read took %s", slowest)
}

// TestFrozenDoctor: the doctor names a frozen server through every process that runs, an agent too, and on the screens
// of the servers, also when gossip has given it up.
func TestFrozenDoctor(t *testing.T) {
	slowest, err := RunFrozenDoctor(t.Context(), lab, 15*time.Second) // 5 s are promised; a busy machine's
	t.Logf("the slowest answer took %s", slowest)
	if err != nil {
		t.Fatal(err)
	}
}
