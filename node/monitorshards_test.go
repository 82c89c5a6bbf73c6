package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor/ingest"
)

type storedJSON struct {
	Shards []struct {
		Shard           int
		Role            string
		Epoch, Sequence uint64
	}
}

// roles counts the shards that a server says that it has.
func (m *testMember) roles() (owned, followed int) {
	var s storedJSON
	if code, body := m.open("/api/corbel/v1/events/stored"); code != http.StatusOK ||
		json.Unmarshal([]byte(body), &s) != nil {
		return -1, -1
	}
	for _, one := range s.Shards {
		if one.Role == "owner" {
			owned++
		} else {
			followed++
		}
	}
	return owned, followed
}

// awaitEven waits until the shards are dealt evenly over servers, each with a replica that has everything.
func awaitEven(t *testing.T, servers []*testMember) {
	t.Helper()
	polltest.NoError(t, 2*time.Minute, func() error {
		for _, m := range servers {
			owned, followed := m.roles()
			least := 256 / len(servers)
			if owned < least || owned > least+1 || followed < least || followed > least+1 ||
				m.monitor().Events.Router.Stats().ReplicaBehind > 0 {
				return fmt.Errorf("%s owns %d and follows %d, %d behind", m.Cfg.Node.Name, owned, followed,
					m.monitor().Events.Router.Stats().ReplicaBehind)
			}
		}
		return nil
	}, "shards to be dealt evenly")
}

// awaitReplicas waits until all that is durable at the owners is so at the replicas.
func awaitReplicas(t *testing.T, servers []*testMember) {
	t.Helper()
	polltest.NoError(t, time.Minute, func() error {
		newest := map[int]uint64{}
		for _, role := range []string{"owner", "replica"} {
			for _, m := range servers {
				for _, one := range m.monitor().Events.Router.Stored() {
					switch {
					case one.Role != role:
					case role == "owner":
						newest[one.Shard] = one.Sequence
					case one.Sequence < newest[one.Shard]:
						return fmt.Errorf("shard %d: the replica has %d of %d", one.Shard, one.Sequence, newest[one.Shard])
					}
				}
			}
		}
		return nil
	}, "the replicas to have everything")
}

// TestMonitorShards: three servers share the events; each takes and tells of all of them, and those of one that goes
// are where they were, with their past, at the others.
func TestMonitorShards(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3, monitorOn)
	awaitEven(t, servers)
	const entities, runs = 60, 3
	now := time.Now().Unix()
	agents := make([]*ws.Conn, len(servers))
	for i, m := range servers {
		agents[i] = m.agent(fmt.Sprint("carrier-", i))
	}
	send := func(conns []*ws.Conn, run int) {
		t.Helper()
		for e := range entities {
			name := fmt.Sprint("web-", e)
			if err := conns[e%len(conns)].Write(result(name, "disk", 2, now+int64(run))); err != nil {
				t.Fatal(err)
			}
		}
	}
	await := func(list []*testMember, occurrences int64) {
		t.Helper()
		for _, m := range list {
			for e := range entities {
				polltest.NoError(t, 2*time.Minute, func() error {
					ev, err := m.monitor().Events.Router.Get(t.Context(), "default", fmt.Sprint("web-", e), "disk")
					if err != nil {
						return err
					}
					if ev.Check.Occurrences != occurrences {
						return fmt.Errorf("web-%d has %d occurrences", e, ev.Check.Occurrences)
					}
					return nil
				}, "an event at %s with %d occurrences", m.Cfg.Node.Name, occurrences)
			}
		}
	}
	for run := range runs {
		send(agents, run)
		await(servers[:1], int64(run+1))
	}
	await(servers, runs)
	for _, m := range servers {
		listed := map[string]bool{}
		for e, err := range m.monitor().Events.Router.List(t.Context(), ingest.Range{Namespace: "default"}) {
			if err != nil {
				t.Fatal(err)
			}
			listed[e.Entity] = true
		}
		if len(listed) < entities {
			t.Errorf("%s lists %d entities", m.Cfg.Node.Name, len(listed))
		}
		if n := m.monitor().Events.Ingest.Stats().Results; n == 0 {
			t.Errorf("%s took no result", m.Cfg.Node.Name)
		}
	}
	_, others := leaderOf(t, servers) // of the catalog; the plane's may be any
	gone, left := others[0], []*testMember{}
	for _, m := range servers {
		if m != gone {
			left = append(left, m)
		}
	}
	awaitReplicas(t, servers)
	if err := gone.stop(); err != nil {
		t.Errorf("the server's end: %v", err)
	}
	await(left, runs) // before anything else: what it had is there
	var still []*ws.Conn
	for i, m := range servers {
		if m != gone {
			still = append(still, agents[i])
		}
	}
	send(still, runs)
	await(left, runs+1)
	awaitEven(t, left)
	found, err := left[0].monitor().Events.Router.Delete(t.Context(), "default", "web-7", "disk")
	if !found || err != nil {
		t.Errorf("delete: %v %v", found, err)
	}
	if _, err := left[1].monitor().Events.Router.Get(t.Context(), "default", "web-7", "disk"); err == nil {
		t.Error("what was deleted is told of")
	}
}
