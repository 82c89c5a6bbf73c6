package vaultapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// raw is an answer byte for byte.
func (d *door) raw(method, path, body, token string, headers ...string) (int, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.srv.URL+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// wrapped makes a request wrapped, and gives what stands for its answer.
func (d *door) wrapped(method, path, body string) map[string]any {
	d.t.Helper()
	code, out := d.do(method, path, body, "X-Vault-Wrap-TTL", "5m")
	info, _ := out["wrap_info"].(map[string]any)
	if code != 200 || info == nil || out["request_id"] != "" || out["data"] != nil || out["auth"] != nil ||
		info["ttl"] != 300.0 || info["creation_path"] != path {
		d.t.Fatalf("%s %s wrapped: %d %v", method, path, code, out)
	}
	return info
}

func TestWrapping(t *testing.T) {
	d := openDoor(t)
	d.do("PUT", "secret/a", `{"x":"<1>"}`)
	id := fmt.Sprint(d.wrapped("GET", "secret/a", "")["token"])
	if code, body := d.do("POST", "sys/wrapping/lookup", `{"token":"`+id+`"}`, "X-Vault-Token", ""); code != 200 ||
		body["data"].(map[string]any)["creation_ttl"] != 300.0 ||
		body["data"].(map[string]any)["creation_path"] != "secret/a" {
		t.Errorf("lookup: %d %v", code, body)
	}
	code, text := d.raw("POST", "sys/wrapping/unwrap", "", id)
	if code != 200 || !strings.Contains(text, `"data":{"x":"<1>"}`) || !strings.Contains(text, `"wrap_info":null`) ||
		!json.Valid([]byte(text)) {
		t.Errorf("unwrap: %d %s", code, text)
	}
	for _, again := range []string{"unwrap", "lookup", "rewrap"} {
		if code, body := d.do("POST", "sys/wrapping/"+again, `{"token":"`+id+`"}`); code != 400 ||
			!strings.Contains(fmt.Sprint(body["errors"]), "wrapping token is not valid or does not exist") {
			t.Errorf("%s a second time: %d %v", again, code, body)
		}
	}
	info := d.wrapped("POST", "auth/token/create", `{"policies":["default"],"ttl":"1h"}`)
	code, text = d.raw("POST", "sys/wrapping/unwrap", `{"token":"`+fmt.Sprint(info["token"])+`"}`, d.root)
	var inner struct {
		Auth struct {
			Token    string `json:"client_token"`
			Accessor string
		}
	}
	if err := json.Unmarshal([]byte(text), &inner); code != 200 || err != nil || inner.Auth.Accessor == "" ||
		inner.Auth.Accessor != info["wrapped_accessor"] {
		t.Errorf("a wrapped token: %d %s", code, text)
	}
	if code, _ := d.do("GET", "auth/token/lookup-self", "", "X-Vault-Token", inner.Auth.Token); code != 200 {
		t.Errorf("the token inside opens nothing: %d", code)
	}
	first := fmt.Sprint(d.wrapped("POST", "sys/wrapping/wrap", `{"data":{"a":[1.50]}}`)["token"])
	code, out := d.do("POST", "sys/wrapping/rewrap", `{"token":"`+first+`"}`)
	next, _ := out["wrap_info"].(map[string]any)
	if code != 200 || next["creation_path"] != "sys/wrapping/wrap" || next["token"] == first {
		t.Fatalf("rewrap: %d %v", code, out)
	}
	if code, _ := d.raw("POST", "sys/wrapping/unwrap", "", first); code != 400 {
		t.Errorf("the token from before the rewrap: %d", code)
	}
	if code, text := d.raw("POST", "sys/wrapping/unwrap", "", fmt.Sprint(next["token"])); code != 200 ||
		!strings.Contains(text, `"data":{"data":{"a":[1.50]}}`) {
		t.Errorf("after the rewrap: %d %s", code, text)
	}
	old := fmt.Sprint(d.wrapped("GET", "secret/a", "")["token"])
	if code, body := d.do("GET", "cubbyhole/response", "", "X-Vault-Token", old); code != 200 ||
		!strings.Contains(fmt.Sprint(body["data"]), `<1>`) {
		t.Errorf("the old way: %d %v", code, body)
	}
	if code, _ := d.do("GET", "cubbyhole/response", "", "X-Vault-Token", old); code != 403 {
		t.Errorf("the old way a second time: %d", code)
	}
	if code, _ := d.do("POST", "sys/wrapping/wrap", `{"a":1}`); code != 400 {
		t.Errorf("wrap without a time: %d", code)
	}
	if code, _ := d.do("LIST", "secret/none", "", "X-Vault-Wrap-TTL", "60"); code != 404 {
		t.Errorf("an empty list is wrapped: %d", code)
	}
	if code, _ := d.do("PUT", "secret/b", `{"x":1}`, "X-Vault-Wrap-TTL", "60"); code != 204 {
		t.Errorf("nothing is wrapped: %d", code)
	}
	unrelated := fmt.Sprint(d.wrapped("GET", "secret/a", "")["token"])
	_, made := d.do("POST", "auth/token/create", `{"policies":["none"],"no_default_policy":true}`)
	weak := fmt.Sprint(made["auth"].(map[string]any)["client_token"])
	if code, _ := d.do("POST", "sys/wrapping/unwrap", `{"token":"`+unrelated+`"}`, "X-Vault-Token", weak); code != 403 {
		t.Errorf("by a token without the right: %d", code)
	}
	if code, _ := d.do("GET", "secret/a", "", "X-Vault-Token", unrelated); code != 403 {
		t.Errorf("a wrapping token reads: %d", code)
	}
}

// One of many who unwrap at once gets the answer, whichever way they ask.
func TestUnwrapOnce(t *testing.T) {
	d := openDoor(t)
	for round := range 10 {
		id := fmt.Sprint(d.wrapped("POST", "sys/wrapping/wrap", `{"a":1}`)["token"])
		var got atomic.Int64
		var wg sync.WaitGroup
		for way := range 6 {
			wg.Go(func() {
				var code int
				switch way % 3 {
				case 0:
					code, _ = d.raw("POST", "sys/wrapping/unwrap", "", id)
				case 1:
					code, _ = d.raw("POST", "sys/wrapping/unwrap", `{"token":"`+id+`"}`, d.root)
				case 2:
					code, _ = d.raw("GET", "cubbyhole/response", "", id)
				}
				if code == 200 {
					got.Add(1)
				}
			})
		}
		wg.Wait()
		if got.Load() != 1 {
			t.Errorf("round %d: %d got the answer", round, got.Load())
		}
	}
}
