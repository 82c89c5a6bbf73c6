package keeper

import (
	"fmt"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// Lists of every engine are cut by after and limit, whether or not the engine knows of them.
func TestListsByPages(t *testing.T) {
	h := newHouse(t)
	mount := h.users("ann", "bob", "cid")
	h.ok(secrets.Update, "sys/mounts/pki", `{"type":"pki"}`)
	h.ok(secrets.Update, "sys/mounts/transit", `{"type":"transit"}`)
	for _, name := range []string{"ann", "bob", "cid"} {
		h.ok(secrets.Update, "secret/"+name, `{"x":"1"}`)
		h.ok(secrets.Update, "pki/roles/"+name, `{"allow_any_name":true}`)
		h.ok(secrets.Update, "transit/keys/"+name, `{}`)
		h.ok(secrets.Update, "identity/entity", `{"name":"`+name+`"}`)
		h.ok(secrets.Update, "sys/policies/acl/"+name, `{"policy":"path \"a\" { capabilities = [\"read\"] }"}`)
	}
	for _, path := range []string{"secret/", "auth/userpass/users/", "pki/roles/", "transit/keys/",
		"identity/entity/name/", "sys/policies/acl/"} {
		list := func(after, limit string) (names []string) {
			t.Helper()
			r, err := h.Handle(t.Context(), &secrets.Request{Op: secrets.List, Path: path, Caller: secrets.Caller{Token: h.root},
				Query: secrets.FieldsOf(map[string]any{"after": after, "limit": limit})})
			if errkind.Is(err, errkind.NotFound) {
				return nil
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			for _, name := range field(t, r, "keys").([]any) {
				names = append(names, name.(string))
			}
			return names
		}
		whole, paged := list("", "0"), []string(nil)
		for {
			after := ""
			if len(paged) > 0 {
				after = paged[len(paged)-1]
			}
			next := list(after, "1")
			if len(next) == 0 {
				break
			}
			if paged = append(paged, next...); len(next) > 1 || len(paged) > len(whole) {
				t.Fatalf("%s: after %q: %v", path, after, next)
			}
		}
		if fmt.Sprint(paged) != fmt.Sprint(whole) || len(whole) < 3 {
			t.Errorf("%s: by pages %v, whole %v", path, paged, whole)
		}
		if _, err := h.Handle(t.Context(), &secrets.Request{Op: secrets.List, Path: path,
			Caller: secrets.Caller{Token: h.root},
			Query:  secrets.FieldsOf(map[string]any{"limit": "x"})}); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: limit=x: %v", path, err)
		}
	}
	r, err := h.Handle(t.Context(), &secrets.Request{Op: secrets.List, Path: "identity/entity/id/",
		Caller: secrets.Caller{Token: h.root},
		Query:  secrets.FieldsOf(map[string]any{"limit": "2"})})
	if err != nil || len(field(t, r, "keys").([]any)) != 2 || len(field(t, r, "key_info").(map[string]any)) != 2 {
		t.Errorf("what is told of the names is not cut with them: %s, %v (of %s)", r.Data, err, mount)
	}
}
