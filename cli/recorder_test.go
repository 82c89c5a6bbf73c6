package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/keptlogin"
)

// recorder answers by method and path, and keeps what it was asked.
type recorder struct {
	mu      sync.Mutex
	asked   []string
	answers map[string]string // "METHOD path"; a number before the text is a status
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), 500)
		return
	}
	r.asked = append(r.asked, strings.TrimSpace(fmt.Sprintf("%s %s %s", req.Method, req.URL.RequestURI(), body)))
	answer, ok := r.answers[req.Method+" "+req.URL.Path]
	switch {
	case !ok:
		http.Error(w, "no such thing", http.StatusNotFound)
	case strings.HasPrefix(answer, "!"):
		http.Error(w, answer[4:], map[string]int{"403": 403, "500": 500, "404": 404, "401": 401}[answer[1:4]])
	default:
		io.WriteString(w, answer)
	}
}

// spoken is one command line with what it must ask and print.
type spoken struct {
	args  []string
	code  int
	asked string // the last request
	out   string // part of what is printed
}

// speak runs each command line under Consul's name against a recorder.
func speak(t *testing.T, answers map[string]string, lines []spoken) {
	t.Helper()
	r := &recorder{answers: answers}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	for _, line := range lines {
		var out bytes.Buffer
		e := &command.Env{In: strings.NewReader("from stdin"), Out: &out, Err: &out, Getenv: func(k string) string {
			return map[string]string{"CONSUL_HTTP_ADDR": s.URL, "CONSUL_HTTP_TOKEN": "secret"}[k]
		}}
		r.asked = nil
		code := dispatch(t.Context(), e, append([]string{"consul"}, line.args...))
		last := ""
		if len(r.asked) > 0 {
			last = r.asked[len(r.asked)-1]
		}
		if code != line.code || line.asked != "" && last != line.asked || !strings.Contains(out.String(), line.out) {
			t.Errorf("consul %q: code %d, want %d\nasked %s\nwant  %s\nprinted:\n%s\nwant:\n%s", line.args, code, line.code,
				last, line.asked, &out, line.out)
		}
	}
}

// args splits a command line at spaces.
func args(line string) []string { return strings.Fields(line) }

const (
	policyID = "11111111-1111-1111-1111-111111111111"
	tokenID  = "22222222-2222-2222-2222-222222222222"
	roleID   = "33333333-3333-3333-3333-333333333333"
)

const oneToken = `{"AccessorID":"` + tokenID + `","SecretID":"s","Description":"d","Policies":[{"ID":"` + policyID +
	`","Name":"reader"}],"Local":false,"CreateTime":"2024-01-02T03:04:05Z","ModifyIndex":7}`

