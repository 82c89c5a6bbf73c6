package tokens

import (
	"context"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/identities"
	"corbel.dev/corbel/secrets/quotas"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/tables/tablestest"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// ended are the tokens whose leases were asked for.
type ended []string

func (a *ended) DueOf(_ context.Context, _ *tables.Tables, hashes []string) ([]storage.Op, error) {
	*a = append(*a, hashes...)
	return nil, nil
}

func newTokens(t *testing.T) (*tablestest.Desk, *Tokens, *ended) {
	d, a := tablestest.New(t), &ended{}
	o := NewTokens(d.Gate, d.Store, d.Rights, &quotas.Quotas{Gate: d.Gate, Records: d.Store},
		&identities.Identities{Records: d.Store, Rights: d.Rights}, d.Flying, d.Now, nil)
	o.Leases = a
	return d, o, a
}

// issue makes a token below another one.
func issue(t *testing.T, d *tablestest.Desk, o *Tokens, parent *rights.Holder) (id string, h *rights.Holder) {
	t.Helper()
	asked := d.Task(secrets.Update, "auth/token/create", "")
	asked.Bearer = parent
	made, release, err := o.Issue(t.Context(), asked, &secrets.Response{Auth: &secrets.Auth{Policies: []string{"app"},
		Lifetime: secrets.Lifetime{TTL: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := d.Store.Commit(t.Context(), made.Ops); err != nil {
		t.Fatal(err)
	}
	h, err = d.Rights.Known(t.Context(), d.Gate.Load(), made.ID, d.Time, asked.Remote)
	if err != nil {
		t.Fatal(err)
	}
	return made.ID, h
}

// A tree ends whole, with the leases of all its tokens; nothing is made below a token that has ended.
func TestATreeEnds(t *testing.T) {
	d, o, leases := newTokens(t)
	_, root := d.Token(t, &token.Token{Policies: []string{"root"}})
	id, parent := issue(t, d, o, root)
	ids := []string{id}
	for range 3 {
		id, h := issue(t, d, o, parent)
		below, _ := issue(t, d, o, h)
		ids = append(ids, id, below)
	}
	st := d.Gate.Load()
	if err := o.End(t.Context(), st, parent.Token); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if h, err := d.Rights.Known(t.Context(), st, id, d.Time, secrets.Request{}.Remote); err != rights.ErrDenied {
			t.Errorf("lives on: %+v, %v", h, err)
		}
	}
	if len(*leases) != len(ids) {
		t.Errorf("leases of %d tokens were asked for, want %d", len(*leases), len(ids))
	}
	late := d.Task(secrets.Update, "auth/token/create", "")
	late.Bearer = parent
	if _, _, err := o.Issue(t.Context(), late, &secrets.Response{Auth: &secrets.Auth{}}); err != rights.ErrDenied {
		t.Errorf("a token was made below one that has ended: %v", err)
	}
	if left, err := d.Store.List(t.Context(), goingPrefix, "", 0); len(left) != 0 || err != nil {
		t.Errorf("still going: %v, %v", left, err)
	}
}

// Uses that are taken ahead are off the record first; one that is given back is had again; the last one ends the token.
func TestUses(t *testing.T) {
	d, o, _ := newTokens(t)
	id, h := d.Token(t, &token.Token{Policies: []string{"app"}, Lifetime: secrets.Lifetime{TTL: time.Hour}, Uses: 17})
	st, used := d.Gate.Load(), 0
	use := func() *task.Task {
		t.Helper()
		one := d.Task(secrets.Read, "x", "")
		one.Bearer = h
		if err := o.Use(t.Context(), one); err != nil {
			t.Fatal(used, err)
		}
		used++
		tok, err := st.Book.Find(t.Context(), h.Hash)
		if err != nil || max(tok.Uses, 0)+o.Ahead(h.Hash) != 17-used || one.Last != (used == 17) {
			t.Fatalf("after %d: %+v, %d ahead, last %t, %v", used, tok, o.Ahead(h.Hash), one.Last, err)
		}
		return one
	}
	for range 4 {
		use()
	}
	o.Unuse(t.Context(), use())
	used--
	for used < 16 {
		use()
	}
	o.EndLast(t.Context(), use())
	if _, err := d.Rights.Known(t.Context(), st, id, d.Time, secrets.Request{}.Remote); err != rights.ErrDenied {
		t.Errorf("after the last use: %v", err)
	}
}
