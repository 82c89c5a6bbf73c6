package wrapping

import (
	"context"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/identities"
	"corbel.dev/corbel/secrets/quotas"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/tables/tablestest"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/tokens"
)

// nothing are the leases of tokens that have none.
type nothing struct{}

func (nothing) DueOf(context.Context, *tables.Tables, []string) ([]storage.Op, error) {
	return nil, nil
}

// A wrapped answer is given once, as its reader would have got it; wrapping it anew ends the first token.
func TestAnAnswerIsGivenOnce(t *testing.T) {
	d := tablestest.New(t)
	q := &quotas.Quotas{Gate: d.Gate, Records: d.Store}
	o := tokens.NewTokens(d.Gate, d.Store, d.Rights, q, &identities.Identities{}, d.Flying, d.Now, nil)
	o.Leases = nothing{}
	w := &Wrapping{Records: d.Store, Tokens: o, Quotas: q, Flying: d.Flying}
	asked := d.Task(secrets.Read, "cubbyhole/x", "")
	asked.Wrap = time.Minute
	reply, ops, err := w.Wrapped(asked, &task.Reply{Response: &secrets.Response{Data: []byte(`{"a":"1"}`)},
		Mount: asked.Entry})
	if err != nil || reply.Wrap == nil || reply.Data != nil {
		t.Fatalf("wrapped: %+v, %v", reply, err)
	}
	if err := d.Store.Commit(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	ask := func(path, id string) (*secrets.Response, error) {
		return d.Ask(t.Context(), w.Rows(), secrets.Update, "wrapping/"+path, `{"token":"`+id+`"}`)
	}
	if _, err := ask("rewrap", reply.Wrap.Token); err != nil {
		t.Fatal(err)
	}
	if _, err := ask("unwrap", reply.Wrap.Token); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("after it was wrapped anew: %v", err)
	}
	again, ops, err := w.Wrapped(asked, &task.Reply{Response: &secrets.Response{Data: []byte(`{"a":"1"}`)},
		Mount: asked.Entry})
	if err == nil {
		err = d.Store.Commit(t.Context(), ops)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err := ask("unwrap", again.Wrap.Token); err != nil || !strings.Contains(string(r.Raw.Body), `"data":{"a":"1"}`) {
		t.Errorf("unwrapped: %+v, %v", r, err)
	}
	if _, err := ask("unwrap", again.Wrap.Token); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("unwrapped twice: %v", err)
	}
}