// TestACLCommands: what each command sends, and the form of what it prints.
func TestACLCommands(t *testing.T) {
	policy := `{"ID":"` + policyID + `","Name":"reader","Description":"d","Rules":"key_prefix \"\" { policy = \"read\" }"}`
	role := `{"ID":"` + roleID + `","Name":"ops","Description":"x","Policies":[{"ID":"` + policyID + `","Name":"reader"}]}`
	method := `{"Name":"m","Type":"jwt","Description":"old","Config":{"A":"1"}}`
	rule := `{"ID":"` + roleID + `","AuthMethod":"m","BindType":"service","BindName":"web"}`
	answers := map[string]string{
		"PUT /v1/acl/bootstrap": oneToken, "PUT /v1/acl/token": oneToken, "GET /v1/acl/token/" + tokenID: oneToken,
		"PUT /v1/acl/token/" + tokenID: oneToken,
		"GET /v1/acl/token/self":       oneToken, "GET /v1/acl/tokens": "[" + oneToken + "]", "PUT /v1/acl/token/" + tokenID +
			"/clone": oneToken, "DELETE /v1/acl/token/" + tokenID: "true",
		"PUT /v1/acl/policy": policy, "GET /v1/acl/policy/" + policyID: policy, "PUT /v1/acl/policy/" + policyID: policy,
		"GET /v1/acl/policies":           "[" + policy + "]",
		"GET /v1/acl/policy/name/reader": policy, "DELETE /v1/acl/policy/" + policyID: "true",
		"PUT /v1/acl/role": role, "GET /v1/acl/role/" + roleID: role, "PUT /v1/acl/role/" + roleID: role,
		"GET /v1/acl/roles": "[" + role + "]", "GET /v1/acl/role/name/ops": role,
		"DELETE /v1/acl/role/" + roleID: "true", "PUT /v1/acl/auth-method": method, "GET /v1/acl/auth-method/m": method,
		"PUT /v1/acl/auth-method/m": method,
		"GET /v1/acl/auth-methods":  "[" + method + "]", "DELETE /v1/acl/auth-method/m": "true",
		"PUT /v1/acl/binding-rule": rule, "GET /v1/acl/binding-rules": "[" + rule + "]",
		"GET /v1/acl/binding-rule/" + roleID: rule, "PUT /v1/acl/binding-rule/" + roleID: rule,
		"DELETE /v1/acl/binding-rule/" + roleID:                 "true",
		"PUT /v1/agent/token/agent":                             "",
		"GET /v1/acl/templated-policies":                        `{"builtin/service":{},"builtin/dns":{}}`,
		"GET /v1/acl/templated-policy/name/builtin/dns":         `{"TemplateName":"builtin/dns","Template":"T"}`,
		"POST /v1/acl/templated-policy/preview/builtin/service": policy,
		"POST /v1/acl/logout":                                   "",
	}
	speak(t, answers, []spoken{
		{args("acl bootstrap"), 0, "PUT /v1/acl/bootstrap", "AccessorID:       " + tokenID + "\nSecretID:         " +
			"s\nDescription:      d\nLocal:            false\nCreate Time:      2024-01-02 03:04:05 +0000 UTC\nPolicies:\n   " +
			policyID + " - reader\n"},
		{args("acl bootstrap -format=json -"), 0, `PUT /v1/acl/bootstrap {"BootstrapSecret":"from stdin"}`,
			`"SecretID": "s"`},
		{args("acl token create -description=x -policy-name=reader -service-identity=web:dc1 -node-identity=n:dc1 " +
			"-expires-ttl=1h -local"), 0,
			`PUT /v1/acl/token {"Description":"x","Policies":[{"Name":"reader"}],"ServiceIdentities":[{"ServiceName":"web",` +
				`"Datacenters":["dc1"]}],"NodeIdentities":[{"NodeName":"n","Datacenter":"dc1"}],"Local":true,"ExpirationTTL":"1h"}`,
			"AccessorID"},
		{args("acl token create -templated-policy=builtin/service -var=name:api"), 0,
			`PUT /v1/acl/token {"TemplatedPolicies":[{"TemplateName":"builtin/service","TemplateVariables":{"Name":"api"}}],` +
				`"Local":false}`, ""},
		{args("acl token create"), 1, "", "at least one of"},
		{args("acl token read -id 2222"), 0, "GET /v1/acl/token/" + tokenID, "Description:      d"},
		{args("acl token read -self -expanded"), 0, "GET /v1/acl/token/self?expanded=true", ""},
		{args("acl token read -accessor-id=9"), 1, "", "no token has an id"},
		{args("acl token update -accessor-id=" + tokenID + " -append-policy-name=more"), 0,
			`PUT /v1/acl/token/` + tokenID + ` {"AccessorID":"` + tokenID +
				`","SecretID":"s","Description":"d","Policies":[{"ID":"` + policyID +
				`","Name":"reader"},{"Name":"more"}],"Local":false,"CreateTime":"2024-01-02T03:04:05Z","ModifyIndex":7}`, ""},
		{args("acl token clone -accessor-id=" + tokenID + " -description=c"), 0, `PUT /v1/acl/token/` + tokenID +
			`/clone {"Description":"c"}`, ""},
		{args("acl token delete -id=" + tokenID), 0, "DELETE /v1/acl/token/" + tokenID, `Token "` + tokenID +
			`" deleted successfully`},
		{args("acl token list -policy=" + policyID), 0, "GET /v1/acl/tokens?policy=" + policyID, "AccessorID"},
		{[]string{"acl", "policy", "create", "-name=reader", "-rules", `key "a" { policy = "read" }`}, 0,
			`PUT /v1/acl/policy {"Name":"reader","Rules":"key \"a\" { policy = \"read\" }"}`, "ID:           " + policyID +
				"\nName:         reader\nDescription:  d\nDatacenters:\nRules:\nkey_prefix"},
		{args("acl policy create -name=x -rules=-"), 0, `PUT /v1/acl/policy {"Name":"x","Rules":"from stdin"}`, ""},
		{args("acl policy read -name=reader"), 0, "GET /v1/acl/policy/" + policyID, "Rules:"},
		{args("acl policy update -name=reader -description=new"), 0, `PUT /v1/acl/policy/` + policyID + ` {"ID":"` +
			policyID + `","Name":"reader","Description":"new","Rules":"key_prefix \"\" { policy = \"read\" }"}`, ""},
		{args("acl policy delete -id=1111"), 0, "DELETE /v1/acl/policy/" + policyID, "deleted successfully"},
		{args("acl policy list"), 0, "GET /v1/acl/policies", "reader:\n   ID:           " + policyID +
			"\n   Description:  d\n"},
		{args("acl role create -name=ops -policy-id=1111"), 0, `PUT /v1/acl/role {"Name":"ops","Policies":[{"ID":"` +
			policyID + `"}]}`, "Policies:\n   " + policyID + " - reader"},
		{args("acl role update -name=ops -policy-name=w"), 0, `PUT /v1/acl/role/` + roleID + ` {"ID":"` + roleID +
			`","Name":"ops","Description":"x","Policies":[{"ID":"` + policyID + `","Name":"reader"},{"Name":"w"}]}`, ""},
		{args("acl role update -name=ops -no-merge -policy-name=w"), 0, `PUT /v1/acl/role/` + roleID + ` {"ID":"` + roleID +
			`","Name":"ops","Policies":[{"Name":"w"}]}`, ""},
		{args("acl role list"), 0, "GET /v1/acl/roles", "ops:\n   ID:           " + roleID},
		{args("acl role read -id=" + roleID), 0, "", "Name:         ops"},
		{args("acl role delete -name=ops"), 0, "DELETE /v1/acl/role/" + roleID, "deleted"},
		{[]string{"acl", "auth-method", "create", "-name=m", "-type=jwt", "-config", `{"A":"1"}`}, 0,
			`PUT /v1/acl/auth-method {"Name":"m","Type":"jwt","Config":{"A":"1"}}`, "Config:\n{\n    \"A\": \"1\"\n}\n"},
		{args("acl auth-method update -name=m -description=new"), 0,
			`PUT /v1/acl/auth-method/m {"Name":"m","Type":"jwt","Description":"new","Config":{"A":"1"}}`, ""},
		{args("acl auth-method list"), 0, "", "m:\n   Type:"},
		{args("acl auth-method read -name=m"), 0, "", "Name:"},
		{args("acl auth-method delete -name=m"), 0, "", `Auth-method "m" deleted successfully`},
		{args("acl binding-rule create -method=m -bind-name=web"), 0,
			`PUT /v1/acl/binding-rule {"AuthMethod":"m","BindType":"service","BindName":"web"}`, "BindName:"},
		{args("acl binding-rule update -id=3333 -selector=x==1"), 0, `PUT /v1/acl/binding-rule/` + roleID + ` {"ID":"` +
			roleID + `","AuthMethod":"m","BindType":"service","BindName":"web","Selector":"x==1"}`, ""},
		{args("acl binding-rule read -id=3333"), 0, "", "AuthMethod:   m"},
		{args("acl binding-rule list -method=m"), 0, "GET /v1/acl/binding-rules?authmethod=m", roleID + ":\n"},
		{args("acl binding-rule delete -id=" + roleID), 0, "", "deleted successfully"},
		{args("acl set-agent-token agent s3"), 0, `PUT /v1/agent/token/agent {"Token":"s3"}`,
			`ACL token "agent" set successfully`},
		{args("acl set-agent-token nope s3"), 1, "", "unknown kind"},
		{args("acl templated-policy list"), 0, "", "builtin/dns\nbuiltin/service\n"},
		{args("acl templated-policy read -name=builtin/dns"), 0, "", "Raw Template:\nT"},
		{args("acl templated-policy preview -name=builtin/service -var=name:api"), 0,
			`POST /v1/acl/templated-policy/preview/builtin/service {"Name":"api"}`, "Rules:"},
		{args("logout"), 0, "POST /v1/acl/logout", ""},
		{args("login -method=m"), 1, "", "login needs"},
	})
}

