package policies

import (
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/tables/tablestest"
	"corbel.dev/corbel/secrets/token"
)

// A policy that parses holds for tokens at once; one that does not, and those of the plane's own, change nothing.
func TestPoliciesChange(t *testing.T) {
	d := tablestest.New(t)
	p := &Policies{Gate: d.Gate, Records: d.Store, Rights: d.Rights}
	write := func(name, text string) error {
		_, err := d.Ask(t.Context(), p.Rows(), secrets.Update, "policies/acl/"+name, `{"policy":"`+text+`"}`)
		return err
	}
	id, _ := d.Token(t, &token.Token{Policies: []string{"app"}})
	allowed := func() bool {
		h, err := d.Rights.Known(t.Context(), d.Gate.Load(), id, d.Time, secrets.Request{}.Remote)
		if err != nil {
			t.Fatal(err)
		}
		return h.ACL.Allow(&policy.Request{Path: "a", Need: policy.Read}).Allowed
	}
	for _, step := range []struct {
		name, text string
		ok, allows bool
	}{
		{"app", `path \"a\" { capabilities = [\"read\"] }`, true, true},
		{"app", `path \"a\" { capabilities`, false, true},
		{"root", `path \"a\" { }`, false, true},
		{"response-wrapping", `path \"a\" { }`, false, true},
		{"APP", `path \"a\" { capabilities = [\"list\"] }`, true, false},
	} {
		err := write(step.name, step.text)
		if (err == nil) != step.ok || allowed() != step.allows {
			t.Errorf("%s %s: %v, allowed %t", step.name, step.text, err, allowed())
		}
	}
	if _, err := d.Ask(t.Context(), p.Rows(), secrets.Delete, "policies/acl/default", ""); !errkind.Is(err,
		errkind.Invalid) {
		t.Errorf("default was deleted: %v", err)
	}
	if _, err := p.Password(t.Context(), "", "none"); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a password by no policy: %v", err)
	}
}
