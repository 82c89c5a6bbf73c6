package vault

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A request is sent again as often as it was said, with its body, and not after answers that stay.
func TestRetries(t *testing.T) {
	var asked int
	var bodies []string
	status := []int{503, 412, 200}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		w.WriteHeader(status[min(asked, len(status)-1)])
		asked++
	}))
	defer s.Close()
	for _, c := range []struct {
		retries int
		status  []int
		asked   int
	}{{2, []int{503, 412, 200}, 3}, {0, []int{503}, 1}, {2, []int{403}, 1}, {2, []int{501}, 1}} {
		asked, bodies, status = 0, nil, c.status
		client, err := New(Config{Address: s.URL, Retries: c.retries})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Do(t.Context(), "PUT", "x", nil, map[string]int{"a": 1})
		if (err == nil) != (c.status[c.asked-1] == 200) || asked != c.asked {
			t.Errorf("%+v: asked %d times, %v", c, asked, err)
		}
		for _, body := range bodies {
			if body != `{"a":1}` {
				t.Errorf("a body was %q", body)
			}
		}
	}
}

// The environment's words for the way to the server.
func TestWayFromEnv(t *testing.T) {
	env := map[string]string{"VAULT_ADDR": "http://a:1", "VAULT_AGENT_ADDR": "http://b:2", "VAULT_PROXY_ADDR": "http://p:3", "VAULT_MFA": "m:1,n", "VAULT_DISABLE_REDIRECTS": "true",
		"VAULT_SRV_LOOKUP": "1", "VAULT_MAX_RETRIES": "4"}
	c, err := FromEnv(func(name string) string { return env[name] })
	if err != nil || c.Address != "http://b:2" || c.Proxy != "http://p:3" || len(c.MFA) != 2 || !c.NoRedirects || !c.SRV || c.Retries != 4 {
		t.Errorf("%+v, %v", c, err)
	}
	for name, value := range map[string]string{"VAULT_MAX_RETRIES": "-1", "VAULT_DISABLE_REDIRECTS": "perhaps", "VAULT_SRV_LOOKUP": "x"} {
		if _, err := FromEnv(func(n string) string { return map[string]string{name: value}[n] }); err == nil {
			t.Errorf("%s=%s is taken", name, value)
		}
	}
	if _, err := New(Config{Proxy: "nowhere"}); err == nil {
		t.Error("a proxy without a host is taken")
	}
	redirects := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		redirects++
		http.Redirect(w, r, "/v1/other", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	client, err := New(Config{Address: s.URL, NoRedirects: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(t.Context(), "GET", "x", nil, nil); err == nil || redirects != 1 {
		t.Errorf("redirected %d times, %v", redirects, err)
	}
}