// TestLogin: the secret goes to the sink, for its owner alone; a token that cannot be written is taken back.
func TestLogin(t *testing.T) {
	dir := t.TempDir()
	bearer, sink := filepath.Join(dir, "jwt"), filepath.Join(dir, "token")
	if err := os.WriteFile(bearer, []byte("proof\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	speak(t, map[string]string{"POST /v1/acl/login": oneToken, "DELETE /v1/acl/token/" + tokenID: "true"}, []spoken{
		{[]string{"login", "-method=m", "-bearer-token-file", bearer, "-token-sink-file", sink, "-meta=a=b"}, 0,
			`POST /v1/acl/login {"AuthMethod":"m","BearerToken":"proof","Meta":{"a":"b"}}`, ""},
		{[]string{"login", "-method=m", "-bearer-token-file", bearer, "-token-sink-file", filepath.Join(dir, "none", "x")}, 1,
			"DELETE /v1/acl/token/" + tokenID, "no such file"},
	})
	// Corbel's own command line keeps the token where no file is named, for the commands that follow.
	f, e, out, errOut := newAgent(t)
	f.answers = map[string]string{"/v1/acl/login": oneToken,
		"/v1/internal/acl/login-methods": `[{"Name":"a","Type":"oidc"},{"Name":"m","Type":"jwt","Default":true}]`}
	address := e.Getenv("CORBEL_HTTP_ADDR")
	e.Getenv = func(k string) string { return map[string]string{"CORBEL_HTTP_ADDR": address, "HOME": dir}[k] }
	if code := run(t.Context(), e, []string{"login", "--method", "m", "--bearer-token-file", bearer}); code != 0 ||
		out.String() != "Logged in at the catalog of "+address+"\n" {
		t.Errorf("code %d: %s%s", code, out, errOut)
	}
	if kept := keptlogin.Of(e.Getenv, keptlogin.Catalog, address); kept.Token != "s" {
		t.Errorf("kept: %+v", kept)
	}
	out.Reset()
	if code := run(t.Context(), e, []string{"login", "--bearer-token-file", bearer}); code != 0 ||
		out.String() != "Logged in at the catalog of "+address+"\n" {
		t.Errorf("by the default method: code %d: %s%s", code, out, errOut)
	}
	g, e, out, errOut := newAgent(t)
	g.answers = map[string]string{"/v1/internal/acl/login-methods": `[{"Name":"a","Type":"jwt"}]`}
	if code := run(t.Context(), e, []string{"login", "--bearer-token-file", bearer}); code == 0 ||
		!strings.Contains(errOut.String(), "no auth method is the default one") {
		t.Errorf("without a default method: code %d: %s%s", code, out, errOut)
	}
	info, err := os.Stat(sink)
	text, _ := os.ReadFile(sink)
	if err != nil || info.Mode().Perm() != 0o600 || string(text) != "s" {
		t.Fatalf("sink: %v %v %q", err, info, text)
	}
}

