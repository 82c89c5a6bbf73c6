//go:build unix

package ldapsecrets

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	client "github.com/go-ldap/ldap/v3"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/slapdtest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/elsewhere"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

const entries = `dn: dc=example,dc=com
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: cn=admin,dc=example,dc=com
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: admin
userPassword: root-word

dn: ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: people

dn: uid=ann,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: ann
cn: Ann
sn: A
userPassword: ann-word

dn: uid=svc1,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: svc1
cn: One
sn: S
userPassword: x

dn: uid=svc2,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: svc2
cn: Two
sn: S
userPassword: x

dn: uid=twin,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: twin
cn: Twin
sn: T

dn: cn=Twin,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: twin
cn: Twin
sn: T
`

const people = "ou=people,dc=example,dc=com"

type body = map[string]any

func ttls() (standard, longest time.Duration) { return time.Hour, 24 * time.Hour }

// newDesk is a desk over a real server, configured.
func newDesk(t *testing.T, d slapdtest.Directory) (desk *enginetest.Desk, addr string) {
	t.Helper()
	if d.Entries == "" {
		d.Entries = entries
	}
	d.Access += "access to attrs=userPassword by self write by anonymous auth by * none\naccess to * by * read\n"
	addr, ca := slapdtest.Start(t, d)
	desk = enginetest.New(t, New(Config{TTLs: ttls}), "ldap/")
	desk.Refused(errkind.Invalid, "write the mount's config first", secrets.Update, "rotate-root", nil)
	desk.OK(secrets.Update, "config", body{"url": addr, "binddn": slapdtest.Root, "bindpass": slapdtest.RootPass,
		"userdn": people, "userattr": "uid", "starttls": true, "certificate": ca, "request_timeout": "10s"})
	return desk, addr
}

