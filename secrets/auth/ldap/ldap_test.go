//go:build unix

package ldap

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/slapdtest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

const people = `dn: dc=example,dc=com
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: people

dn: uid=ann,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: ann
cn: Ann
sn: A
userPassword: ann-word

dn: uid=bob,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: B
userPassword: bob-word

dn: cn=reader,dc=example,dc=com
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: reader-word

dn: ou=groups,dc=example,dc=com
objectClass: organizationalUnit
ou: groups

dn: cn=Admins,ou=groups,dc=example,dc=com
objectClass: groupOfNames
cn: Admins
member: uid=ann,ou=people,dc=example,dc=com
`

// start starts a real slapd, and gives its address and the certificate that vouches for it.
func start(t *testing.T) (addr, ca string) {
	t.Helper()
	return slapdtest.Start(t, slapdtest.Directory{Entries: people,
		Access: `access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=reader,dc=example,dc=com" read by self read by * none
`})
}

type body = map[string]any

func newDesk(t *testing.T) *enginetest.Desk {
	t.Helper()
	return enginetest.New(t, New(&auth.Lockout{}, auth.LockoutRules{After: 3, For: time.Minute, Reset: time.Minute}, "m"),
		"auth/ldap/")
}

func login(t *testing.T, d *enginetest.Desk, name, password string) *secrets.Auth {
	t.Helper()
	resp, err := d.Ask(secrets.Update, "login/"+name, body{"password": password})
	if err != nil || resp.Auth == nil {
		t.Fatalf("%s: %v", name, err)
	}
	return resp.Auth
}

