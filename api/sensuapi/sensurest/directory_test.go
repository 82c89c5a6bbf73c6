//go:build unix

package sensurest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/slapdtest"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ldaplogin"
	"corbel.dev/corbel/monitor/logins"
	"corbel.dev/corbel/monitor/subscribers"
)

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

dn: uid=admin,dc=example,dc=com
objectClass: inetOrgPerson
uid: admin
cn: Admin
sn: A
userPassword: admin-word

dn: cn=dev,dc=example,dc=com
objectClass: groupOfNames
cn: dev
member: uid=ann,dc=example,dc=com
`

// withoutBuiltin are directories as documents.
type withoutBuiltin struct{ *ldaplogin.Directories }

func (withoutBuiltin) Results(string, monitor.Object) []string { return nil }

func (withoutBuiltin) Builtin(string, string) *monitor.Provider { return nil }

// TestLoginByDirectory: a person whom a directory knows has the rights of the groups there, for twelve hours at most.
func TestLoginByDirectory(t *testing.T) {
	addr, _ := slapdtest.Start(t, slapdtest.Directory{Entries: people, Access: "access to * by * read\n",
		Options: "rootpw " + slapdtest.RootPass + "\n"})
	host, port, err := net.SplitHostPort(strings.TrimPrefix(addr, "ldap://"))
	if err != nil {
		t.Fatal(err)
	}
	g := newRigOf(t, subscribers.Config{}, func(c *Config) {
		d := ldaplogin.New(ldaplogin.Config{Resources: c.Resources, Log: c.Log})
		c.Directory, c.Documents = d, withoutBuiltin{d}
	})
	const providers = "/api/enterprise/authentication/v2/authproviders"
	g.want(400, "POST", providers, `{"type":"ldap","api_version":"authentication/v2","metadata":{"name":"house"},"spec":{}}`)
	body := fmt.Sprintf(`{"type":"ldap","api_version":"authentication/v2","metadata":{"name":"house"},"spec":{`+
		`"groups_prefix":"ldap","servers":[{"host":%q,"port":%s,"security":"insecure","binding":{"user_dn":%q,`+
		`"password":%q},"group_search":{"base_dn":"dc=example,dc=com"},"user_search":{"base_dn":"dc=example,dc=com"}}]}}`,
		host, port, slapdtest.Root, slapdtest.RootPass)
	if a := g.want(201, "POST", providers, body); len(a.header.Values("Warning")) != 1 {
		t.Errorf("%v", a.header)
	}
	shown := g.want(200, "GET", providers+"/house", "")
	if strings.Contains(shown.body, slapdtest.RootPass) || !strings.Contains(shown.body, "REDACTED") ||
		!strings.Contains(shown.body, `"type":"ldap"`) {
		t.Errorf("%s", shown.body)
	}
	g.want(201, "PUT", providers+"/house", shown.body) // the password is kept
	g.want(201, "POST", "/api/core/v2/clusterrolebindings", `{"metadata":{"name":"devs"},"subjects":[{"type":"Group",`+
		`"name":"ldap:dev"}],"role_ref":{"type":"ClusterRole","name":"view"}}`)
	login := func(name, password string) (int, logins.Tokens) {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, g.url+"/auth", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(name, password)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var tokens logins.Tokens
		_ = json.NewDecoder(resp.Body).Decode(&tokens)
		return resp.StatusCode, tokens
	}
	code, tokens := login("ann", "ann-word")
	if code != 200 {
		t.Fatalf("ann gets %d", code)
	}
	may := func(want int, access string) {
		t.Helper()
		if a := g.send("GET", ns+"/checks", bearer(access), ""); a.code != want {
			t.Errorf("%d %s, not %d", a.code, a.body, want)
		}
	}
	may(200, tokens.Access)
	if a := g.send("POST", ns+"/checks", bearer(tokens.Access), "{}"); a.code != 403 {
		t.Errorf("%d", a.code)
	}
	for _, wrong := range [][2]string{{"ann", "x"}, {"nobody", "x"}, {"admin", "x"}} {
		if code, _ := login(wrong[0], wrong[1]); code != 401 {
			t.Errorf("%v get %d", wrong, code)
		}
	}
	if code, _ := login("admin", "admin-word"); code == 200 {
		t.Error("who has a stored user's name in the directory is that user")
	}
	refresh := func(want int) {
		t.Helper()
		a := g.send("POST", "/auth/token", bearer(tokens.Access), `{"refresh_token":"`+tokens.Refresh+`"}`)
		if a.code != want {
			t.Fatalf("%d %s, not %d", a.code, a.body, want)
		}
		if want == 200 {
			a.into(t, &tokens)
		}
	}
	g.now.Add(int64(11 * time.Hour / time.Second))
	may(401, tokens.Access)
	refresh(200)
	may(200, tokens.Access)
	g.now.Add(int64(59 * time.Minute / time.Second))
	refresh(200)
	g.now.Add(int64(2 * time.Minute / time.Second))
	may(401, tokens.Access) // though it is two minutes old
	refresh(401)
	_, tokens = login("ann", "ann-word")
	may(200, tokens.Access)
	g.want(204, "DELETE", providers+"/house", "")
	may(401, tokens.Access)
}
