package node

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
)

// TestUsageToPostgreSQL: windows that are over come to PostgreSQL as rows, once, with what was counted last: after it
// crashed in the middle, and after a restart of the server while it was away. Rows that say the same stay as they were.
func TestUsageToPostgreSQL(t *testing.T) {
	t.Parallel()
	if _, err := pgtest.Bin(); err != nil {
		loud.Skip(t, "%v", err)
	}
	pg, err := pgtest.New()
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Remove()
	dir, over := t.TempDir(), time.Now().Truncate(time.Hour).Add(-30*time.Minute)
	section := fmt.Sprintf("snapshots { postgresql = %q, every = \"1s\" }\nstate { snapshot = \"1s\" }", pg.URL(""))
	p, ask, end := usageServer(t, dir, section)
	fails := func() { // a pass, beside a PostgreSQL that is away
		t.Helper()
		failed := p.doors.Metrics.Counter("usage.windows.failed")
		before := failed.Value()
		polltest.Until(t, func() bool { return failed.Value() > before }, "a pass without PostgreSQL")
	}
	calls := func(id, tenant string, value int) {
		t.Helper()
		ask("POST", "/v1/usage/events", fmt.Sprintf(`[{"id":%q,"source":"a","tenant":%q,"product":"calls","value":%d,
			"time":%d}]`, id, tenant, value, over.UnixNano()), "202")
	}
	says := func(when, sql, want string) {
		t.Helper()
		polltest.NoError(t, time.Minute, func() error {
			rows, err := pg.Texts(t.Context(), sql)
			if got := strings.Join(rows, "; "); err != nil || got != want {
				return fmt.Errorf("%s: %q, %w; want %q", when, got, err, want)
			}
			return nil
		}, "the rows")
	}
	const rows = `SELECT concat_ws(' ', tenant, product, period, starts AT TIME ZONE zone, value, low, high, unit, final)
		FROM corbel_usage_windows ORDER BY tenant, product`
	row := func(tenant, product, value, unit string) string {
		return fmt.Sprintf("%s %s hour %s %[4]s %[4]s %[4]s %s f", tenant, product,
			over.Truncate(time.Hour).UTC().Format("2006-01-02 15:04:05"), value, unit)
	}
	ask("PUT", "/v1/usage/products/calls", `{"kind":"sum","windows":["hour"],"unit":"calls"}`, "200")
	ask("PUT", "/v1/usage/products/users", `{"kind":"unique","identity":["user"],"windows":["hour","5m"],
		"unit":"users"}`, "200")
	ask("POST", "/v1/usage/events", fmt.Sprintf(`[
		{"id":"u1","source":"a","tenant":"acme","product":"users","identity":{"user":"bob"},"time":%[1]d},
		{"id":"u2","source":"a","tenant":"acme","product":"users","identity":{"user":"eve"},"time":%[1]d}]`,
		over.UnixNano()), `"accepted":2`)
	calls("1", "acme", 5)
	users := row("acme", "users", "2", "users")
	says("at first", rows, row("acme", "calls", "5", "calls")+"; "+users)
	says("copies", "SELECT (count(*) > 0)::text FROM corbel_usage_snapshots", "true")
	const unchanged = "SELECT written::text FROM corbel_usage_windows WHERE product = 'users'"
	written, err := pg.Texts(t.Context(), unchanged)
	if err != nil || len(written) != 1 {
		t.Fatal(written, err)
	}
	pg.Stop(syscall.SIGKILL)
	calls("2", "acme", 7)
	calls("3", "rival", 3)
	fails()
	calls("2", "acme", 7) // which is known
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	acme := row("acme", "calls", "12", "calls")
	says("after a crash", rows, acme+"; "+users+"; "+row("rival", "calls", "3", "calls"))
	end()
	pg.Stop(syscall.SIGINT)
	p, ask, end = usageServer(t, dir, section)
	defer end()
	calls("4", "rival", 1)
	fails()
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	says("after a restart", rows, acme+"; "+users+"; "+row("rival", "calls", "4", "calls"))
	says("a row that says the same", unchanged, written[0])
}