// bind tries a password of an account.
func bind(t *testing.T, addr, dn, password string) error {
	t.Helper()
	conn, err := client.DialURL(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.Bind(dn, password)
}

func works(t *testing.T, addr, dn, password string) {
	t.Helper()
	if err := bind(t, addr, dn, password); err != nil {
		t.Errorf("%s: %v", dn, err)
	}
}

func fails(t *testing.T, addr, dn, password string) {
	t.Helper()
	if err := bind(t, addr, dn, password); !client.IsErrorWithCode(err, client.LDAPResultInvalidCredentials) {
		t.Errorf("%s with a password that ended: %v", dn, err)
	}
}

// read gives the values of an entry's attribute.
func read(t *testing.T, addr, dn, attr string) []string {
	t.Helper()
	conn, err := client.DialURL(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Bind(slapdtest.Root, slapdtest.RootPass); err != nil {
		t.Fatal(err)
	}
	got, err := conn.Search(&client.SearchRequest{BaseDN: dn, Scope: client.ScopeBaseObject,
		Filter: "(objectClass=*)", Attributes: []string{attr}})
	if client.IsErrorWithCode(err, client.LDAPResultNoSuchObject) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return got.Entries[0].GetAttributeValues(attr)
}

// crash asks as the keeper does, but for what follows the first commit.
func crash(t *testing.T, d *enginetest.Desk, op secrets.Operation, path string) *secrets.Response {
	t.Helper()
	resp, err := d.Engine.Handle(t.Context(), d.Store, &secrets.Request{Op: op, Path: d.Mount + path, Rest: path,
		Now: d.Now()})
	if err == nil {
		err = d.Store.Commit(t.Context(), 0, resp.Ops)
	}
	if err != nil || resp.Then == nil {
		t.Fatalf("%s: %v", path, err)
	}
	return resp
}

// TestStaticRoles: a password that the directory takes, which changes when asked and by the clock.
func TestStaticRoles(t *testing.T) {
	d, addr := newDesk(t, slapdtest.Directory{})
	ann := "uid=ann," + people
	d.OK(secrets.Update, "static-role/team/ann", body{"username": "ann", "rotation_period": "24h"})
	one := d.OK(secrets.Read, "static-cred/team/ann", nil)
	if one.Text("username") != "ann" || len(one.Text("password")) != usual || one["ttl"] != 86400.0 ||
		one["rotation_period"] != 86400.0 || one.Text("last_vault_rotation") == "" {
		t.Errorf("%v", one)
	}
	works(t, addr, ann, one.Text("password"))
	fails(t, addr, ann, "ann-word")
	if stored := read(t, addr, ann, "userPassword"); !strings.HasPrefix(strings.Join(stored, ""), "{SSHA}") {
		t.Errorf("the server keeps %q", stored)
	}
	d.OK(secrets.Update, "rotate-role/team/ann", nil)
	two := d.OK(secrets.Read, "static-cred/team/ann", nil)
	if two.Text("last_password") != one.Text("password") {
		t.Errorf("%v", two)
	}
	works(t, addr, ann, two.Text("password"))
	fails(t, addr, ann, one.Text("password"))
	d.Tend()
	works(t, addr, ann, two.Text("password"))
	d.Wait(25 * time.Hour)
	d.Tend()
	fails(t, addr, ann, two.Text("password"))
	works(t, addr, ann, d.OK(secrets.Read, "static-cred/team/ann", nil).Text("password"))

	if got := d.OK(secrets.List, "static-role/", nil); fmt.Sprint(got["keys"]) != "[team/]" {
		t.Errorf("%v", got)
	}
	if got := d.OK(secrets.List, "static-role/team/", nil); fmt.Sprint(got["keys"]) != "[ann]" {
		t.Errorf("%v", got)
	}
	d.OK(secrets.Update, "static-role/team/ann", body{"rotation_period": "48h"})
	if got := d.OK(secrets.Read, "static-role/team/ann", nil); got["rotation_period"] != 172800.0 ||
		got["password"] != nil {
		t.Errorf("%v", got)
	}
	// A role by its DN, whose password stays as it is until it is changed.
	d.OK(secrets.Update, "static-role/svc", body{"username": "svc1", "dn": "uid=svc1," + people,
		"rotation_period": "1h", "skip_import_rotation": true})
	if got := d.OK(secrets.Read, "static-cred/svc", nil); got.Text("password") != "" {
		t.Errorf("%v", got)
	}
	works(t, addr, "uid=svc1,"+people, "x")
	d.Wait(61 * time.Minute)
	d.Tend()
	works(t, addr, "uid=svc1,"+people, d.OK(secrets.Read, "static-cred/svc", nil).Text("password"))

	for field, b := range map[string]body{"username": {"rotation_period": "1h"}, "no user": {"username": "none",
		"rotation_period": "1h"}, "several": {"username": "twin", "rotation_period": "1h"}, "rotation_period": {
		"username": "svc2", "rotation_period": "1s"}, "managed by static-role/team/ann": {"username": "ANN",
		"rotation_period": "1h"}, "no entry": {"username": "svc2", "dn": "uid=none," + people,
		"rotation_period": "1h"}, "is no DN": {"username": "svc2", "dn": "svc2", "rotation_period": "1h"}} {
		d.Refused(errkind.Invalid, field, secrets.Update, "static-role/bad", b)
	}
	d.Refused(errkind.Invalid, "cannot be changed", secrets.Update, "static-role/svc", body{"username": "svc2"})
	d.Refused(errkind.Invalid, "cannot be changed", secrets.Update, "static-role/svc", body{"dn": "uid=svc2," + people})
	d.Refused(errkind.Invalid, "unknown role", secrets.Read, "static-cred/none", nil)
	d.Refused(errkind.Invalid, "doesn't exist", secrets.Update, "rotate-role/none", nil)
	d.OK(secrets.Delete, "static-role/team/ann", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "static-role/team/ann", nil)
	d.OK(secrets.Update, "static-role/other", body{"username": "ann", "rotation_period": "1h"})
	d.Wait(72 * time.Hour)
	d.Tend() // what is left of the role that went is no work
}

// TestCrashOfARotation: before and after the directory took the password, none is lost.
func TestCrashOfARotation(t *testing.T) {
	d, addr := newDesk(t, slapdtest.Directory{})
	ann := "uid=ann," + people
	d.OK(secrets.Update, "static-role/ann", body{"username": "ann", "rotation_period": "24h"})
	for _, reached := range []bool{false, true} {
		before := d.OK(secrets.Read, "static-cred/ann", nil).Text("password")
		resp := crash(t, d, secrets.Update, "rotate-role/ann")
		if reached {
			if _, err := d.Engine.(engine.Stepper).Step(t.Context(), resp.Then); err != nil { // and no commit
				t.Fatal(err)
			}
		}
		d.Engine = New(Config{TTLs: ttls}) // after the restart
		d.Tend()
		if got := d.OK(secrets.Read, "static-cred/ann", nil).Text("password"); got != before {
			t.Error("a request under way was taken for one of a crash")
		}
		pending, err := elsewhere.Find[static](t.Context(), d.Store, "static-role/ann")
		if err != nil || pending.Pending == "" {
			t.Fatalf("%+v, %v", pending, err)
		}
		d.Wait(elsewhere.Wait + time.Second)
		d.Tend()
		got := d.OK(secrets.Read, "static-cred/ann", nil)
		works(t, addr, ann, got.Text("password"))
		if reached != (got.Text("password") == pending.Pending) {
			t.Errorf("reached %t: %v", reached, got)
		}
	}
}

// TestRotateRoot: nobody knows the new password, and a crash does not lock the mount out.
func TestRotateRoot(t *testing.T) {
	d, addr := newDesk(t, slapdtest.Directory{})
	own := func() string {
		cfg, err := elsewhere.Find[config](t.Context(), d.Store, configKey)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Pending != "" {
			t.Errorf("%q is pending", cfg.Pending)
		}
		return cfg.BindPass
	}
	d.OK(secrets.Update, "rotate-root", nil)
	fails(t, addr, slapdtest.Root, slapdtest.RootPass)
	works(t, addr, slapdtest.Root, own())
	for _, reached := range []bool{false, true} {
		resp := crash(t, d, secrets.Update, "rotate-root")
		if reached {
			if _, err := d.Engine.(engine.Stepper).Step(t.Context(), resp.Then); err != nil {
				t.Fatal(err)
			}
		}
		d.Engine = New(Config{TTLs: ttls})
		d.OK(secrets.Update, "static-role/ann", body{"username": "ann", "rotation_period": "24h"})
		d.OK(secrets.Delete, "static-role/ann", nil)
		d.OK(secrets.Update, "rotate-root", nil)
		works(t, addr, slapdtest.Root, own())
	}
	if got := fmt.Sprint(d.OK(secrets.Read, "config", nil)); strings.Contains(got, own()) {
		t.Errorf("the password is shown: %s", got)
	}
}

const creation = `dn: uid={{.Username}},ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: {{.Username}}
cn: {{.Username}}
sn:: {{ printf "\"%s\"" .Password | utf16le | base64 }}
userPassword: {{.Password}}

dn: uid=ann,ou=people,dc=example,dc=com
changetype: modify
add: description
description: {{.Username}}
-
`

const deletion = `dn: uid={{.Username}},ou=people,dc=example,dc=com
changetype: delete

dn: uid=ann,ou=people,dc=example,dc=com
changetype: modify
delete: description
description: {{.Username}}
`

// TestDynamicRoles: entries that live as long as their lease, and leave nothing behind.
func TestDynamicRoles(t *testing.T) {
	d, addr := newDesk(t, slapdtest.Directory{})
	d.OK(secrets.Update, "role/app", body{"creation_ldif": base64.StdEncoding.EncodeToString([]byte(creation)),
		"deletion_ldif": deletion, "default_ttl": "30m", "max_ttl": "2h"})
	if got := d.OK(secrets.Read, "role/app", nil); got.Text("creation_ldif") != creation || got["max_ttl"] != 7200.0 {
		t.Errorf("%v", got)
	}
	resp, err := d.Ask(secrets.Read, "creds/app", nil)
	if err != nil || resp.Lease == nil || resp.Lease.TTL != 30*time.Minute || resp.Lease.MaxTTL != 2*time.Hour {
		t.Fatalf("%+v, %v", resp, err)
	}
	var got struct {
		Username, Password string
		Names              []string `json:"distinguished_names"`
	}
	if err := json.Unmarshal(resp.Data, &got); err != nil {
		t.Fatal(err)
	}
	dn := "uid=" + got.Username + "," + people
	if !regexp.MustCompile(`^v__app_[a-zA-Z0-9]{10}_[0-9]+$`).MatchString(got.Username) || len(got.Names) != 2 ||
		got.Names[0] != dn {
		t.Errorf("%+v", got)
	}
	works(t, addr, dn, got.Password)
	if sn := read(t, addr, dn, "sn"); len(sn) != 1 || sn[0] != utf16le(`"`+got.Password+`"`) {
		t.Errorf("%q", sn)
	}
	e := d.Engine.(engine.Leaser)
	if _, err := e.Renew(t.Context(), d.Store, engine.Lease{Internal: resp.Lease.Internal}); err != nil {
		t.Error(err)
	}
	for range 2 {
		if _, err := e.Revoke(t.Context(), d.Store, engine.Lease{Internal: resp.Lease.Internal}); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, addr, dn, "uid") != nil || len(read(t, addr, "uid=ann,"+people, "description")) != 0 {
		t.Error("something is left")
	}

	// The second change fails: the first is undone at once.
	half := strings.Replace(creation, "add: description\ndescription", "add: nonsense\nnonsense", 1)
	d.OK(secrets.Update, "role/half", body{"creation_ldif": half, "deletion_ldif": deletion,
		"username_template": "half-{{.RoleName}}"})
	d.Refused(errkind.Invalid, "creation_ldif: uid=ann", secrets.Read, "creds/half", nil)
	if read(t, addr, "uid=half-half,"+people, "uid") != nil {
		t.Error("half of it is left")
	}
	// A crash after it was made, before the lease.
	step := crash(t, d, secrets.Read, "creds/app")
	if _, err := d.Engine.(engine.Stepper).Step(t.Context(), step.Then); err != nil {
		t.Fatal(err)
	}
	if len(read(t, addr, "uid=ann,"+people, "description")) != 1 {
		t.Error("it was not made")
	}
	d.Engine = New(Config{TTLs: ttls})
	d.Wait(elsewhere.Wait + time.Second)
	d.Tend()
	if len(read(t, addr, "uid=ann,"+people, "description")) != 0 {
		t.Error("a crash left it")
	}

	for field, b := range map[string]body{"creation_ldif": {"deletion_ldif": deletion},
		"deletion_ldif": {"creation_ldif": creation}, "is no line": {"creation_ldif": "hello", "deletion_ldif": deletion},
		"no DN":       {"creation_ldif": "dn: x\ncn: x\n", "deletion_ldif": deletion},
		"Nobody":      {"creation_ldif": "dn: cn={{.Nobody}}\ncn: x\n", "deletion_ldif": deletion},
		"default_ttl": {"creation_ldif": creation, "deletion_ldif": deletion, "default_ttl": "2h", "max_ttl": "1h"},
		"username_template": {"creation_ldif": creation, "deletion_ldif": deletion,
			"username_template": "a,b={{.RoleName}}"}} {
		d.Refused(errkind.Invalid, field, secrets.Update, "role/bad", b)
	}
	d.Refused(errkind.Invalid, "unknown role", secrets.Read, "creds/none", nil)
}

// TestLibrary: an account is one borrower's at a time, and a former one's password ends.
func TestLibrary(t *testing.T) {
	d, addr := newDesk(t, slapdtest.Directory{})
	d.OK(secrets.Update, "static-role/ann", body{"username": "ann", "rotation_period": "24h"})
	d.Refused(errkind.Invalid, "managed by static-role/ann", secrets.Update, "library/team",
		body{"service_account_names": "svc1,ann"})
	d.Refused(errkind.Invalid, "no user", secrets.Update, "library/team", body{"service_account_names": "none"})
	d.Refused(errkind.Invalid, "ttl", secrets.Update, "library/team", body{"service_account_names": "svc1",
		"ttl": "48h"})
	d.OK(secrets.Update, "library/team", body{"service_account_names": "svc1,svc2", "ttl": "10h", "max_ttl": "20h"})
	as := func(who, entity, path string, b body) (*secrets.Response, error) {
		raw, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		r := &secrets.Request{Op: secrets.Update, Path: "ldap/" + path, Mount: "ldap/", Rest: path, Body: raw,
			Now: d.Now(), Caller: secrets.Caller{Token: who, Whose: entity}}
		resp, err := d.Engine.Handle(t.Context(), d.Store, r)
		for err == nil {
			if err = d.Store.Commit(t.Context(), 0, resp.Ops); err != nil || resp.Then == nil {
				break
			}
			resp, err = d.Engine.(engine.Stepper).Step(t.Context(), resp.Then)
		}
		return resp, err
	}
	lend := func(who, entity string) (user, password string, l engine.Lease) {
		t.Helper()
		resp, err := as(who, entity, "library/team/check-out", body{"ttl": "30m"})
		if err != nil || resp.Lease == nil || resp.Lease.TTL != 30*time.Minute || resp.Lease.MaxTTL != 20*time.Hour {
			t.Fatalf("%+v, %v", resp, err)
		}
		var got struct {
			User     string `json:"service_account_name"`
			Password string
		}
		if err := json.Unmarshal(resp.Data, &got); err != nil {
			t.Fatal(err)
		}
		works(t, addr, "uid="+got.User+","+people, got.Password)
		return got.User, got.Password, engine.Lease{Internal: resp.Lease.Internal}
	}
	one, onePass, oneLease := lend("t1", "e1")
	two, _, twoLease := lend("t2", "")
	if one != "svc1" || two != "svc2" {
		t.Errorf("%s, %s", one, two)
	}
	_, err := as("t3", "", "library/team/check-out", nil)
	if !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), "No service accounts available") {
		t.Errorf("%v", err)
	}
	status := fmt.Sprint(d.OK(secrets.Read, "library/team/status", nil))
	if !strings.Contains(status, "borrower_entity_id:e1") || strings.Contains(status, "t2") {
		t.Error(status)
	}
	// Others do not return it; its borrower does, also by another token of the entity.
	if _, err := as("t3", "e3", "library/team/check-in", body{"service_account_names": "svc1"}); err == nil {
		t.Error("a stranger returned it")
	}
	d.Refused(errkind.Invalid, "checked out", secrets.Update, "library/team", body{"service_account_names": "svc2"})
	d.Refused(errkind.Invalid, "checked out", secrets.Delete, "library/team", nil)
	resp, err := as("t9", "e1", "library/team/check-in", nil)
	if err != nil || string(resp.Data) != `{"check_ins":["svc1"]}` {
		t.Errorf("%s, %v", resp.Data, err)
	}
	fails(t, addr, "uid=svc1,"+people, onePass)
	// The end of a lease whose loan was returned takes it from nobody who has it now.
	again, pass, _ := lend("t4", "e4")
	l := d.Engine.(engine.Leaser)
	ended, err := l.Revoke(t.Context(), d.Store, oneLease)
	if err == nil {
		err = d.Store.Commit(t.Context(), 0, ended.Ops)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.Tend()
	works(t, addr, "uid="+again+","+people, pass)
	// The end of a lease gives it back.
	if ended, err = l.Revoke(t.Context(), d.Store, twoLease); err == nil {
		err = d.Store.Commit(t.Context(), 0, ended.Ops)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.Tend()
	if got := fmt.Sprint(d.OK(secrets.Read, "library/team/status", nil)["svc2"]); got != "map[available:true]" {
		t.Error(got)
	}
	// The manager returns anybody's.
	if _, err := as("admin", "", "library/manage/team/check-in", body{"service_account_names": again}); err != nil {
		t.Error(err)
	}
	fails(t, addr, "uid="+again+","+people, pass)
	// A crash between the loan and the password: it comes back.
	crash(t, d, secrets.Update, "library/team/check-out")
	if got := fmt.Sprint(d.OK(secrets.Read, "library/team/status", nil)["svc1"]); !strings.Contains(got, "false") {
		t.Error(got)
	}
	d.Wait(elsewhere.Wait + time.Second)
	d.Tend()
	if got := fmt.Sprint(d.OK(secrets.Read, "library/team/status", nil)["svc1"]); got != "map[available:true]" {
		t.Error(got)
	}
	d.Refused(errkind.Invalid, "the library team has", secrets.Update, "library/team/check-in",
		body{"service_account_names": "ann"})
	d.OK(secrets.Update, "library/team", body{"service_account_names": "svc2", "disable_check_in_enforcement": true})
	d.OK(secrets.Update, "library/other", body{"service_account_names": "svc1"})
	if got := d.OK(secrets.List, "library/", nil); fmt.Sprint(got["keys"]) != "[other team]" {
		t.Errorf("%v", got)
	}
	d.OK(secrets.Delete, "library/other", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "library/other", nil)
}

// TestConfig: what cannot be is refused by its name, and the password goes to no other server.
func TestConfig(t *testing.T) {
	d := enginetest.New(t, New(Config{TTLs: ttls, Password: func(_ context.Context, policy string) (string, error) {
		if policy != "pins" {
			return " x", nil
		}
		return "1234-5678", nil
	}}), "ldap/")
	good := body{"url": "ldap://127.0.0.1:1", "binddn": "cn=a", "bindpass": "hidden-word"}
	for field, value := range map[string]any{"binddn": "", "bindpass": "", "schema": "nis", "length": 3,
		"userattr": "a=b", "password_policy": "blank", "credential_type": "phrase", "url": "http://x",
		"tls_min_version": "tls10", "request_timeout": "1h", "certificate": "none"} {
		b := body{}
		for k, v := range good {
			b[k] = v
		}
		b[field] = value
		d.Refused(errkind.Invalid, field, secrets.Update, "config", b)
	}
	d.Refused(errkind.NotFound, "", secrets.Read, "config", nil)
	d.OK(secrets.Update, "config", good)
	if got := d.OK(secrets.Read, "config", nil); got["bindpass"] != nil || strings.Contains(fmt.Sprint(got), "hidden") ||
		got.Text("schema") != "openldap" || got.Text("userattr") != "cn" || got["request_timeout"] != 90.0 {
		t.Errorf("%v", got)
	}
	for field, value := range map[string]any{"url": "ldap://evil.example", "insecure_tls": true, "starttls": true} {
		d.Refused(errkind.Invalid, "bindpass", secrets.Update, "config", body{field: value})
	}
	d.OK(secrets.Update, "config", body{"schema": "ad", "password_policy": "pins", "userdn": people})
	if got := d.OK(secrets.Read, "config", nil); got.Text("userattr") != "userPrincipalName" {
		t.Errorf("%v", got)
	}
	d.Refused(errkind.Unavailable, "cannot be reached", secrets.Update, "static-role/x", body{"username": "x",
		"rotation_period": "1h"})
	d.Refused(errkind.NotFound, "unsupported path", secrets.Update, "wal/1/x", nil)
	d.Refused(errkind.NotFound, "unsupported path", secrets.Update, "loan/1/x", nil)
	d.Refused(errkind.NotFound, "unsupported path", secrets.Update, "library/manage/x", nil)
	d.OK(secrets.Delete, "config", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "config", nil)
}

// TestSchemas: what Active Directory and RACF are sent, to a server that has their attributes.
func TestSchemas(t *testing.T) {
	schema := `attributetype ( 1.2.840.113556.1.4.90 NAME 'unicodePwd' SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
attributetype ( 1.2.840.113556.1.4.656 NAME 'userPrincipalName' EQUALITY caseIgnoreMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )
attributetype ( 1.3.18.0.2.4.1 NAME 'racfid' EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )
attributetype ( 1.3.18.0.2.4.2 NAME 'racfPassword' SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )
attributetype ( 1.3.18.0.2.4.4 NAME 'racfPassPhrase' SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )
attributetype ( 1.3.18.0.2.4.3 NAME 'racfAttributes' SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )
objectclass ( 1.3.18.0.2.6.1 NAME 'testAccount' SUP top AUXILIARY
  MAY ( unicodePwd $ userPrincipalName $ racfid $ racfPassword $ racfPassPhrase $ racfAttributes ) )
`
	more := `
dn: cn=Carl,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
objectClass: testAccount
cn: Carl
sn: C
userPrincipalName: carl@corp.example
racfid: CARL
`
	d, addr := newDesk(t, slapdtest.Directory{Entries: entries + more, Schema: schema})
	carl := "cn=Carl," + people
	d.OK(secrets.Update, "config", body{"schema": "ad", "upndomain": "corp.example", "userattr": "userPrincipalName",
		"length": 20})
	d.OK(secrets.Update, "static-role/carl", body{"username": "carl", "rotation_period": "1h"})
	word := d.OK(secrets.Read, "static-cred/carl", nil).Text("password")
	if got := read(t, addr, carl, "unicodePwd"); len(word) != 20 || len(got) != 1 || got[0] != utf16le(`"`+word+`"`) {
		t.Errorf("%q: %q", word, got)
	}
	d.OK(secrets.Delete, "static-role/carl", nil)
	d.OK(secrets.Update, "config", body{"schema": "racf", "length": 0})
	for kind, attr := range map[string]string{"password": "racfPassword", "phrase": "racfPassPhrase"} {
		d.OK(secrets.Update, "config", body{"credential_type": kind})
		d.OK(secrets.Update, "static-role/carl", body{"username": "CARL", "rotation_period": "1h"})
		word := d.OK(secrets.Read, "static-cred/carl", nil).Text("password")
		if got := read(t, addr, carl, attr); len(got) != 1 || got[0] != word || (len(word) == racfLength) !=
			(kind == "password") || fmt.Sprint(read(t, addr, carl, "racfAttributes")) != "[noexpired]" {
			t.Errorf("%q: %q", word, got)
		}
		d.OK(secrets.Delete, "static-role/carl", nil)
	}
}
