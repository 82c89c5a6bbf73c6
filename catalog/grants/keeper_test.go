package grants

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
)

// says fails unless err is of the kind and has the text.
func says(t *testing.T, err error, kind errkind.Kind, text string) {
	t.Helper()
	if !errkind.Is(err, kind) || !strings.Contains(errkind.Text(err), text) {
		t.Errorf("%v (%v); want %v: %s", err, errkind.Of(err), kind, text)
	}
}

func TestBootstrap(t *testing.T) {
	w := newWorld(t, nil)
	_, err := w.keeper.Bootstrap(t.Context(), "short")
	says(t, err, errkind.Invalid, "must be a UUID")
	tok, err := w.keeper.Bootstrap(t.Context(), "")
	w.must(err)
	if !w.grant(tok.SecretID).Allow(acl.ACL, "", acl.Write) || tok.Policies[0].Name != acl.GlobalManagementName ||
		tok.CreateIndex == 0 {
		t.Errorf("%+v", tok)
	}
	index := w.store.State().Record(catalog.RecordACLBootstrap, bootstrapKey).ModifyIndex
	_, err = w.keeper.Bootstrap(t.Context(), "")
	says(t, err, errkind.Denied, "Permission denied: ACL bootstrap no longer allowed (reset index: ")
	w.reset = index + 1
	_, err = w.keeper.Bootstrap(t.Context(), "")
	says(t, err, errkind.Denied, "no longer allowed")
	w.reset = index
	again, err := w.keeper.Bootstrap(t.Context(), "22222222-2222-2222-2222-222222222222")
	w.must(err)
	if again.SecretID != "22222222-2222-2222-2222-222222222222" || w.reset != 0 {
		t.Error("the reset file counts once", w.reset)
	}
}

