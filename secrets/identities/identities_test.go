package identities

import (
	"testing"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/tables/tablestest"
	"corbel.dev/corbel/secrets/token"
)

// The first login of an alias makes an entity; later ones find it and change nothing. Who changes something holds the
// name that it is found by.
func TestIdentify(t *testing.T) {
	d := tablestest.New(t)
	o := &Identities{Records: d.Store, Rights: d.Rights}
	e := d.Mount("identity/", "identity", nil)
	st := d.Gate.Load()
	st.IdentitiesPrefix = e.Prefix()
	st.Identities = &identity.Book{View: d.Store.At(e.Prefix()), Hash: (&token.Book{Salt: st.Book.Salt}).Hash}
	login := func(newcomer bool) string {
		t.Helper()
		asked := d.Task(secrets.Update, "auth/token/login", "")
		w, err := o.Identify(t.Context(), asked, &secrets.Auth{Principal: secrets.Principal{Alias: "ann"}})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Release()
		if asked.Newcomer != newcomer || (len(w.Ops) > 0) != newcomer || w.Entity == "" {
			t.Errorf("newcomer %t: %+v", asked.Newcomer, w)
		}
		if err := d.Store.Commit(t.Context(), w.Ops); err != nil {
			t.Fatal(err)
		}
		return w.Entity
	}
	first := login(true)
	for range 2 {
		if again := login(false); again != first {
			t.Errorf("another entity: %s, %s", first, again)
		}
	}
	asked := d.Task(secrets.Update, "auth/token/create", "")
	if w, err := o.Identify(t.Context(), asked, &secrets.Auth{Principal: secrets.Principal{Entity: first}}); err != nil ||
		w.Entity != first {
		t.Errorf("by the entity itself: %+v, %v", w, err)
	}
}
