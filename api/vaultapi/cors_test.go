package vaultapi

import (
	"net/http"
	"testing"
)

// Pages of other origins come in only where they were allowed, and never by default.
func TestCORS(t *testing.T) {
	d := openDoor(t)
	ask := func(method, origin, wanted string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, d.srv.URL+"/v1/sys/mounts", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Vault-Token", d.root)
		req.Header.Set("Origin", origin)
		if wanted != "" {
			req.Header.Set("Access-Control-Request-Method", wanted)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if r := ask("GET", "https://a.example", ""); r.StatusCode != 200 || r.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("switched off: %s %v", r.Status, r.Header)
	}
	if code, body := d.do("PUT", "sys/config/cors",
		`{"allowed_origins":["https://a.example"],"allowed_headers":["X-Mine"]}`); code != 204 {
		t.Fatalf("%d %v", code, body)
	}
	if r := ask("GET", "https://a.example", ""); r.StatusCode != 200 ||
		r.Header.Get("Access-Control-Allow-Origin") != "https://a.example" || r.Header.Get("Vary") != "Origin" {
		t.Errorf("allowed: %s %v", r.Status, r.Header)
	}
	if r := ask("OPTIONS", "https://a.example", "PUT"); r.StatusCode != 204 ||
		r.Header.Get("Access-Control-Allow-Methods") != corsMethods {
		t.Errorf("asked before: %s %v", r.Status, r.Header)
	}
	for _, wanted := range []string{"", "PUT"} {
		method := "GET"
		if wanted != "" {
			method = "OPTIONS"
		}
		if r := ask(method, "https://a.example.evil", wanted); r.StatusCode != 403 ||
			r.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("another origin, %s: %s %v", method, r.Status, r.Header)
		}
	}
}
