package vaultapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// door is the API over memory.
type door struct {
	t    *testing.T
	srv  *httptest.Server
	root string
}

func sealedDoor(t *testing.T) *door {
	k, err := keeper.New(keeper.Config{Storage: memstore.New(), ClusterName: "test"})
	if err != nil {
		t.Fatal(err)
	}
	d := &door{t: t, srv: httptest.NewServer(New(Config{Keeper: k, Version: "1.20.0", StorageType: "inmem"}))}
	t.Cleanup(d.srv.Close)
	return d
}

func openDoor(t *testing.T) *door {
	d := sealedDoor(t)
	_, body := d.do("PUT", "sys/init", `{"secret_shares":1,"secret_threshold":1}`)
	d.root, _ = body["root_token"].(string)
	keys, _ := body["keys_base64"].([]any)
	if code, body := d.do("PUT", "sys/unseal", fmt.Sprintf(`{"key":%q}`, keys[0])); code != 200 ||
		body["sealed"] != false {
		t.Fatalf("unseal: %d %v", code, body)
	}
	for path, mount := range map[string]string{"secret": `{"type":"kv"}`,
		"kv2": `{"type":"kv","options":{"version":"2"}}`} {
		if code, body := d.do("POST", "sys/mounts/"+path, mount); code != 204 {
			t.Fatalf("mount: %d %v", code, body)
		}
	}
	return d
}

func (d *door) do(method, path, body string, headers ...string) (int, map[string]any) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.srv.URL+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if d.root != "" {
		req.Header.Set("X-Vault-Token", d.root)
	}
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
	var out map[string]any
	if len(text) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			d.t.Fatalf("%s %s answers %d %q: %v", method, path, resp.StatusCode, text, err)
		}
	}
	if resp.Header.Get("Cache-Control") != "no-store" {
		d.t.Errorf("%s %s may be cached", method, path)
	}
	return resp.StatusCode, out
}

func TestEnvelope(t *testing.T) {
	d := openDoor(t)
	if code, body := d.do("PUT", "secret/a", `{"x":"1"}`); code != 204 || body != nil {
		t.Errorf("a write: %d %v", code, body)
	}
	code, body := d.do("GET", "secret/a", "")
	for _, key := range []string{"request_id", "lease_id", "renewable", "lease_duration", "data", "wrap_info",
		"warnings", "auth"} {
		if _, ok := body[key]; !ok {
			t.Errorf("the envelope has no %s", key)
		}
	}
	if code != 200 || fmt.Sprint(body["data"]) != "map[x:1]" || body["lease_duration"] != 2764800.0 ||
		len(body["request_id"].(string)) != 36 {
		t.Errorf("a read: %d %v", code, body)
	}
	if _, body := d.do("GET", "sys/mounts", ""); body["secret/"] == nil ||
		body["data"].(map[string]any)["secret/"] == nil {
		t.Errorf("mounts are not at both places: %v", body)
	}
	code, body = d.do("POST", "auth/token/create", `{"ttl":"1h","policies":"default"}`)
	auth, _ := body["auth"].(map[string]any)
	if code != 200 || auth["lease_duration"] != 3600.0 || auth["token_type"] != "service" ||
		!strings.HasPrefix(auth["client_token"].(string), "hvs.") || auth["renewable"] != true {
		t.Errorf("a new token: %d %v", code, body)
	}
	if code, body := d.do("DELETE", "kv2/data/x", ""); code != 204 {
		t.Errorf("delete of nothing: %d %v", code, body)
	}
	d.do("POST", "kv2/data/x", `{"data":{"a":1}}`)
	d.do("DELETE", "kv2/data/x", "")
	if code, body := d.do("GET", "kv2/data/x", ""); code != 404 || body["data"] == nil || body["errors"] != nil {
		t.Errorf("a deleted version: %d %v", code, body)
	}
}