// TestLoginByPassword: corbel login asks for the password and for the passcode that the login lacks, and keeps the
// token for the secrets plane alone.
func TestLoginByPassword(t *testing.T) {
	lacks := `{"auth":{"client_token":"","mfa_requirement":{"mfa_request_id":"r1","mfa_constraints":{"people":{"any":[` +
		`{"type":"totp","id":"m1","name":"app","uses_passcode":true}]}}}}}`
	for _, c := range []struct {
		args, in    string
		answers     map[string]string
		code        int
		asked, kept string
		says        string
	}{
		{"--user ann", "pw\n123456\n", map[string]string{"PUT /v1/auth/userpass/login/ann": lacks,
			"PUT /v1/sys/mfa/validate": `{"auth":{"client_token":"s.1"}}`}, 0,
			`PUT /v1/sys/mfa/validate {"mfa_payload":{"m1":["123456"]},"mfa_request_id":"r1"}`, "s.1",
			"Passcode of the MFA method app"},
		{"--user ann --method people", "pw", map[string]string{
			"PUT /v1/auth/people/login/ann": `{"auth":{"client_token":"s.2"}}`}, 0,
			`PUT /v1/auth/people/login/ann {"password":"pw"}`, "s.2", "Password"},
		{"--user ann", "pw\n000000\n", map[string]string{"PUT /v1/auth/userpass/login/ann": lacks,
			"PUT /v1/sys/mfa/validate": `!403{"errors":["the passcode is wrong"]}`}, 1,
			`PUT /v1/sys/mfa/validate {"mfa_payload":{"m1":["000000"]},"mfa_request_id":"r1"}`, "",
			"the passcode is wrong"},
		{"--user ann", "", nil, 2, "", "", "login needs a password"},
		{"--user ann --type oidc", "pw", nil, 2, "", "", "--user goes with --method alone"},
	} {
		r := &recorder{answers: c.answers}
		s := httptest.NewServer(r)
		_, e, out, errOut := newAgent(t)
		e.In = strings.NewReader(c.in)
		home := t.TempDir()
		e.Getenv = func(k string) string { return map[string]string{"VAULT_ADDR": s.URL, "HOME": home}[k] }
		code := run(t.Context(), e, append([]string{"login"}, strings.Fields(c.args)...))
		s.Close()
		asked := ""
		if n := len(r.asked); n > 0 {
			asked = r.asked[n-1]
		}
		kept := keptlogin.Of(e.Getenv, keptlogin.Secrets, s.URL).Token
		if code != c.code || asked != c.asked || kept != c.kept || !strings.Contains(errOut.String(), c.says) ||
			strings.Contains(out.String()+errOut.String(), "123456") {
			t.Errorf("%s: code %d, asked %s, kept %q: %s%s", c.args, code, asked, kept, out, errOut)
		}
	}
}

