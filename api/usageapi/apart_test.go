package usageapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// ask sends a request as a token, and returns the status and the body.
func ask(t testing.TB, api *API, token, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/v1/usage/"+path, strings.NewReader(body))
	r.Header.Set("X-Consul-Token", token)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// fill gives a plane one tenant with something of everything, all of which has its name in it.
func fill(t testing.TB, api *API) {
	t.Helper()
	must := func(token, method, path, body string) {
		t.Helper()
		if code, got := ask(t, api, token, method, path, body); code/100 != 2 {
			t.Fatalf("%s %s: %d %s", method, path, code, got)
		}
	}
	must("all", "PUT", "products/calls", `{"kind":"sum","tags":["team"],"late":"1h"}`)
	must("acme", "POST", "events", `[{"id":"acme-1","source":"acme-gate","tenant":"acme","product":"calls","value":5,
		"tags":{"team":"acme-red"}},{"id":"acme-2","source":"acme-gate","tenant":"acme","product":"calls","value":1,
		"time":"2020-01-01T00:00:00Z"}]`)
	must("acme", "PUT", "limits/acme-limit", `{"tenant":"acme","product":"calls","window":"month","value":10}`)
	must("acme", "PUT", "tenants/acme", `{"tz":"Europe/Berlin"}`)
	must("acme", "POST", "corrections",
		`{"kind":"void","tenant":"acme","product":"calls","source":"acme-gate","ids":["acme-1"],"reason":"acme-test"}`)
}

// TestTenantsApart: whatever a token of one tenant asks for, it sees nothing of another one, and changes nothing there.
func TestTenantsApart(t *testing.T) {
	api := newAPI(t)
	fill(t, api)
	for _, path := range []string{"estimates?tenant=acme&product=calls", "estimates?product=calls",
		"estimates?tenant=acme&product=calls&by=team", "estimates?tenant=acme&product=calls&step=1h&window=24h", "products",
		"products/calls", "tenants", "top?product=calls", "top?product=calls&by=team", "top?tenant=acme&product=calls",
		"explain?tenant=acme&source=acme-gate&id=acme-1", "explain?source=acme-gate&id=acme-1", "limits",
		"limits/acme-limit", "limits/acme-limit/history", "corrections", "corrections/1", "periods", "periods?tenant=acme",
		"accuracy", "accuracy?tenant=acme", "metrics"} {
		if code, _ := ask(t, api, "all", "GET", path, ""); code >= 500 {
			t.Errorf("%s: %d", path, code)
		}
		for _, token := range []string{"other", "acm", "acme2"} {
			code, got := ask(t, api, token, "GET", path, "")
			if said := strings.ReplaceAll(got, `on tenant "acme"`, ""); strings.Contains(said, "acme") || code >= 500 {
				t.Errorf("%s as %q: %d %.300s", path, token, code, got)
			}
		}
	}
	for _, row := range [][3]string{
		{"POST", "events", `{"id":"x","source":"s","tenant":"acme","product":"calls","value":1}`},
		{"PUT", "limits/acme-limit", `{"tenant":"other","product":"calls","window":"month","value":1}`},
		{"PUT", "limits/mine", `{"tenant":"acme","product":"calls","window":"month","value":1}`},
		{"DELETE", "limits/acme-limit", ""}, {"PUT", "tenants/acme", `{"tz":"UTC"}`},
		{"PUT", "products/calls", `{"kind":"max"}`}, {"DELETE", "products/calls", ""},
		{"POST", "corrections", `{"kind":"void","tenant":"acme","product":"calls","source":"acme-gate","ids":["acme-1"],
			"reason":"x"}`},
		{"POST", "corrections", `{"kind":"replace","tenant":"other","product":"calls","source":"s","ids":["1"],
			"reason":"x","events":[{"id":"x","source":"s","tenant":"acme","product":"calls","value":1}]}`},
	} {
		if code, got := ask(t, api, "other", row[0], row[1], row[2]); code/100 == 2 {
			t.Errorf("%s %s as another tenant: %d %s", row[0], row[1], code, got)
		}
	}
}

// FuzzRequests: no request makes the plane fail, and a token of another tenant sees nothing of this one.
func FuzzRequests(f *testing.F) {
	api := newAPI(f)
	fill(f, api)
	methods := []string{"GET", "POST", "PUT", "DELETE"}
	types := []string{"application/json", "application/cloudevents+json", "application/cloudevents-batch+json",
		"application/x-ndjson", ""}
	encodings := []string{"", "gzip", "zstd"}
	event := `{"id":"1","source":"s","tenant":"other","product":"calls","value":5,"tags":{"team":"x"},"time":1}`
	for _, seed := range []struct {
		method, kind, encoding uint8
		path, body             string
	}{
		{1, 0, 0, "events", event}, {1, 0, 1, "events", zipped(event, "gzip")}, {1, 0, 2, "events", zipped(event, "zstd")},
		{1, 3, 0, "events", event + "\n" + event}, {1, 0, 0, "batch", "\x01\x02\x03"},
		{1, 1, 0, "events", `{"specversion":"1.0","id":"1","source":"s","type":"calls","subject":"other",
			"data":{"value":1}}`},
		{2, 0, 0, "products/p", `{"kind":"unique","identity":["a"],"windows":["5m"],"precision":14,"topk":3}`},
		{2, 0, 0, "limits/l", `{"tenant":"other","product":"calls","window":"month","at":[0.8,1],"value":9}`},
		{2, 0, 0, "tenants/other", `{"tz":"Asia/Kathmandu"}`},
		{1, 0, 0, "corrections", `{"kind":"recount","tenant":"other","product":"calls","from":"2026-01-01",
			"to":"2026-01-02","reason":"x"}`},
		{0, 0, 0, "estimates?tenant=other&product=calls&window=month&by=team&step=1d&tz=Europe/Berlin", ""},
		{0, 0, 0, "top?product=calls&by=team&limit=5", ""}, {0, 0, 0, "explain?tenant=other&source=s&id=1", ""},
	} {
		f.Add(seed.method, seed.kind, seed.encoding, seed.path, seed.body)
	}
	f.Fuzz(func(t *testing.T, method, kind, encoding uint8, path, body string) {
		r, err := http.NewRequestWithContext(t.Context(), methods[int(method)%len(methods)],
			"http://h/v1/usage/"+path, strings.NewReader(body))
		if err != nil || strings.Contains(path, "wait") || strings.Contains(path+body, "acme") {
			return
		}
		r.Header.Set("X-Consul-Token", "other")
		r.Header.Set("Content-Type", types[int(kind)%len(types)])
		r.Header.Set("Content-Encoding", encodings[int(encoding)%len(encodings)])
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError || strings.Contains(w.Body.String(), "acme") {
			t.Fatal(fmt.Sprint(w.Code, " ", w.Body))
		}
	})
}
