package catalogruns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	"corbel.dev/corbel/kit/testport"
	faultrun "corbel.dev/corbel/test/fault"
)

// healLimit is how long a healed link may take until it is used: a connection that was stalled must be given up first.
const healLimit = 2 * time.Minute

// TestTheLinkBetweenDatacentersIsCut: what was under way to the other one ends, requests for it get a clear error, the
// local one notices nothing, and all is well again after the link is, without a restart.
func TestTheLinkBetweenDatacentersIsCut(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ports, err := testport.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	var dcs [2]*faultrun.Cluster
	for i := range dcs {
		hcl := fmt.Sprintf("datacenter = \"dc%d\"\nports { serf_wan = %d }", i+1, ports[i])
		if i > 0 {
			hcl += fmt.Sprintf("\nretry_join_wan = [\"127.0.0.1:%d\"]", ports[0])
		}
		if dcs[i], err = lab.Open(ctx, harness.Config{Servers: 1, HCL: []string{hcl}}); err != nil {
			t.Fatal(err)
		}
		defer dcs[i].Close()
	}
	here, there := dcs[0], dcs[1]
	reach := func(limit time.Duration, status int, body string) {
		t.Helper()
		if err := spawn.Until(ctx, limit, fmt.Sprintf("%d %q from dc2", status, body), func() error {
			if r := here.Admin.Do(ctx, "GET", "/v1/kv/key?raw&dc=dc2", nil); r.Status != status || string(r.Body) != body {
				return errors.New(r.String())
			}
			return nil
		}); err != nil {
			t.Fatalf("%v\n%s%s", err, here.Logs(), there.Logs())
		}
	}
	reach(harness.StartLimit, 404, "")
	if r := here.Admin.Do(ctx, "PUT", "/v1/kv/key?dc=dc2", []byte("value")); r.Status != 200 {
		t.Fatal(r)
	}
	reach(harness.StartLimit, 200, "value")
	index := here.Admin.Do(ctx, "GET", "/v1/kv/key?dc=dc2", nil).Index()

	parkedCtx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	parked := make(chan faultrun.Reply, 1)
	watch := func() {
		watcher := faultrun.NewClient(here.Servers[0].HTTP)
		defer watcher.Close()
		watcher.Timeout = 4 * time.Minute
		parked <- watcher.Do(parkedCtx, "GET", fmt.Sprintf("/v1/kv/key?dc=dc2&wait=300s&index=%d", index), nil)
	}
	go watch()
	if err := spawn.Until(ctx, harness.StartLimit, "the query to be parked", func() error {
		select {
		case r := <-parked: // on a machine that hangs, a server there may be taken for a frozen one
			go watch()
			return fmt.Errorf("the query was answered: %s", r)
		default:
		}
		r := there.Admin.Do(ctx, "GET", "/v1/agent/metrics", nil)
		if !strings.Contains(string(r.Body), `rpc.queries_blocking","Value":1,`) {
			return errors.New("nothing is parked")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	if err := fault.Partition(ctx, harness.Peers(here.Servers...), harness.Peers(there.Servers...)); err != nil {
		t.Fatal(err)
	}
	reach(harness.StartLimit, 500, "No path to datacenter")
	select {
	case r := <-parked:
		if r.Status != 500 || string(r.Body) != "No path to datacenter" {
			t.Errorf("the query that was parked there: %s", r)
		}
	case <-parkedCtx.Done():
		t.Error("a query stays parked on a link that is cut")
	}
	for _, dc := range dcs {
		if err := dc.Converged(ctx, harness.StartLimit); err != nil {
			t.Errorf("a datacenter is disturbed by the link to another: %v", err)
		}
	}

	for _, dc := range dcs {
		if err := dc.Heal(ctx); err != nil {
			t.Fatal(err)
		}
	}
	reach(healLimit, 200, "value")
	for _, dc := range dcs {
		if err := dc.Damage(); err != nil {
			t.Error(err)
		}
	}
}
