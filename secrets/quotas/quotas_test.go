package quotas

import (
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/quota"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables/tablestest"
	"corbel.dev/corbel/secrets/token"
)

// A rule counts the leases that there are, refuses those above its number, and has room again when one goes. A root
// token is counted and never refused.
func TestLeasesAreCounted(t *testing.T) {
	d := tablestest.New(t)
	q := &Quotas{Gate: d.Gate, Records: d.Store}
	d.Mount("db/", "database", nil)
	if err := d.Store.Commit(t.Context(), []storage.Op{storage.Mark(token.LeasePrefix + "db/creds/a/1"),
		storage.Mark(token.LeasePrefix + "other/x")}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Ask(t.Context(), q.Rows(), secrets.Update, "quotas/lease-count/two",
		`{"path":"db","max_leases":2}`); err != nil {
		t.Fatal(err)
	}
	rule := d.Gate.Load().Quotas.Find(quota.LeaseCount, "two")
	if rule == nil || rule.Leases.Load() != 1 {
		t.Fatalf("the rule counts %+v", rule)
	}
	place := quota.Place{Path: "db/creds/a", Mount: "db/"}
	one := d.Task(secrets.Read, "db/creds/a", "")
	if err := q.Take(one, place); err != nil {
		t.Errorf("the second: %v", err)
	}
	if err := q.Take(d.Task(secrets.Read, "db/creds/a", ""), place); !errkind.Is(err, errkind.Overloaded) {
		t.Errorf("the third: %v", err)
	}
	one.GiveBack[0]()
	if q.Gone(d.Gate.Load(), "db/creds/a/1"); rule.Leases.Load() != 0 {
		t.Errorf("%d are left", rule.Leases.Load())
	}
	if err := q.Load(t.Context(), d.Gate.Load()); err != nil || d.Gate.Load().Quotas.Find(quota.LeaseCount,
		"two").Leases.Load() != 1 {
		t.Errorf("after a start: %v", err)
	}
	if _, err := d.Ask(t.Context(), q.Rows(), secrets.Update, "quotas/rate-limit/x",
		`{"path":"none","rate":1}`); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a rule for no mount: %v", err)
	}
}