func TestTokensAreChecked(t *testing.T) {
	w := newWorld(t, nil)
	past := w.clock.Now().Add(-time.Hour)
	existing := w.token(acl.Token{})
	for name, c := range map[string]struct {
		in   TokenRequest
		says string
	}{
		"accessor form":   {TokenRequest{Token: acl.Token{AccessorID: "x"}}, "AccessorID is not a valid UUID"},
		"secret form":     {TokenRequest{Token: acl.Token{SecretID: "x"}}, "SecretID is not a valid UUID"},
		"accessor in use": {TokenRequest{Token: acl.Token{AccessorID: existing.AccessorID}}, "already in use"},
		"secret in use":   {TokenRequest{Token: acl.Token{SecretID: existing.SecretID}}, "already in use"},
		"no such policy": {TokenRequest{Token: acl.Token{Grants: acl.Grants{Policies: links("nope")}}},
			`No such ACL policy with name "nope"`},
		"no such role": {TokenRequest{Token: acl.Token{Roles: links("nope")}}, `No such ACL role with name "nope"`},
		"bad service": {TokenRequest{
			Token: acl.Token{Grants: acl.Grants{ServiceIdentities: []acl.ServiceIdentity{{ServiceName: `A"`}}}},
		}, "invalid name"},
		"no datacenter": {TokenRequest{
			Token: acl.Token{Grants: acl.Grants{NodeIdentities: []acl.NodeIdentity{{NodeName: "n"}}}},
		}, "datacenter"},
		"bad template": {TokenRequest{
			Token: acl.Token{Grants: acl.Grants{TemplatedPolicies: []acl.TemplatedPolicy{{TemplateName: "builtin/x"}}}},
		}, "no such ACL templated policy"},
		"both ends":  {TokenRequest{Token: acl.Token{ExpirationTime: &past}, TTL: time.Hour}, "cannot both be set"},
		"short life": {TokenRequest{TTL: time.Second}, "cannot be less than 1m0s"},
		"long life":  {TokenRequest{TTL: 25 * time.Hour}, "cannot be more than 24h0m0s"},
		"past":       {TokenRequest{Token: acl.Token{ExpirationTime: &past}}, "cannot be less than"},
	} {
		_, err := w.keeper.CreateToken(t.Context(), c.in)
		if !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	up := func(change func(*TokenRequest)) error {
		in := TokenRequest{Token: *existing}
		change(&in)
		_, err := w.keeper.UpdateToken(t.Context(), in)
		return err
	}
	says(t, up(func(r *TokenRequest) { r.SecretID = uuid.NewString() }), errkind.Invalid, "SecretID")
	says(t, up(func(r *TokenRequest) { r.Local = true }), errkind.Invalid, "local mode")
	says(t, up(func(r *TokenRequest) { r.AuthMethod = "m" }), errkind.Invalid, "AuthMethod")
	says(t, up(func(r *TokenRequest) { r.TTL = time.Hour }), errkind.Invalid, "expiration time")
	says(t, up(func(r *TokenRequest) { r.AccessorID = uuid.NewString() }), errkind.NotFound, "Cannot find token")
	w.must(up(func(r *TokenRequest) { r.Description = "new" }))
	if got := TokenByAccessor(w.store.State(), existing.AccessorID); got.Description != "new" ||
		string(got.Hash) == string(existing.Hash) || got.ModifyIndex == existing.ModifyIndex {
		t.Errorf("%+v", got)
	}
	says(t, w.keeper.DeleteToken(t.Context(), acl.AnonymousAccessor), errkind.Invalid, "anonymous token")
	says(t, w.keeper.DeleteToken(t.Context(), uuid.NewString()), errkind.NotFound, "Supplied token does not exist")
	clone, err := w.keeper.CloneToken(t.Context(), existing.AccessorID, "")
	if err != nil || clone.SecretID == existing.SecretID || clone.Description != "new" {
		t.Error(clone, err)
	}
}

func TestPoliciesAndRolesAreChecked(t *testing.T) {
	w := newWorld(t, nil)
	w.policy("taken", "")
	for name, c := range map[string]struct {
		in   acl.Policy
		kind errkind.Kind
		says string
	}{
		"no name":  {acl.Policy{}, errkind.Invalid, "no Name is set"},
		"bad name": {acl.Policy{Name: "a b"}, errkind.Invalid, "Only alphanumeric characters"},
		"reserved": {acl.Policy{Name: "builtin/mine"}, errkind.Invalid, "reserved"},
		"taken":    {acl.Policy{Name: "taken"}, errkind.Invalid, "already exists"},
		"rules":    {acl.Policy{Name: "x", Rules: "nope"}, errkind.Invalid, "Invalid Policy: "},
		"unknown":  {acl.Policy{ID: uuid.NewString(), Name: "x"}, errkind.NotFound, "cannot find policy"},
		"builtin": {acl.Policy{ID: acl.GlobalManagementID, Name: acl.GlobalManagementName, Rules: ""}, errkind.Invalid,
			"not permitted"},
	} {
		_, err := w.keeper.SetPolicy(t.Context(), c.in)
		if !errkind.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	says(t, w.keeper.DeletePolicy(t.Context(), acl.GlobalManagementID), errkind.Invalid, "not permitted")
	says(t, w.keeper.DeletePolicy(t.Context(), uuid.NewString()), errkind.NotFound, "Cannot find policy to delete")
	role, err := w.keeper.SetRole(t.Context(), acl.Role{Name: "r", Grants: acl.Grants{Policies: links("taken")}})
	w.must(err)
	if role.Policies[0].Name != "taken" {
		t.Error(role.Policies)
	}
	w.must(w.keeper.DeletePolicy(t.Context(), role.Policies[0].ID))
	st := w.store.State()
	left := RoleByID(st, role.ID)
	if ShowLinks(st, &left.Grants); len(left.Policies) != 0 {
		t.Error("a link to what is gone is shown")
	}
	says(t, w.keeper.DeleteRole(t.Context(), uuid.NewString()), errkind.NotFound, "Cannot find role to delete")
}

func TestLogins(t *testing.T) {
	w := newWorld(t, nil)
	_, err := w.keeper.SetAuthMethod(t.Context(),
		acl.AuthMethod{Name: "jwt", Type: "jwt", MaxTokenTTL: acl.Duration(5 * time.Minute)}, true)
	w.must(err)
	w.policy("team-blue", `key_prefix "blue/" { policy = "write" }`)
	for _, b := range []acl.BindingRule{
		{BindType: acl.BindService, BindName: "svc-${value.team}", Selector: `"all" in list.groups`},
		{BindType: acl.BindPolicy, BindName: "team-${value.team}"},
		{BindType: acl.BindRole, BindName: "absent"},
		{BindType: acl.BindNode, BindName: "never", Selector: `value.team == "red"`},
	} {
		b.AuthMethod = "jwt"
		_, err := w.keeper.SetBindingRule(t.Context(), b)
		w.must(err)
	}
	tok, err := w.keeper.Login(t.Context(), "jwt", "good:blue", map[string]string{"pod": "p"})
	w.must(err)
	g := w.grant(tok.SecretID)
	if !g.Allow(acl.Service, "svc-blue", acl.Write) || !g.Allow(acl.Key, "blue/x", acl.Write) ||
		g.Allow(acl.Node, "never", acl.Write) ||
		!tok.Local || tok.ExpirationTime == nil || tok.Description != `token created via login: {"pod":"p"}` {
		t.Errorf("%+v", tok)
	}
	if _, err := w.keeper.BeginLogin(t.Context(), "jwt", &Visit{}); err != nil {
		t.Error(err)
	}
	browsed, err := w.keeper.EndLogin(t.Context(), "jwt", &Back{State: "s", Code: "good:blue"})
	if w.must(err); browsed.Description != `token created via login: {"begun":"here"}` || browsed.AuthMethod != "jwt" {
		t.Errorf("%+v", browsed)
	}
	_, err = w.keeper.EndLogin(t.Context(), "jwt", &Back{State: "s", Code: "bad"})
	if !errkind.Is(err, errkind.Denied) {
		t.Errorf("a code that is not good: %v", err)
	}
	_, err = w.keeper.Login(t.Context(), "jwt", "bad", nil)
	says(t, err, errkind.Denied, "Permission denied")
	_, err = w.keeper.Login(t.Context(), "nope", "good:blue", nil)
	says(t, err, errkind.Denied, "ACL not found")
	odd, err := w.keeper.Login(t.Context(), "jwt", `good:x" { policy = "write" }`, nil)
	says(t, err, errkind.Denied, "Permission denied") // no name of an identity or policy can be made of that
	if odd != nil {
		t.Error(odd)
	}
	says(t, w.keeper.Logout(t.Context(), w.token(acl.Token{}).SecretID), errkind.Denied, "not made by a login")
	w.must(w.keeper.Logout(t.Context(), tok.SecretID))
	w.refused(tok.SecretID)
	tok, err = w.keeper.Login(t.Context(), "jwt", "good:blue", nil)
	w.must(err)
	w.must(w.keeper.DeleteAuthMethod(t.Context(), "jwt"))
	w.refused(tok.SecretID)
	if len(BindingRules(w.store.State())) != 0 {
		t.Error("the method's rules are left")
	}
}

func TestBindingRulesAreChecked(t *testing.T) {
	w := newWorld(t, nil)
	_, err := w.keeper.SetAuthMethod(t.Context(), acl.AuthMethod{Name: "jwt", Type: "jwt"}, true)
	w.must(err)
	for name, b := range map[string]acl.BindingRule{
		"no method":        {BindType: acl.BindService, BindName: "x"},
		"no type":          {AuthMethod: "jwt", BindName: "x"},
		"bad type":         {AuthMethod: "jwt", BindType: "all", BindName: "x"},
		"no name":          {AuthMethod: "jwt", BindType: acl.BindService},
		"unknown variable": {AuthMethod: "jwt", BindType: acl.BindService, BindName: "${value.nope}"},
		"endless variable": {AuthMethod: "jwt", BindType: acl.BindService, BindName: "${value.team"},
		"bad selector":     {AuthMethod: "jwt", BindType: acl.BindService, BindName: "x", Selector: "value.team ="},
		"unknown selector": {AuthMethod: "jwt", BindType: acl.BindService, BindName: "x", Selector: `value.nope == "x"`},
		"vars": {AuthMethod: "jwt", BindType: acl.BindService, BindName: "x",
			BindVars: &acl.TemplateVariables{Name: "x"}},
	} {
		if _, err := w.keeper.SetBindingRule(t.Context(), b); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, typ := range []string{"", "aws-iam"} {
		if _, err := w.keeper.SetAuthMethod(t.Context(), acl.AuthMethod{Name: "x", Type: typ}, true); !errkind.Is(err,
			errkind.Invalid) {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

// TestOneDefaultMethod: one auth method at most is the default one, also when two are to become it at the same time; a
// change that does not speak of it leaves it.
func TestOneDefaultMethod(t *testing.T) {
	w, yes, no := newWorld(t, nil), true, false
	set := func(name string, standard *bool, create bool) error {
		_, err := w.keeper.SetAuthMethod(t.Context(), acl.AuthMethod{Name: name, Type: "jwt", Default: standard}, create)
		return err
	}
	is := func(name string) {
		t.Helper()
		found := ""
		if m := DefaultAuthMethod(w.store.State()); m != nil {
			found = m.Name
		}
		if found != name {
			t.Errorf("the default method is %q, want %q", found, name)
		}
	}
	w.must(set("a", &no, true))
	w.must(set("b", nil, true))
	is("")
	w.must(set("a", &yes, false))
	w.must(set("a", nil, false)) // as clients of Consul's API change it
	is("a")
	says(t, set("b", &yes, false), errkind.Invalid, `"a" is the default auth method already`)
	says(t, set("c", &yes, true), errkind.Invalid, `"a" is the default auth method already`)
	w.must(set("a", &no, false))
	is("")
	w.store.before = func() { w.must(set("c", &yes, true)) }
	says(t, set("b", &yes, false), errkind.Invalid, `"c" is the default auth method already`)
	is("c")
	w.must(w.keeper.DeleteAuthMethod(t.Context(), "c"))
	w.must(set("b", &yes, false))
	is("b")
}

// TestChangesThatMeet makes another writer come first: nothing is overwritten that was not seen.
func TestChangesThatMeet(t *testing.T) {
	w := newWorld(t, nil)
	w.policy("p", "")
	tok := w.token(acl.Token{Description: "old"})
	w.store.before = func() {
		_, err := w.keeper.UpdateToken(t.Context(),
			TokenRequest{Token: acl.Token{AccessorID: tok.AccessorID, Description: "between",
				Grants: acl.Grants{Policies: links("p")}}})
		w.must(err)
	}
	_, err := w.keeper.UpdateToken(t.Context(),
		TokenRequest{Token: acl.Token{AccessorID: tok.AccessorID, Description: "last"}})
	w.must(err)
	if got := TokenByAccessor(w.store.State(), tok.AccessorID); got.Description != "last" || len(got.Policies) != 0 {
		t.Errorf("%+v", got)
	}
	w.store.before = func() { w.policy("same", "") }
	_, err = w.keeper.SetPolicy(t.Context(), acl.Policy{Name: "same"})
	if err == nil {
		t.Error("two policies of one name")
	}
}
