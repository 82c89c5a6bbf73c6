package vaultapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/limit"
)

// announce sends the head of a request and nothing of its body; the status of the answer, 0: there is none, the body
// is waited for.
func announce(t *testing.T, addr, path, token, length string) int {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, _ = io.WriteString(nc, "PUT /v1/"+path+" HTTP/1.1\r\nHost: x\r\nX-Vault-Token: "+token+"\r\n"+length+"\r\n\r\n")
	wait := 20 * time.Second
	if token != "" {
		wait = 300 * time.Millisecond // no answer is what is expected then
	}
	_ = nc.SetReadDeadline(time.Now().Add(wait))
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// TestTokenIsJudgedBeforeALargeBody announces large bodies and sends none of them: who may not send one is told so at
// once. 60 connections that each sent 31 MiB without a token took the process to 1.9 GB.
func TestTokenIsJudgedBeforeALargeBody(t *testing.T) {
	d := openDoor(t)
	if code, body := d.do("POST", "sys/auth/userpass", `{"type":"userpass"}`); code != 204 {
		t.Fatalf("auth: %d %v", code, body)
	}
	addr := strings.TrimPrefix(d.srv.URL, "http://")
	for _, test := range []struct {
		path, token, length string
		want                int
	}{
		{"secret/a", "", "Content-Length: 32505856", 403},
		{"secret/a", "hvs.nobody", "Content-Length: 32505856", 403},
		{"nowhere/a", "", "Content-Length: 32505856", 403},
		{"auth/userpass/login/x", "", "Content-Length: 32505856", 413},
		{"auth/token/create", "", "Content-Length: 300000", 403},
		{"sys/init", "", "Content-Length: 32505856", 413},
		{"sys/unseal", "", "Content-Length: 32505856", 413},
		{"sys/rekey/init", "", "Content-Length: 32505856", 403}, // who may is judged before that
		{"sys/generate-root/update", "", "Content-Length: 32505856", 403},
		{"secret/a", d.root, "Content-Length: 33554433", 413},
		{"secret/a", d.root, "Content-Length: 32505856", 0},
		{"secret/a", d.root, "Transfer-Encoding: chunked", 0},
	} {
		if got := announce(t, addr, test.path, test.token, test.length); got != test.want {
			t.Errorf("%s with %q, %s: %d, want %d", test.path, test.token, test.length, got, test.want)
		}
	}
	if code, body := d.do("PUT", "auth/userpass/login/x", `{"password":"`+strings.Repeat("x", 100<<10)+`"}`,
		"X-Vault-Token", ""); code != 400 {
		t.Errorf("a login of 100 KiB: %d %v", code, body)
	}
	if code, body := d.do("PUT", "secret/big", `{"x":"`+strings.Repeat("x", 500<<10)+`"}`); code != 204 {
		t.Errorf("a large secret with a token: %d %v", code, body)
	}
}

// TestBodiesAndAnswersOfSecretsCountInTheBudget refuses both with 503 in the contract's shape where there is no room.
func TestBodiesAndAnswersOfSecretsCountInTheBudget(t *testing.T) {
	d := openDoor(t)
	large := `{"x":"` + strings.Repeat("x", 300<<10) + `"}`
	if code, body := d.do("PUT", "secret/big", large); code != 204 {
		t.Fatalf("without a budget: %d %v", code, body)
	}
	budget := limit.NewBytes(4<<20, nil)
	next := d.srv.Config.Handler
	d.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, end := httpx.Budgeted(r, budget)
		defer end()
		next.ServeHTTP(w, r)
	})
	if code, body := d.do("PUT", "secret/big", large); code != 204 {
		t.Fatalf("with room: %d %v", code, body)
	}
	if s := budget.Stats(); s.Used != 0 || s.High < 300<<10 {
		t.Fatalf("after a write of 300 KiB: %+v", s)
	}
	taken := budget.Hold(netip.Addr{})
	if err := taken.Add(4<<20 - 100); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"PUT", "GET"} {
		body := ""
		if method == "PUT" {
			body = large
		}
		code, out := d.do(method, "secret/big", body)
		if code != 503 || len(out["errors"].([]any)) != 1 || !strings.Contains(fmt.Sprint(out["errors"]), "try again") {
			t.Errorf("%s beyond the budget: %d %v", method, code, out)
		}
	}
	if code, out := d.do("PUT", "secret/small", `{"x":"y"}`); code != 204 {
		t.Errorf("a small one: %d %v", code, out)
	}
	taken.End()
	if code, _ := d.do("GET", "secret/big", ""); code != 200 {
		t.Errorf("afterwards: %d", code)
	}
}

// TestMaxRequestSizeCountsOnTheShortPath writes more than a listener takes, in a body that the short path would serve.
func TestMaxRequestSizeCountsOnTheShortPath(t *testing.T) {
	d := openDoor(t)
	small := d.srv.Config.Handler.(*API).At(Listener{MaxBodyBytes: 100})
	addr, _ := hotDoor(t, small)
	for n, want := range map[int]string{50: "204", 200: "413"} {
		body := `{"x":"` + strings.Repeat("x", n) + `"}`
		got := ask(t, addr, fmt.Sprintf("PUT /v1/secret/a HTTP/1.1\r\nHost: x\r\nX-Vault-Token: %s\r\nContent-Length: "+
			"%d\r\n\r\n%s", d.root, len(body), body))
		if !strings.HasPrefix(got, want) {
			t.Errorf("%d bytes: %s", len(body), got)
		}
	}
}