// TestMeshCommands: config entries, intentions and the authority.
func TestMeshCommands(t *testing.T) {
	dir := t.TempDir()
	entry, one := filepath.Join(dir, "e.hcl"), filepath.Join(dir, "i.json")
	for path, text := range map[string]string{entry: "Kind = \"service-defaults\"\nName = \"web\"\nProtocol = \"http\"\n",
		one: `{"SourceName":"a","DestinationName":"b","Action":"deny"}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	answers := map[string]string{
		"GET /v1/config/service-defaults/web": `{"Kind":"service-defaults","Name":"web"}`,
		"GET /v1/config/service-defaults":     `[{"Name":"web"},{"Name":"db"}]`,
		"PUT /v1/config":                      "true", "DELETE /v1/config/service-defaults/web": "{}",
		"PUT /v1/connect/intentions/exact": "true", "DELETE /v1/connect/intentions/exact": "true",
		"GET /v1/connect/intentions":       `[{"SourceName":"web","DestinationName":"db","Action":"allow","Precedence":9}]`,
		"GET /v1/connect/intentions/check": `{"Allowed":false}`,
		"GET /v1/connect/intentions/match": `{"db":[{"SourceName":"web","DestinationName":"db","Action":"allow"},{` +
			`"SourceName":"*","DestinationName":"db","Permissions":[{},{}]}]}`,
		"GET /v1/connect/ca/configuration":  `{"Provider":"consul"}`,
		"PUT /v1/connect/ca/configuration":  "",
		"GET /v1/connect/intentions/old-id": `{"ID":"old-id","SourceName":"web","DestinationName":"db","Action":"allow"}`,
	}
	speak(t, answers, []spoken{
		{args("config read -kind service-defaults -name web"), 0, "GET /v1/config/service-defaults/web",
			"{\n\t\"Kind\": \"service-defaults\",\n\t\"Name\": \"web\"\n}\n"},
		{args("config list -kind service-defaults"), 0, "", "web\ndb\n"},
		{args("config write " + entry), 0, `PUT /v1/config {"Kind":"service-defaults","Name":"web","Protocol":"http"}`,
			"Config entry written: service-defaults/web"},
		{args("config write -cas -modify-index=3 " + entry), 0,
			`PUT /v1/config?cas=3 {"Kind":"service-defaults","Name":"web","Protocol":"http"}`, ""},
		{args("config delete -kind service-defaults -name web"), 0, "DELETE /v1/config/service-defaults/web",
			"Config entry deleted: service-defaults/web"},
		{args("config read -kind x"), 1, "", "--kind and --name"},
		{args("intention create -deny web db"), 0, `PUT /v1/connect/intentions/exact?destination=db&source=web {` +
			`"SourceName":"web","DestinationName":"db","SourceType":"consul","Action":"deny"}`, "Created: web => db (deny)"},
		{args("intention create -file " + one), 0, `PUT /v1/connect/intentions/exact?destination=b&source=a {` +
			`"SourceName":"a","DestinationName":"b","SourceType":"consul","Action":"deny"}`, "Created: a => b (deny)"},
		{args("intention check web db"), 2, "GET /v1/connect/intentions/check?destination=db&source=web&source-type=consul",
			"Denied\n"},
		{args("intention match db"), 0, "GET /v1/connect/intentions/match?by=destination&name=db",
			"web => db (allow)\n* => db (2 permissions)\n"},
		{args("intention list"), 0, "", "ID  Source  Action  Destination  Precedence\n    web     allow   db           9\n"},
		{args("intention get old-id"), 0, "", "Source:       web\nDestination:  db\nAction:       allow\nID:           " +
			"old-id\n"},
		{args("intention delete web db"), 0, "DELETE /v1/connect/intentions/exact?destination=db&source=web",
			"Intention deleted."},
		{args("connect ca get-config"), 0, "", "{\n\t\"Provider\": \"consul\"\n}\n"},
		{args("connect ca set-config -config-file -"), 1, "", ""},
		{args("connect proxy"), 1, "", "needs --sidecar-for"},
		{args("connect proxy -service web"), 1, "", "does nothing"},
		{args("connect proxy -service web -upstream db"), 1, "", "must be NAME:[HOST:]PORT"},
		{args("connect proxy -service web -listen :1"), 1, "", "go together"},
		{args("connect redirect-traffic -proxy-inbound-port 1"), 1, "", "--proxy-uid is needed"},
		{args("connect redirect-traffic -proxy-uid 1 -proxy-inbound-port 1 -exclude-inbound-port x"), 1, "",
			"--exclude-inbound-port"},
		{args("connect redirect-traffic -print -proxy-uid 1234 -proxy-inbound-port 20000 -consul-dns-port 8600"), 0, "",
			"dnat to 127.0.0.1:8600"},
		{args("connect expose -ingress-gateway=gw -service=web -port=80 -host=x"), 0,
			`PUT /v1/connect/intentions/exact?destination=web&source=gw {"SourceName":"gw","DestinationName":"web",` +
				`"SourceType":"consul","Action":"allow"}`, "Successfully updated config entry"},
		{args("services export -name=web -consumer-peers=east"), 0, `PUT /v1/config?cas=0 {"Kind":"exported-services",` +
			`"Name":"default","Services":[{"Consumers":[{"Peer":"east"}],"Name":"web"}]}`, "Successfully exported"},
	})
}
