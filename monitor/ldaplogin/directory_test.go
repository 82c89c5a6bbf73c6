//go:build unix

package ldaplogin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/slapdtest"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/resources/resourcestest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const people = `dn: dc=example,dc=com
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: uid=ann,dc=example,dc=com
objectClass: inetOrgPerson
uid: ann
cn: Ann
sn: A
userPassword: ann-word

dn: uid=twin,dc=example,dc=com
objectClass: inetOrgPerson
uid: twin
uid: bob
cn: Twin
sn: T
userPassword: twin-word

dn: cn=reader,dc=example,dc=com
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: reader-word

dn: uid=bob,dc=example,dc=com
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: B
userPassword: bob-word

dn: cn=dev,dc=example,dc=com
objectClass: groupOfNames
cn: dev
member: uid=ann,dc=example,dc=com

dn: cn=cluster-admins,dc=example,dc=com
objectClass: groupOfNames
cn: cluster-admins
member: uid=ann,dc=example,dc=com
member: uid=bob,dc=example,dc=com
`

const access = `access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=reader,dc=example,dc=com" read by * none
`

func provider(kind, name, spec string) *monitor.AuthProvider {
	return &monitor.AuthProvider{Meta: monitor.Meta{Name: name}, Directory: kind, Spec: json.RawMessage(spec)}
}

// specOf is a provider's spec with a server at an address; more are fields of the server.
func specOf(t *testing.T, addr, top, more string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(strings.TrimPrefix(addr, "ldap://"))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{%s"servers":[{"host":%q,"port":%s,"binding":{"user_dn":"cn=reader,dc=example,dc=com",`+
		`"password":"reader-word"},"group_search":{"base_dn":"dc=example,dc=com"},"user_search":{"base_dn":`+
		`"dc=example,dc=com","object_class":"inetOrgPerson"}%s}]}`, top, host, port, more)
}

func newDirectories(r *resources.Resources) *Directories {
	return New(Config{Resources: r, Log: slog.New(slog.DiscardHandler)})
}

func TestLogins(t *testing.T) {
	addr, ca := slapdtest.Start(t, slapdtest.Directory{Entries: people, Access: access})
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte(ca), 0o600); err != nil {
		t.Fatal(err)
	}
	r, _ := resourcestest.New()
	d := newDirectories(r)
	if _, _, err := d.Login(t.Context(), "test", "ann", "ann-word"); !errors.Is(err, ErrWrong) {
		t.Errorf("without a provider: %v", err)
	}
	tls := fmt.Sprintf(`,"security":"starttls","trusted_ca_file":%q`, file)
	resourcestest.Put(t, r, "authproviders", provider("ldap", "house",
		specOf(t, addr, `"groups_prefix":"ldap","username_prefix":"corp",`, tls)))
	who, by, err := d.Login(t.Context(), "test", "ann", "ann-word")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"ldap:cluster-admins", "ldap:dev"}; who.User != "corp:ann" || !slices.Equal(who.Groups, want) ||
		by.Name != "house" {
		t.Errorf("%+v by %v", who, by)
	}
	for _, wrong := range [][2]string{{"ann", "bob-word"}, {"ann", ""}, {"", ""}, {"nobody", "x"}, {"*", "ann-word"},
		{"ann)(uid=*", "ann-word"}, {"bob", "bob-word"} /* two entries have that name */, {"corp:ann", "ann-word"}} {
		if who, _, err := d.Login(t.Context(), "test", wrong[0], wrong[1]); !errors.Is(err, ErrWrong) {
			t.Errorf("%q: %+v, %v", wrong, who, err)
		}
	}
	resourcestest.Put(t, r, "authproviders", provider("ldap", "house",
		specOf(t, addr, `"allowed_groups":["dev"],`, `,"security":"insecure"`)))
	if who, _, err = d.Login(t.Context(), "test", "ann", "ann-word"); err != nil || who.User != "ann" ||
		!slices.Equal(who.Groups, []string{"dev"}) {
		t.Errorf("%+v, %v", who, err)
	}
	// A server that nobody vouches for gets no password, nor one whose binding it does not know.
	for _, spec := range []string{specOf(t, addr, "", `,"security":"starttls"`),
		strings.Replace(specOf(t, addr, "", tls), "reader-word", "other-word", 1),
		strings.Replace(specOf(t, addr, "", tls), `"port":`, `"port":1`, 1)} {
		resourcestest.Put(t, r, "authproviders", provider("ldap", "house", spec))
		if _, _, err = d.Login(t.Context(), "test", "ann", "ann-word"); !errkind.Is(err, errkind.Unavailable) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	// The next provider may know who it is.
	resourcestest.Put(t, r, "authproviders", provider("ldap", "other", specOf(t, addr, "", tls)))
	if _, by, err = d.Login(t.Context(), "test", "ann", "ann-word"); err != nil || by.Name != "other" {
		t.Errorf("%v, %v", by, err)
	}
}

