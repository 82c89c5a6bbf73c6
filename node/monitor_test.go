package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/subscribers"
	"corbel.dev/corbel/node/plane"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
)

const monitorOn = aclOff + `
monitor { enabled = true, cluster_admin_username = "admin", cluster_admin_password = "P@ssw0rd!" }
ports { monitor = 0, monitor_agents = 0 }
`

// monitor is the member's monitor plane.
func (m *testMember) monitor() *monitorplane.Plane {
	return plane.Find[*monitorplane.Plane](m.doors.Planes)
}

// agent connects an agent by its name and subscriptions; the test's end closes it.
func (m *testMember) agent(name string, subscriptions ...string) *ws.Conn {
	m.t.Helper()
	_, addr := m.MonitorAddrs()
	var conn *ws.Conn
	polltest.NoError(m.t, polltest.Deadline, func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		h := http.Header{"Sensu-Namespace": {"default"}, "Sensu-Agentname": {name},
			"Sensu-Subscriptions": {strings.Join(subscriptions, ",")}, "Accept": {"application/octet-stream"}}
		h.Set("Authorization", "Basic YWdlbnQ6UEBzc3cwcmQh")
		conn, _, err = ws.Dial(ctx, "ws://"+addr+"/", h, nil, nil)
		return err
	}, "an agent's session at %s", m.Cfg.Node.Name)
	m.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// result is an event as an agent sends it.
func result(entity, check string, status uint32, at int64) []byte {
	return append([]byte("event\n"), tagproto.Append(nil, &monitor.Event{Timestamp: at,
		Entity: &monitor.Entity{Meta: monitor.Meta{Name: entity, Namespace: "default"}, Class: monitor.ClassAgent},
		Check: &monitor.Check{Meta: monitor.Meta{Name: check, Namespace: "default"}, Interval: 10, Status: status,
			Executed: at, Issued: at,
			Output: fmt.Sprintf("status %d", status)}})...)
}

func (m *testMember) open(path string) (int, string) {
	m.t.Helper()
	api, _ := m.MonitorAddrs()
	resp, err := http.Get("http://" + api + path)
	if err != nil {
		return -1, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1, err.Error()
	}
	return resp.StatusCode, string(b)
}

// TestMonitorPlane: a server that is told to serves agents, is initialized once, keeps events over a restart, and
// says how it is.
func TestMonitorPlane(t *testing.T) {
	m := startServer(t, "mon", monitorOn+"bootstrap = true")
	conn := m.agent("web-1")
	now := time.Now().Unix()
	if err := conn.Write(result("web-1", "disk", 2, now)); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool {
		e, err := m.monitor().Events.Ingest.Get("default", "web-1", "disk")
		return err == nil && e.Check.Status == 2
	}, "the event")
	if code, body := m.open("/ready"); code != http.StatusOK {
		t.Errorf("ready: %d %q", code, body)
	}
	code, body := m.open("/version")
	if code != http.StatusOK || !strings.Contains(body, `"sensu_backend":"6.12.0-corbel.`) {
		t.Errorf("version: %d %q", code, body)
	}
	code, body = m.open("/health")
	var health struct {
		ClusterHealth []struct {
			Name    string
			Healthy bool
		}
		Header struct {
			MemberID uint64 `json:"member_id"`
		}
	}
	if err := json.Unmarshal([]byte(body), &health); err != nil || code != http.StatusOK ||
		len(health.ClusterHealth) != 1 || !health.ClusterHealth[0].Healthy ||
		health.ClusterHealth[0].Name != "mon" || health.Header.MemberID == 0 {
		t.Errorf("health: %d %q (%v)", code, body, err)
	}
	code, body = m.open("/metrics")
	if code != http.StatusOK || !strings.Contains(body, `sensu_go_agent_sessions{namespace="default"} 1`) ||
		!strings.Contains(body, "sensu_go_events_processed") {
		t.Errorf("metrics: %d %q", code, body)
	}
	if err := m.monitor().Group.Initialize(t.Context(), "other", "P@ssw0rd!", ""); err != monitorplane.ErrInitialized {
		t.Errorf("a second init: %v", err)
	}
}

// TestMonitorCluster: three servers found the plane together, each takes writes, and each has what was written.
func TestMonitorCluster(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3, monitorOn)
	for i, m := range servers {
		polltest.Until(t, func() bool { return len(m.monitor().Unready()) == 0 }, "%s to be ready: %v", m.Cfg.Node.Name,
			m.monitor().Unready())
		c := &monitor.EntityConfig{Meta: monitor.Meta{Name: fmt.Sprint("proxy-", i), Namespace: "default"},
			Class: monitor.ClassProxy}
		op := objects.Op{Verb: objects.Create, Type: "entities", Namespace: "default", Name: c.Name,
			Encoded: tagproto.Append(nil, c)}
		if err := m.monitor().Group.Resources.Write(t.Context(), op); err != nil {
			t.Fatalf("a write at %s: %v", m.Cfg.Node.Name, err)
		}
		if m.monitor().Group.Resources.View().Get("entities", "default", c.Name) == nil {
			t.Errorf("%s does not show what it wrote", m.Cfg.Node.Name)
		}
		if err := m.monitor().Group.Resources.Write(t.Context(), op); !errkind.Is(err, errkind.Conflict) {
			t.Errorf("the same once more: %v", err)
		}
		op.Verb, op.If = objects.Put, 1
		if err := m.monitor().Group.Resources.Write(t.Context(), op); !errors.Is(err, objects.ErrPrecondition) {
			t.Errorf("a write of what changed meanwhile: %v", err)
		}
	}
	for _, m := range servers {
		polltest.Until(t, func() bool {
			return m.monitor().Group.Resources.View().Get("entities", "default", "proxy-2") != nil
		}, "%s to have all", m.Cfg.Node.Name)
		if code, body := m.open("/health"); code != http.StatusOK || strings.Count(body, `"Healthy":true`) != 3 {
			t.Errorf("health: %d %s", code, body)
		}
	}
	followsAll(t, servers)
}

// followsAll checks that a follower at one server sees what all store, with metrics.
func followsAll(t *testing.T, servers []*testMember) {
	t.Helper()
	f, err := servers[0].monitor().Events.Follow(subscribers.Filter{Check: "http"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	polltest.Until(t, func() bool {
		for _, m := range servers[1:] {
			if n, _ := m.monitor().Events.Tail.Stats(); n == 0 {
				return false
			}
		}
		return true
	}, "the other servers to be followed")
	const entities = 30 // each server has some
	agent := servers[1].agent("sender")
	for i := range entities {
		if err := agent.Write(result(fmt.Sprint("e", i), "http", 1, time.Now().Unix())); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), polltest.Deadline)
	defer cancel()
	seen := map[string]bool{}
	for len(seen) < entities {
		p, err := f.Next(ctx)
		if err != nil {
			t.Fatalf("%d of %d entities: %v", len(seen), entities, err)
		}
		e, err := p.Event()
		if err != nil || e.Check.Name != "http" || seen[p.Entity] {
			t.Fatalf("%s: %v, %+v", p.Entity, err, e)
		}
		seen[p.Entity] = true
	}
}
