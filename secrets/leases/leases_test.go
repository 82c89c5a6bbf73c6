package leases

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/identities"
	"corbel.dev/corbel/secrets/quotas"
	"corbel.dev/corbel/secrets/tables/tablestest"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/secrets/tokens"
)

// lender is an engine that revokes unless it is broken.
type lender struct {
	task.Own
	broken  error
	revoked []string
}

func (e *lender) Renew(context.Context, engine.View, engine.Lease) (*secrets.Response, error) {
	return nil, e.broken
}

func (e *lender) Revoke(_ context.Context, _ engine.View, l engine.Lease) (*secrets.Response, error) {
	if e.broken == nil {
		e.revoked = append(e.revoked, l.ID)
	}
	return nil, e.broken
}

// A lease ends with its token; one that its engine does not revoke is kept, and asked for again.
func TestALeaseEndsWithItsToken(t *testing.T) {
	d, e := tablestest.New(t), &lender{}
	q := &quotas.Quotas{Gate: d.Gate, Records: d.Store}
	o := tokens.NewTokens(d.Gate, d.Store, d.Rights, q, &identities.Identities{}, d.Flying, d.Now, nil)
	l := NewLeases(d.Gate, d.Store, o, q, d.Flying, d.Now, slog.New(slog.DiscardHandler), nil)
	d.Mount("db/", "database", e)
	asked := d.Task(secrets.Read, "db/creds/app", "")
	_, asked.Bearer = d.Token(t, &token.Token{Policies: []string{"app"}, Lifetime: secrets.Lifetime{TTL: time.Hour}})
	reply := &task.Reply{Response: &secrets.Response{Lease: &secrets.Lease{TTL: 48 * time.Hour, Renewable: true}}}
	ops, release, err := l.Grant(t.Context(), asked, reply)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Store.Commit(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	release()
	if reply.Lease.Left != 24*time.Hour || !strings.HasPrefix(reply.Lease.ID, "db/creds/app/") ||
		len(reply.Warnings) != 1 {
		t.Errorf("granted: %+v, %q", reply.Lease, reply.Warnings)
	}
	expire := func(want int) {
		t.Helper()
		if n, err := l.ExpireLeases(t.Context()); n != want || err != nil {
			t.Errorf("%d were due, %v; want %d", n, err, want)
		}
	}
	expire(0)
	e.broken = errors.New("away")
	if err := o.End(t.Context(), d.Gate.Load(), asked.Bearer.Token); err != nil {
		t.Fatal(err)
	}
	expire(1)
	if kept, err := l.findLease(t.Context(), reply.Lease.ID); err != nil || kept == nil || kept.Tries != 1 ||
		kept.Error != "away" {
		t.Fatalf("after a try that failed: %+v, %v", kept, err)
	}
	e.broken = nil
	d.Time = d.Time.Add(time.Hour)
	expire(1)
	if kept, err := l.findLease(t.Context(), reply.Lease.ID); kept != nil || err != nil || len(e.revoked) != 1 {
		t.Errorf("once it works: %+v, %v; revoked %q", kept, err, e.revoked)
	}
}
