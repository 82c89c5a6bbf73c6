//go:build unix

package pgblobs

import (
	"fmt"
	"testing"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/estimate"
	"corbel.dev/corbel/usage/finished"
)

// windows: rows are there once, a later number replaces an earlier one and never the other way round, and names and
// numbers are whole.
func windows(t *testing.T, dsn string) {
	w, err := OpenWindows(t.Context(), Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if newest, err := w.Newest(t.Context()); err != nil || !newest.IsZero() {
		t.Errorf("of an empty table: %s, %v", newest, err)
	}
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	row := func(tenant, value string, asOf time.Duration, final bool) finished.Row {
		r := finished.Row{Series: aggregate.Series{Tenant: tenant, Product: "calls", Generation: 1}, Window: "hour", From: at,
			To: at.Add(time.Hour), Zone: "UTC", Kind: "sum", Unit: "calls",
			Estimate: estimate.Estimate{Completeness: estimate.Completeness{Ratio: 1}, AsOf: at.Add(asOf)}}
		if q, ok := usage.ParseQuantity(value); ok {
			r.Value, r.Error.Low, r.Error.High = &q, q, &q
		}
		if until := at.Add(24 * time.Hour); !final {
			r.Completeness.OpenUntil = &until
		}
		return r
	}
	const large = "73786976294838206470"
	says := func(tenant, want string) {
		t.Helper()
		var got string
		err := w.pool.QueryRow(t.Context(), `SELECT concat_ws(' ', coalesce(value::text, 'nothing'), final,
			count(*) OVER ()) FROM corbel_usage_windows WHERE tenant = $1`, tenant).Scan(&got)
		if err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", tenant, got, err, want)
		}
	}
	put := func(rows ...finished.Row) {
		t.Helper()
		if err := w.Put(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	}
	hostile := "it's \"a\"; DROP TABLE corbel_usage_windows; \x00"
	put(row("acme", large, time.Hour, false), row("empty", "", time.Hour, true), row(hostile, "7", time.Hour, true),
		row(`"quoted"`, "8", time.Hour, true))
	first, err := w.Newest(t.Context())
	if err != nil || first.IsZero() {
		t.Fatal(first, err)
	}
	put(row("acme", large, 2*time.Hour, false))
	if again, err := w.Newest(t.Context()); err != nil || !again.Equal(first) {
		t.Errorf("a row that says the same was written again: %s, %s, %v", first, again, err)
	}
	says("acme", large+" f 1")
	says("empty", "nothing t 1")
	says(text(hostile), "7 t 1")
	says(`"\"quoted\""`, "8 t 1")
	put(row("acme", "5", 0, true)) // of a server that knows less
	says("acme", large+" f 1")
	put(row("acme", "-6", 3*time.Hour, true))
	says("acme", "-6 t 1")
	again, err := OpenWindows(t.Context(), Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	var many []finished.Row
	for i := range 500 {
		many = append(many, row(fmt.Sprint("tenant-", i), fmt.Sprint(i), time.Hour, true))
	}
	if err := again.Put(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	says("tenant-499", "499 t 1")
}
