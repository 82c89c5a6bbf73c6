package census

import (
	"log/slog"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables/tablestest"
	"corbel.dev/corbel/secrets/token"
)

// What is live is counted by the mount and role that made it, and told again for a while.
func TestAttribution(t *testing.T) {
	d := tablestest.New(t)
	o := New(Rules{}, d.Gate, d.Store, d.Flying, d.Now, slog.New(slog.DiscardHandler), func() string { return "c" }, nil)
	d.Mount("db/", "database", nil)
	for range 2 {
		d.Token(t, &token.Token{Origin: token.Origin{Path: "auth/token/create"}, Policies: []string{"app"},
			Lifetime: secrets.Lifetime{TTL: time.Hour}, Role: "web"})
	}
	if err := d.Store.Commit(t.Context(), []storage.Op{storage.Mark(token.LeasePrefix + "db/creds/app/1")}); err != nil {
		t.Fatal(err)
	}
	want := func(what, text string) {
		t.Helper()
		r, err := d.Ask(t.Context(), o.Rows(), secrets.Read, "leases/attribution", "")
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Data) != text {
			t.Errorf("%s: %s", what, r.Data)
		}
	}
	want("live",
		`{"as_of":"2026-01-01T00:00:00Z","by_role":[{"mount":"auth/token/","type":"token","role":"web","tokens":2,`+
			`"leases":0},`+
			`{"mount":"db/","type":"database","role":"creds/app","tokens":0,"leases":1}],"leases":1,"roles":2,"tokens":2}`)
	d.Time = d.Time.Add(2 * time.Hour)
	want("after their end",
		`{"as_of":"2026-01-01T02:00:00Z","by_role":[{"mount":"db/","type":"database","role":"creds/app","tokens":0,`+
			`"leases":1}],`+
			`"leases":1,"roles":1,"tokens":0}`)
}

// Labels of one name are bounded, and so are the series that are told.
func TestCountsAreBounded(t *testing.T) {
	c := &census{By: map[string]map[string]int{}}
	for i := range usageNames + 10 {
		c.add("n", 1, "label", time.Duration(i).String())
	}
	c.add("n", 5, "label", time.Duration(7).String())
	if n := len(c.By["n"]); n != usageNames {
		t.Errorf("%d label sets are remembered", n)
	}
	if list := c.points("n", 3); len(list) != 3 || list[0].Value != 6 {
		t.Errorf("told: %+v", list)
	}
}
