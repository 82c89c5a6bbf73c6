package node

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
)

// again stops a server and starts it anew.
func (m *testMember) again(hcl string) {
	m.t.Helper()
	if err := m.stop(); err != nil {
		m.t.Fatal(err)
	}
	m.start(m.config(true, hcl))
}

// A server that starts while its PostgreSQL is away takes events, shows them, and says what is wrong; once PostgreSQL
// is back it has what that held, and writes what came meanwhile, without a restart.
func TestMonitorStartsWithoutPostgres(t *testing.T) {
	t.Parallel()
	if _, err := pgtest.Bin(); err != nil {
		loud.Skip(t, "%v", err)
	}
	pg, err := pgtest.New()
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Remove()
	hcl := strings.Replace(monitorOn, "enabled = true", fmt.Sprintf("enabled = true, store = \"postgresql\", dsn = %q",
		pg.URL("")), 1) + "bootstrap = true"
	m := startServer(t, "mon", hcl)
	at := time.Now().Unix()
	event := func(entity, check string) *monitor.Event {
		e, err := m.monitor().Events.Router.Get(t.Context(), "default", entity, check)
		if err != nil {
			return &monitor.Event{Check: &monitor.Check{}}
		}
		return e
	}
	send := func(entity, check string, status uint32) {
		t.Helper()
		at++
		sent := at
		if err := m.agent(entity).Write(result(entity, check, status, sent)); err != nil {
			t.Fatal(err)
		}
		polltest.Until(t, func() bool { return event(entity, check).Check.Executed == sent }, "the result of %s/%s",
			entity, check)
	}
	for i := range 20 {
		send(fmt.Sprintf("web-%d", i), "http", uint32(i%3))
	}
	send("web-1", "http", 1)
	send("web-2", "disk", 2)
	durable := func() {
		t.Helper()
		polltest.Until(t, func() bool {
			for shard := range uint16(ingest.Shards) {
				if !m.monitor().Events.Ingest.Settled(shard) {
					return false
				}
			}
			st := m.monitor().Events.Postgres.Stats()
			return st.Dirty == 0 && st.Waiting == 0
		}, "PostgreSQL to have everything")
	}
	durable()

	pg.Stop(syscall.SIGKILL)
	m.again(hcl)
	healthy := func(want bool) {
		t.Helper()
		polltest.Until(t, func() bool {
			code, body := m.open("/health")
			return code == http.StatusOK && strings.Contains(body,
				fmt.Sprintf(`"PostgresHealth":[{"Name":"postgresql","Active":true,"Healthy":%v}]`, want))
		}, "PostgresHealth to be %v", want)
	}
	healthy(false)
	polltest.Until(t, func() bool { code, _ := m.open("/ready"); return code == http.StatusOK },
		"the plane to be ready without PostgreSQL")
	send("new", "http", 2) // what was there before has other numbers now
	send("web-1", "http", 0)
	send("web-1", "disk", 1)
	if _, body := m.open("/metrics"); !strings.Contains(body, "sensu_go_postgres_healthy 0") {
		t.Error("the metrics do not say that PostgreSQL is away")
	}
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	healthy(true)
	whole := func(when string) {
		t.Helper()
		polltest.Until(t, func() bool { return event("web-2", "disk").Check.Status == 2 }, "%s: an event of before", when)
		for i := range 20 {
			name := fmt.Sprintf("web-%d", i)
			if c := event(name, "http").Check; i != 1 && i != 3 && (c.Status != uint32(i%3) || len(c.History) != 1) {
				t.Errorf("%s: %s: %+v", when, name, c)
			}
		}
		if c := event("web-1", "http").Check; c.Status != 0 || event("new", "http").Check.Status != 2 ||
			event("web-1", "disk").Check.Status != 1 {
			t.Errorf("%s: what came meanwhile is not there: %+v", when, c)
		}
		_, body := m.rest("GET", "/api/corbel/v1/events/history?namespace=default&entity=web-1&check=http", "")
		if strings.Count(body, `"runs":`) != 2 || !strings.Contains(body, `"status":1`) { // 1 twice, then 0
			t.Errorf("%s: the past of a check that was heard of meanwhile: %s", when, body)
		}
	}
	whole("PostgreSQL is back")
	durable()
	send("web-3", "http", 2)
	durable()
	m.again(hcl)
	polltest.Until(t, func() bool { return event("web-3", "http").Check.Status == 2 }, "the newest event after a restart")
	send("web-3", "http", 0)
	if c := event("web-3", "http").Check; len(c.History) != 3 {
		t.Errorf("%+v", c.History)
	}
	whole("after a restart")
}
