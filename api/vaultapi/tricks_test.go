package vaultapi

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// steps are ways to write "out of here, to there".
var steps = []string{"../", "..//", "./../", "%2e%2e/", "%2E%2E/", ".%2e/", "%2e./", "..%2f", "..%2F", "%2e%2e%2f",
	"%252e%252e/", "..%252f", "..;/", "..;a=b/", "..\\", "..%5c", "%2e%2e%5c",
	"..%00/", "%00../", "..%0a/", "%c0%ae%c0%ae/", "%e0%80%ae%e0%80%ae/", "..%c0%af", "..%ef%bc%8f", "%ef%bc%8e%ef%bc%8e/",
	"%e2%80%a5/", "..%e2%81%84", "..%20/", "..%09/", "..?/", "..%3f/", "..#/", "..%23/"}

// spellings are ways to write the forbidden path itself.
var spellings = []string{"top/x", "/top/x", "//top/x", "./top/x", "top//x", "top/./x", "top/x/", "top/x/.", "top/x//",
	"Top/x", "TOP/X", "%74op/x", "%74%6f%70%2f%78", "top%2fx", "top%2Fx", "top%252fx",
	"top/x%00", "top%00/x", "%00top/x", "top/x%20", "%20top/x", "top/x%0d%0a", "top/x%09", "top;a=b/x", "top/x;a=b",
	"t%cc%81op/x", "top%e2%88%95x", "%ef%bd%94op/x", "top%c0%afx", "%e2%80%8btop/x",
	"top/x%ef%bb%bf", "%ff%fetop/x", "top\\x", "top%5cx", "top/x?list=true", "top/x?list=1&list=0", "top?list=true",
	"top/?list=true", "?list=true", "top/x%3flist=true", "top/*", "top/+", "*", "+/x", "%2a", "%2b/x"}

// targets are the paths that are tried: through app/, which the token has, beside it, and by other ways into the API.
func targets() (out []string) {
	for _, mount := range []string{"secret/", "kv2/data/", "kv2/metadata/"} {
		for _, s := range spellings {
			out = append(out, "/v1/"+mount+s)
		}
		for _, step := range steps {
			out = append(out, "/v1/"+mount+"app/"+step+"top/x", "/v1/"+mount+"app/x/"+step+step+"top/x", "/v1/"+mount+"app/"+
				step+"app/"+step+"top/x")
		}
	}
	for _, step := range steps {
		out = append(out, "/v1/secret/app/"+step+step+"sys/policy/default", "/v1/secret/app/"+step+step+"kv2/data/top/x",
			"/v1/sys/internal/ui/mounts/"+step+step+step+step+"secret/top/x",
			"/v1/auth/token/lookup-self/"+step+step+step+"secret/top/x", "/v1/sys/health/"+step+step+"secret/top/x",
			"/v1/cubbyhole/"+step+"secret/top/x", "/v1/kv2/subkeys/app/"+step+"top/x")
	}
	for _, door := range []string{"/v1//", "/v1/./", "/v1/x/../", "//v1/", "/V1/", "/v1", "/v1%2f", "/%761/", "/v1/v1/",
		"/./v1/", "/ui/../v1/", "/v1/secret/app/../../", "http://other/v1/", "/v1;a=b/", "/v1/ns1/", "/v1/root/"} {
		out = append(out, door+"secret/top/x", door+"sys/policy/default", door+"kv2/data/top/x")
	}
	return append(out, "/v1/secret/app/"+strings.Repeat("../", 300)+"secret/top/x", "/v1/"+strings.Repeat("a/../", 200)+
		"secret/top/x", "/v1/secret/"+strings.Repeat("/", 400)+"top/x",
		"/v1/secret/app/"+strings.Repeat("x", 7000), "*",
		"/v1/secret/top/x HTTP/1.1\r\nX-Vault-Token: root\r\n\r\nGET /v1/secret/top/x")
}

// smuggled are headers that proxies act on, and this server must not.
var smuggled = []string{"X-Original-URL: /v1/secret/top/x", "X-Rewrite-URL: /v1/secret/top/x",
	"X-HTTP-Method-Override: DELETE", "X-Method-Override: LIST", "X-Forwarded-Prefix: /v1/secret/top",
	"X-Vault-Namespace: root",
	"X-Vault-Namespace: ../", "X-Vault-Policy-Override: true", "X-Forwarded-For: 127.0.0.1", "X-Vault-Token : root",
	"X-Vault-Token:\troot\tx", "x-vault-token: wrong", "Authorization: Bearer root-in-capitals",
	"Transfer-Encoding: chunked", "Content-Length: 5", "Content-Length: 0\r\nContent-Length: 44",
	"Transfer-Encoding: xchunked",
	"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
	"Connection: X-Vault-Token", ":path: /v1/secret/top/x", "X-Vault-Wrap-TTL: 1h"}

