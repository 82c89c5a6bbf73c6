//go:build unix

package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
)

// TestMonitorPostgres: a server keeps its events in PostgreSQL, goes on while that is gone, says so, and has them
// after a restart.
func TestMonitorPostgres(t *testing.T) {
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
	send := func(status uint32) {
		t.Helper()
		at++
		if err := m.agent("web-1").Write(result("web-1", "http", status, at)); err != nil {
			t.Fatal(err)
		}
		polltest.Until(t, func() bool {
			e, err := m.monitor().Events.Router.Get(t.Context(), "default", "web-1", "http")
			return err == nil && e.Check.Executed == at
		}, "the result of %d", at)
	}
	healthy := func(want bool) {
		t.Helper()
		polltest.Until(t, func() bool {
			code, body := m.open("/health")
			return code == http.StatusOK && strings.Contains(body,
				fmt.Sprintf(`"PostgresHealth":[{"Name":"postgresql","Active":true,"Healthy":%v}]`, want))
		}, "PostgresHealth to be %v", want)
	}
	send(0)
	send(2)
	healthy(true)
	pg.Stop(syscall.SIGKILL)
	send(0)
	healthy(false)
	send(2)
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	healthy(true)
	polltest.Until(t, func() bool {
		return m.monitor().Events.Postgres.Stats().Dirty == 0 && m.monitor().Events.Postgres.Stats().Waiting == 0
	}, "PostgreSQL to have everything")
	if lost := m.monitor().Events.Postgres.Stats().HistoryLost; lost != 0 {
		t.Errorf("%d entries were lost", lost)
	}
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	m.start(m.config(true, hcl))
	polltest.Until(t, func() bool {
		e, err := m.monitor().Events.Router.Get(t.Context(), "default", "web-1", "http")
		return err == nil && len(e.Check.History) == 4 && e.Check.Executed == at
	}, "the event after a restart")
	var got struct{ Changes []struct{ Status uint32 } }
	code, body := m.rest("GET", "/api/corbel/v1/namespaces/default/events/changes?entity=web-1&check=http&limit=3", "")
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK || len(got.Changes) != 3 ||
		got.Changes[0].Status != 2 || got.Changes[1].Status != 0 {
		t.Errorf("%d %s", code, body)
	}
}