// TestLogin goes by an account of the mount's own that may read, and without one.
func TestLogin(t *testing.T) {
	addr, _ := start(t)
	d := newDesk(t)
	d.Refused(errkind.Invalid, "not configured", secrets.Update, "login/ann", body{"password": "ann-word"})
	d.OK(secrets.Update, "config", body{"url": "ldap://127.0.0.1:1," + addr, "userdn": "ou=people,dc=example,dc=com",
		"userattr": "uid", "groupdn": "ou=groups,dc=example,dc=com", "binddn": "cn=reader,dc=example,dc=com",
		"bindpass": "reader-word", "token_policies": "all", "token_ttl": "1h"})
	if got := fmt.Sprint(d.OK(secrets.Read, "config", nil)); strings.Contains(got, "reader-word") {
		t.Errorf("the password is shown: %s", got)
	}
	d.OK(secrets.Update, "groups/admins", body{"policies": "root-like"})
	d.OK(secrets.Update, "groups/own", body{"policies": "own"})
	d.OK(secrets.Update, "users/bob", body{"policies": "bobs", "groups": "own"})
	ann := login(t, d, "Ann", "ann-word")
	if !slices.Equal(ann.Policies, []string{"all", "root-like"}) || !slices.Equal(ann.Groups, []string{"Admins"}) ||
		ann.Alias != "ann" || ann.DisplayName != "ldap-ann" {
		t.Errorf("%+v", ann)
	}
	if bob := login(t, d, "bob", "bob-word"); !slices.Equal(bob.Policies, []string{"all", "bobs", "own"}) {
		t.Errorf("%+v", bob)
	}

	// A renewal looks again: other policies, and a user who is gone.
	of := engine.Login{Data: ann.Login, Policies: []string{"all", "default", "root-like"}}
	renewer := d.Engine.(engine.Renewer)
	if terms, err := renewer.Renewable(t.Context(), d.Store, nil, of); err != nil || terms.TTL != time.Hour {
		t.Errorf("%v, %v", terms, err)
	}
	gone, err := json.Marshal(kept{User: "carl"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := renewer.Renewable(t.Context(), d.Store, nil, engine.Login{Data: gone}); err == nil {
		t.Error("who is gone renews")
	}
	d.OK(secrets.Update, "groups/admins", body{"policies": "less"})
	if _, err := renewer.Renewable(t.Context(), d.Store, nil, of); err == nil {
		t.Error("other policies, and it is renewed")
	}

	// Without an account: the DN is made of the name; what a user may not read are no groups.
	d.OK(secrets.Update, "config", body{"binddn": "", "bindpass": ""})
	if ann := login(t, d, "ann", "ann-word"); !slices.Equal(ann.Policies, []string{"all"}) {
		t.Errorf("%+v", ann)
	}
}

// TestRefuses: wrong passwords, names that are filters or DNs, and configurations that cannot be.
func TestRefuses(t *testing.T) {
	addr, _ := start(t)
	d := newDesk(t)
	base := body{"url": addr, "userdn": "ou=people,dc=example,dc=com", "userattr": "uid",
		"groupdn": "ou=groups,dc=example,dc=com", "binddn": "cn=reader,dc=example,dc=com", "bindpass": "reader-word"}
	d.OK(secrets.Update, "config", base)
	d.Refused(errkind.Invalid, "zero length", secrets.Update, "login/ann", body{"password": ""})
	for _, name := range []string{"*", "a*", "ann)(uid=*", "carl", "ann,ou=people", "\\2a"} {
		d.Refused(errkind.Invalid, "failed to bind", secrets.Update, "login/"+name, body{"password": "ann-word"})
	}
	for range 3 {
		d.Refused(errkind.Invalid, "failed to bind", secrets.Update, "login/ann", body{"password": "wrong"})
	}
	d.Refused(errkind.Denied, "", secrets.Update, "login/ann", body{"password": "ann-word"})
	d.Wait(2 * time.Minute)
	login(t, d, "ann", "ann-word")

	for field, value := range map[string]any{"url": "http://x", "userattr": "a=b", "userfilter": "((",
		"tls_min_version": "tls10", "groupfilter": "(member={{.Whoever}})",
		"certificate": "none", "client_tls_key": "none", "request_timeout": "1h", "deny_null_bind": false,
		"use_token_groups": true, "token_ttl": "-1s"} {
		d.Refused(errkind.Invalid, field, secrets.Update, "config", body{field: value})
	}
	// Who may write the configuration need not know the password, and does not get it.
	for field, value := range map[string]any{"url": "ldap://evil.example", "insecure_tls": true, "starttls": true} {
		d.Refused(errkind.Invalid, "bindpass", secrets.Update, "config", body{field: value})
	}
	d.OK(secrets.Update, "config", body{"bindpass": "wrong"})
	_, err := d.Ask(secrets.Update, "login/ann", body{"password": "ann-word"})
	if !errkind.Is(err, errkind.Internal) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("%v", err)
	}
	d.OK(secrets.Update, "config", body{"url": "ldap://127.0.0.1:1", "bindpass": "x"})
	d.Refused(errkind.Unavailable, "cannot be reached", secrets.Update, "login/ann", body{"password": "ann-word"})
}

// TestDirectoryIsTrusted: with StartTLS, passwords go to nobody whom the configuration does not know.
func TestDirectoryIsTrusted(t *testing.T) {
	addr, ca := start(t)
	d := newDesk(t)
	d.OK(secrets.Update, "config", body{"url": addr, "userdn": "ou=people,dc=example,dc=com", "userattr": "uid",
		"starttls": true})
	d.Refused(errkind.Unavailable, "StartTLS", secrets.Update, "login/ann", body{"password": "ann-word"})
	d.OK(secrets.Update, "config", body{"certificate": ca})
	login(t, d, "ann", "ann-word")
}

func TestGroupName(t *testing.T) {
	for value, want := range map[string]string{"admins": "admins", "cn=Ops,ou=groups,dc=example": "Ops",
		"ou=x,dc=y": "ou=x,dc=y", "a\\,b": "a\\,b", "": ""} {
		if got := groupName(value); got != want {
			t.Errorf("%q: %q", value, got)
		}
	}
}

// FuzzFilter: no name changes the form of a filter.
func FuzzFilter(f *testing.F) {
	f.Add("ann", "uid=ann,dc=x")
	f.Add("*)(uid=*", "\\2a")
	f.Fuzz(func(t *testing.T, name, dn string) {
		c := fresh()
		for _, filter := range []string{userPlain, groupPlain} {
			filled := c.filled(filter, name, dn)
			if strings.Contains(name+dn, "{{") {
				continue
			}
			if err := checkFilter(filled); err != nil {
				t.Errorf("%q, %q: %v", name, dn, err)
			}
			if got, want := strings.Count(filled, "("), strings.Count(filter, "("); got != want {
				t.Errorf("%q, %q: %s", name, dn, filled)
			}
		}
		_ = groupName(name)
	})
}