// TestOneAddressLeavesPlaces: logins of one address that wait for a directory which is silent leave places to others.
func TestOneAddressLeavesPlaces(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			all.Go(func() {
				_, _ = io.Copy(io.Discard, c) // until it is closed there
				_ = c.Close()
			})
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		_ = silent.Close()
		all.Wait()
	}()
	r, _ := resourcestest.New()
	resourcestest.Put(t, r, "authproviders", provider("ldap", "slow",
		specOf(t, silent.Addr().String(), "", `,"security":"insecure"`)))
	d := newDirectories(r)
	login := func(from string) {
		all.Go(func() {
			if _, _, err := d.Login(ctx, from, "ann", "ann-word"); err == nil || errors.Is(err, ErrWrong) {
				t.Errorf("from %s: %v", from, err)
			}
		})
	}
	for range atOnce + 8 {
		login("10.0.0.1")
	}
	polltest.Until(t, func() bool { return asked.Load() >= atOnceFrom }, "one address asks the directory")
	login("10.0.0.2")
	polltest.Until(t, func() bool { return asked.Load() > atOnceFrom }, "another address asks it too")
	polltest.Until(t, func() bool { return d.gate.Stats().Waiting == atOnce }, "the rest of the first address wait")
}

// TestActiveDirectory: what is asked of one, by the words of its kind. There is none in the tests.
func TestActiveDirectory(t *testing.T) {
	s, err := read(provider("ad", "x", `{"servers":[{"host":"h","default_upn_domain":"corp.example",`+
		`"include_nested_groups":true,"group_search":{"base_dn":"dc=x"},"user_search":{"base_dn":"dc=x"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if at := s.Servers[0]; at.url() != "ldaps://h:636" || at.Users.Attribute != "sAMAccountName" ||
		at.Groups.ObjectClass != "group" || !at.activeUser {
		t.Errorf("%+v", at)
	}
}

func TestWrongProviders(t *testing.T) {
	r, _ := resourcestest.New()
	d := newDirectories(r)
	server := func(more string) string {
		return `{"servers":[{"group_search":{"base_dn":"dc=x"},"user_search":{"base_dn":"dc=x"},` + more + `}]}`
	}
	for spec, want := range map[string]string{
		`{}`:                                           "servers",
		`{"colour":1}`:                                 "colour",
		`{"Servers":[]}`:                               `"Servers"`,
		server(`"port":1`):                             "host",
		server(`"host":"h","hoſt":"evil"`):             "lower-case",
		server(`"host":"h","port":70000`):              "port",
		server(`"host":"h","security":"x"`):            "security",
		server(`"host":"h","client_cert_file":"x"`):    "client_key_file",
		server(`"host":"h","binding":{"user_dn":"x"}`): "binding",
		server(`"host":"h","binding":{"user_dn":"x","password":"REDACTED"}`):                                           "not shown",
		server(`"host":"h","default_upn_domain":"x"`):                                                                  "type ad alone",
		`{"servers":[{"host":"h"}]}`:                                                                                   "base_dn",
		`{"servers":[{"host":"h","group_search":{"base_dn":"x"},"user_search":{"base_dn":"x","attribute":"uid)(x"}}]}`: "no name",
	} {
		if _, err := d.Review(t.Context(), "authproviders", provider("ldap", "x", spec)); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", spec, err, want)
		}
	}
	warnings, err := d.Review(t.Context(), "authproviders", provider("ldap", "x",
		server(`"host":"h","security":"insecure"`)))
	if err != nil || len(warnings) != 2 {
		t.Errorf("%v, %q", err, warnings)
	}
}

// TestPasswordsStayHidden: a binding's password is not shown, and kept where it came back so, unless another server
// would get it.
func TestPasswordsStayHidden(t *testing.T) {
	spec := `{"servers":[{"host":"h","binding":{"user_dn":"x","password":"s3cret"}}]}`
	old := provider("ldap", "x", spec)
	shown := old.Shown()
	if strings.Contains(string(shown.Spec), "s3cret") || !strings.Contains(string(old.Spec), "s3cret") {
		t.Errorf("%s", shown.Spec)
	}
	back := provider("ldap", "x", string(shown.Spec))
	back.Keep(old)
	if !strings.Contains(string(back.Spec), "s3cret") {
		t.Errorf("%s", back.Spec)
	}
	if back.Naming() != old.Naming() {
		t.Error("sessions would end")
	}
	moved := provider("ldap", "x", strings.Replace(string(shown.Spec), `"h"`, `"evil"`, 1))
	moved.Keep(old)
	if strings.Contains(string(moved.Spec), "s3cret") {
		t.Errorf("%s", moved.Spec)
	}
}