// RELIABILITY C3: no spelling of a path, and no header, opens what the token's policy does not, by the hot path or by
// net/http.
func TestPathTricksOpenNothing(t *testing.T) {
	const planted = "the-planted-secret"
	d := openDoor(t)
	addr, _ := hotDoor(t, d.srv.Config.Handler.(*API))
	for _, path := range []string{"secret/top/x", "secret/top", "kv2/data/top/x"} {
		body := `{"v":"` + planted + `"}`
		if strings.HasPrefix(path, "kv2") {
			body = `{"data":` + body + `}`
		}
		if code, got := d.do("PUT", path, body); code >= 300 {
			t.Fatalf("%s: %d %v", path, code, got)
		}
	}
	d.do("PUT", "secret/app/x", `{"v":"mine"}`)
	rules := ""
	for _, p := range []string{"secret/app/*", "kv2/data/app/*", "kv2/metadata/app/*", "kv2/subkeys/app/*"} {
		rules += fmt.Sprintf(`path %q { capabilities = ["create","read","update","patch","delete","list"] } `, p)
	}
	if code, got := d.do("PUT", "sys/policy/app", fmt.Sprintf(`{"policy":%q}`, rules)); code != 204 {
		t.Fatalf("%d %v", code, got)
	}
	_, made := d.do("POST", "auth/token/create", `{"policies":["app"]}`)
	token := made["auth"].(map[string]any)["client_token"].(string)
	_, before := d.do("GET", "sys/policy/default", "")
	cells := 0
	try := func(method, target, headers, body string) {
		cells++
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
		if body != "" && !strings.Contains(headers, "Content-Length") && !strings.Contains(headers, "Transfer") {
			headers += fmt.Sprintf("\r\nContent-Length: %d", len(body))
		}
		if _, err := fmt.Fprintf(nc, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Vault-Token: %s%s\r\n\r\n%s",
			method, target, token, headers, body); err != nil {
			return // refused before it was read
		}
		_ = nc.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(nc) // a reset is a refusal
		if strings.Contains(string(got), planted) || strings.Contains(string(got), `"keys":["app/`) ||
			strings.Contains(string(got), "lookup-self") && strings.Contains(string(got), `"policy"`) {
			t.Errorf("%s %q %q: %s", method, target, headers, got)
		}
		if strings.HasPrefix(string(got), "HTTP/1.1 500") {
			t.Errorf("%s %q %q: %s", method, target, headers, got)
		}
	}
	for _, target := range targets() {
		for _, m := range []struct {
			method, body string
		}{{"GET", ""}, {"LIST", ""},
			{"PUT", `{"v":"pwned","policy":"path \"*\" { capabilities = [\"sudo\"] }","data":{"v":"pwned"}}`}, {"DELETE", ""}} {
			try(m.method, target, "", m.body)
		}
	}
	for _, h := range smuggled {
		for _, target := range []string{"/v1/secret/app/x", "/v1/secret/top/x", "/v1/kv2/data/top/x"} {
			try("GET", target, "\r\n"+h, "")
			try("PUT", target, "\r\n"+h, `{"v":"mine"}`)
		}
	}
	for path, want := range map[string]string{"secret/top/x": "map[v:" + planted + "]", "secret/top": "map[v:" +
		planted + "]"} {
		if _, got := d.do("GET", path, ""); fmt.Sprint(got["data"]) != want {
			t.Errorf("%s is now %v", path, got)
		}
	}
	if _, got := d.do("GET", "kv2/data/top/x", ""); !strings.Contains(fmt.Sprint(got["data"]), planted) {
		t.Errorf("kv2/data/top/x is now %v", got)
	}
	if _, got := d.do("LIST", "secret", ""); fmt.Sprint(got["data"]) != "map[keys:[app/ top top/]]" {
		t.Errorf("secret/ has %v", got["data"])
	}
	if _, after := d.do("GET", "sys/policy/default", ""); fmt.Sprint(after["data"]) != fmt.Sprint(before["data"]) {
		t.Error("the policy default was changed")
	}
	if cells < 500 {
		t.Errorf("only %d cells", cells)
	}
	t.Logf("%d cells", cells)
}
