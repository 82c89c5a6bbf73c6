package vaultapi

import (
	"net/http"
	"strings"
	"testing"
)

// Who passed a quota is told when to come again, and of the limit where that is switched on.
func TestQuotaHeaders(t *testing.T) {
	d := openDoor(t)
	d.do("POST", "secret/a", `{"x":1}`)
	d.do("POST", "sys/quotas/rate-limit/kv", `{"rate":1,"interval":"1h","block_interval":"90s","path":"secret"}`)
	d.do("POST", "sys/quotas/config", `{"enable_rate_limit_response_headers":true}`)
	get := func() *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), "GET", d.srv.URL+"/v1/secret/a", strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Vault-Token", d.root)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if r := get(); r.StatusCode != 200 {
		t.Errorf("the first request: %s", r.Status)
	}
	r := get()
	if r.StatusCode != 429 || r.Header.Get("Retry-After") != "90" || r.Header.Get("X-Ratelimit-Limit") != "1" ||
		r.Header.Get("X-Ratelimit-Remaining") != "0" {
		t.Errorf("past the quota: %s %v", r.Status, r.Header)
	}
	if code, body := d.do("GET", "secret/a", ""); code != 429 ||
		body["errors"].([]any)[0] != `request path "secret/a": rate limit quota exceeded` {
		t.Errorf("%d %v", code, body)
	}
}
