package node

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

// bound is a result of a check that decides on something of the catalog.
func bound(entity, check string, status uint32, annotations map[string]string) []byte {
	at := time.Now().Unix()
	return append([]byte("event\n"), tagproto.Append(nil, &monitor.Event{Timestamp: at,
		Entity: &monitor.Entity{Meta: monitor.Meta{Name: entity, Namespace: "default"}, Class: monitor.ClassAgent},
		Check: &monitor.Check{Meta: monitor.Meta{Name: check, Namespace: "default", Annotations: annotations}, Interval: 10,
			Status: status, Executed: at, Issued: at,
			Output: fmt.Sprintf("status %d", status)}})...)
}

// TestMonitorDrivesCatalog: over any server, whoever leads and owns.
func TestMonitorDrivesCatalog(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3, monitorOn)
	for _, m := range servers {
		polltest.Until(t, func() bool { return len(m.monitor().Unready()) == 0 }, "%s to be ready", m.Cfg.Node.Name)
	}
	m := servers[0]
	for i := range 3 {
		m.awaitAsk("PUT", "/v1/catalog/register",
			fmt.Sprintf(`{"Node":"ext-%d","Address":"10.0.0.%d","Service":{"Service":"web","Port":80}}`, i, i+1),
			http.StatusOK, "true")
	}
	passing := func(want int) {
		t.Helper()
		for _, m := range servers {
			polltest.Until(t, func() bool {
				_, body := m.ask("GET", "/v1/health/service/web?passing&stale", "")
				return strings.Count(body, `"Service":{`) == want
			}, "%d passing instances at %s", want, m.Cfg.Node.Name)
		}
	}
	passing(3)
	conns := servers[1].agent("probe", "linux")
	send := func(entity string, status uint32) {
		t.Helper()
		if err := conns.Write(bound(entity, "http", status, map[string]string{monitor.CatalogService: "web"})); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		send(fmt.Sprint("ext-", i), 2)
	}
	passing(0)
	_, body := m.ask("GET", "/v1/health/node/ext-1", "")
	if !strings.Contains(body, `"CheckID":"monitor:http"`) || !strings.Contains(body, `"Output":"status 2"`) ||
		!strings.Contains(body, `"ServiceID":"web"`) {
		t.Errorf("the node's checks: %s", body)
	}
	send("ext-1", 0)
	passing(1)
	var written uint64
	for _, m := range servers {
		written += m.monitor().Events.Fleet.Stats().Written
	}
	for range 20 { // the same again: not a write
		send("ext-1", 0)
	}
	if _, err := servers[2].monitor().Events.Router.Delete(t.Context(), "default", "ext-0", "http"); err != nil {
		t.Fatal(err)
	}
	passing(2)
	var after uint64
	for _, m := range servers {
		after += m.monitor().Events.Fleet.Stats().Written
	}
	if after-written > 3 { // one, and what a server did again that had not heard of it yet
		t.Errorf("%d writes for one check that went, and 20 results like the one before", after-written)
	}
	// A check whose service comes later.
	if err := conns.Write(bound("ext-2", "late", 1, map[string]string{monitor.CatalogService: "queue"})); err != nil {
		t.Fatal(err)
	}
	m.awaitAsk("PUT", "/v1/catalog/register",
		`{"Node":"ext-2","Address":"10.0.0.3","Service":{"Service":"queue","Port":81}}`, http.StatusOK, "true")
	polltest.Until(t, func() bool {
		_, body := m.ask("GET", "/v1/health/checks/queue", "")
		return strings.Contains(body, `"Status":"warning"`)
	}, "the check of a service that came later")
}

// TestCatalogFailureIsEvent: a host that dies is an event of the entity of its name, from any server, and one that is
// back a resolution.
func TestCatalogFailureIsEvent(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3, monitorOn)
	c := startMember(t, false, "host-1", aclOff+fmt.Sprintf("leave_on_terminate = false\nretry_join = [%q]\n",
		servers[0].gossip))
	for _, m := range servers {
		polltest.Until(t, func() bool { return len(m.monitor().Unready()) == 0 }, "%s to be ready", m.Cfg.Node.Name)
	}
	polltest.Until(t, func() bool {
		_, body := servers[0].ask("GET", "/v1/health/node/host-1", "")
		return strings.Contains(body, "Agent alive")
	}, "the node")
	status := func(m *testMember) (uint32, int64) {
		e, err := m.monitor().Events.Router.Get(t.Context(), "default", "host-1", "catalog:serfHealth")
		if err != nil {
			return 99, 0
		}
		return e.Check.Status, e.Check.Occurrences
	}
	began := time.Now()
	if err := c.stop(); err != nil { // it does not leave: to others it is as if it had crashed
		t.Fatal(err)
	}
	for _, m := range servers {
		polltest.Until(t, func() bool { s, n := status(m); return s == 2 && n >= 1 }, "the event at %s", m.Cfg.Node.Name)
		code, body := m.rest("GET", "/api/core/v2/namespaces/default/events/host-1", "")
		if code != http.StatusOK || !strings.Contains(body, `"catalog:serfHealth"`) ||
			!strings.Contains(body, "Agent not live or unreachable") {
			t.Errorf("events of the host at %s: %d %s", m.Cfg.Node.Name, code, body)
		}
		if m.monitor().Group.Resources.View().Get("entities", "default", "host-1") == nil {
			t.Errorf("%s has no entity", m.Cfg.Node.Name)
		}
	}
	servers[0].awaitAsk("PUT", "/v1/catalog/deregister", `{"Node":"host-1"}`, http.StatusOK, "true")
	for _, m := range servers {
		polltest.Until(t, func() bool { s, _ := status(m); return s == 0 }, "its end at %s", m.Cfg.Node.Name)
	}
	var told uint64
	for _, m := range servers {
		told += m.monitor().Events.Fleet.Stats().Told
	}
	if told != 2 && time.Since(began) < 50*time.Second { // what still fails is told again after a minute
		t.Errorf("%d events of one failure and its end", told)
	}
}