func TestStatusCodes(t *testing.T) {
	d := openDoor(t)
	d.do("PUT", "secret/a", `{"x":"1"}`)
	for _, test := range []struct {
		method, path, body string
		headers            []string
		code               int
	}{
		{"GET", "secret/a", "", nil, 200}, {"LIST", "secret", "", nil, 200}, {"GET", "secret?list=true", "", nil, 200},
		{"GET", "secret/?list=1", "", nil, 200},
		{"GET", "secret?scan=true", "", nil, 200}, {"SCAN", "secret", "", nil, 200},
		{"GET", "secret?scan=true&list=true", "", nil, 400}, {"GET", "secret?scan=x", "", nil, 400},
		{"GET", "secret?help=1", "", nil, 200}, {"GET", "secret/x?help=1", "", []string{"X-Vault-Token", ""}, 403},
		{"PUT", "sys/namespaces/sys", `{}`, nil, 400}, {"LIST", "sys/namespaces", "", nil, 404},
		{"GET", "secret?list=maybe", "", nil, 400}, {"LIST", "secret/none", "", nil, 404},
		{"GET", "secret/none", "", nil, 404}, {"GET", "none/x", "", nil, 404},
		{"PUT", "secret/dir/", `{"x":1}`, nil, 400}, {"PUT", "secret/b", "", nil, 400}, {"PUT", "secret/b", "{", nil, 400},
		{"PUT", "secret/b", "[1]", nil, 400},
		{"PUT", "secret/b", "x=1&y=2", []string{"Content-Type", "application/x-www-form-urlencoded"}, 204},
		{"PUT", "secret/b", `{"x":1}`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 204},
		{"PATCH", "kv2/data/x", `{}`, nil, 415},
		{"PATCH", "kv2/data/x", `{"data":{}}`, []string{"Content-Type", "application/merge-patch+json"}, 404},
		{"PATCH", "secret/a", `{"x":1}`, []string{"Content-Type", "application/merge-patch+json"}, 405},
		{"BREW", "secret/a", "", nil, 405},
		{"GET", "secret/%2e%2e/sys/mounts", "", nil, 400}, {"GET", "secret/a%00b", "", nil, 400},
		{"GET", "secret/a%0ab", "", nil, 400},
		{"GET", "secret/a", "", []string{"X-Vault-Token", "wrong"}, 403},
		{"GET", "secret/a", "", []string{"X-Vault-Token", "", "Authorization", "Bearer " + d.root}, 200},
		{"GET", "secret/a", "", []string{"X-Vault-Token", "", "Authorization", "Basic " + d.root}, 403},
		{"GET", "secret/a", "", []string{"X-Vault-Wrap-TTL", "-5"}, 400},
		{"GET", "sys/none", "", nil, 404}, {"POST", "sys/mounts/secret", `{"type":"kv"}`, nil, 400},
		{"GET", "sys/health", "", nil, 200},
		{"GET", "sys/health?activecode=299", "", nil, 299}, {"GET", "sys/health?activecode=x", "", nil, 400},
		{"HEAD", "sys/health?activecode=204", "", nil, 204},
		{"POST", "sys/health", "", nil, 405}, {"PUT", "sys/init", `{"secret_shares":1,"secret_threshold":1}`, nil, 400},
	} {
		code, body := d.do(test.method, test.path, test.body, test.headers...)
		if code != test.code {
			t.Errorf("%s %s %s %q: %d %v, want %d", test.method, test.path, test.body, test.headers, code, body, test.code)
		}
		if _, ok := body["errors"].([]any); code >= 400 && test.method != "HEAD" && !ok {
			t.Errorf("%s %s: an error without its list: %v", test.method, test.path, body)
		}
	}
	if _, body := d.do("GET", "secret/b", ""); fmt.Sprint(body["data"]) != "map[x:1]" {
		t.Errorf("a body that looks like JSON was taken for a form: %v", body)
	}
}

func TestSealedAndNotInitialised(t *testing.T) {
	d := sealedDoor(t)
	if code, _ := d.do("GET", "sys/health", ""); code != 501 {
		t.Errorf("health before init: %d", code)
	}
	if code, body := d.do("PUT", "sys/unseal", `{"key":"00ff"}`); code != 400 {
		t.Errorf("unseal before init: %d %v", code, body)
	}
	for _, body := range []string{`{}`, `{"secret_shares":5}`, `{"secret_shares":5,"secret_threshold":1}`,
		`{"secret_shares":300,"secret_threshold":3}`, `{"secret_shares":"x"}`} {
		if code, got := d.do("PUT", "sys/init", body); code != 400 {
			t.Errorf("init with %s: %d %v", body, code, got)
		}
	}
	_, first := d.do("PUT", "sys/init", `{"secret_shares":3,"secret_threshold":2}`)
	keys := first["keys"].([]any)
	if code, _ := d.do("GET", "sys/health?sealedcode=222", ""); code != 222 {
		t.Errorf("health while sealed: %d", code)
	}
	if code, body := d.do("GET", "secret/a", ""); code != 503 || fmt.Sprint(body["errors"]) != "[Vault is sealed]" {
		t.Errorf("a read while sealed: %d %v", code, body)
	}
	for _, step := range []struct {
		body     string
		code     int
		progress float64
		sealed   bool
	}{
		{`{"key":"zz"}`, 400, 0, true}, {`{}`, 400, 0, true}, {fmt.Sprintf(`{"key":%q}`, keys[0]), 200, 1, true},
		{`{"reset":true}`, 200, 0, true},
		{fmt.Sprintf(`{"key":%q}`, keys[2]), 200, 1, true}, {fmt.Sprintf(`{"key":%q}`, keys[1]), 200, 0, false},
	} {
		code, body := d.do("PUT", "sys/unseal", step.body)
		if code != step.code || (code == 200 && (body["progress"] != step.progress || body["sealed"] != step.sealed)) {
			t.Errorf("unseal with %s: %d %v", step.body, code, body)
		}
	}
	if code, _ := d.do("GET", "sys/health", ""); code != 200 {
		t.Errorf("health when unsealed: %d", code)
	}
}

func FuzzRequests(f *testing.F) {
	k, err := keeper.New(keeper.Config{Storage: memstore.New(), ClusterName: "test"})
	if err != nil {
		f.Fatal(err)
	}
	first, err := k.Init(f.Context(), 1, 1, "root")
	if err != nil {
		f.Fatal(err)
	}
	if _, err := k.Unseal(f.Context(), first.Shares[0]); err != nil {
		f.Fatal(err)
	}
	api := New(Config{Keeper: k})
	f.Add("PUT", "sys/mounts/x", []byte(`{"type":"kv"}`))
	f.Add("POST", "auth/token/create", []byte(`{"ttl":[]}`))
	f.Add("PATCH", "kv2/data/a", []byte(`{"data":{}}`))
	f.Add("LIST", "sys/policies/acl", []byte(nil))
	f.Fuzz(func(t *testing.T, method, path string, body []byte) {
		if strings.HasPrefix(path, "sys/seal") {
			return
		}
		r, err := http.NewRequest(method, "http://x/", strings.NewReader(string(body)))
		if err != nil {
			return
		}
		r.URL.Path = "/v1/" + path
		r.Header.Set("X-Vault-Token", "root")
		r.Header.Set("Content-Type", "application/merge-patch+json")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code == 500 {
			t.Errorf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
		}
	})
}
