package vault

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestRedirect: a standby's 307 is followed with token and body; one that leaves TLS is not.
func TestRedirect(t *testing.T) {
	var token, body string
	active := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		token, body = r.Header.Get("X-Vault-Token"), string(b)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer active.Close()
	away := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, active.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	standby, secure := httptest.NewServer(away), httptest.NewTLSServer(away)
	defer standby.Close()
	defer secure.Close()

	c, err := New(Config{Address: standby.URL, Token: "tok"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if a, err := c.Do(t.Context(), "PUT", "secret/a", nil, map[string]string{"a": "b"}); err != nil || !a.Empty() {
		t.Fatalf("%v, %v", a, err)
	}
	if token != "tok" || body != `{"a":"b"}` {
		t.Errorf("the active server saw token %q and body %s", token, body)
	}
	token = ""
	if c, err = New(Config{Address: secure.URL, Token: "tok", SkipVerify: true}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var refused *Error
	if _, err := c.Do(t.Context(), "PUT", "secret/a", nil, nil); !errors.As(err, &refused) ||
		refused.Status != http.StatusTemporaryRedirect || token != "" {
		t.Errorf("from TLS to none: %v; token %q went along", err, token)
	}
}

// TestErrors: what the server says is kept, whatever its form.
func TestErrors(t *testing.T) {
	answer := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, answer)
	}))
	defer s.Close()
	c, err := New(Config{Address: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for text, want := range map[string]string{
		`{"errors":["one","two"]}`:                          "Code: 404. Errors:\n\n* one\n* two",
		`{"errors":[]}`:                                     "Code: 404. Errors:\n\n",
		"<html>proxy</html>":                                "the answer is no JSON: <html>proxy</html>",
		`{"data":{"metadata":{"version":1}}}`:               "Code: 404",
		"Client sent an HTTP request to an HTTPS server.\n": "* the server speaks TLS: set VAULT_ADDR=https://…",
		`{"data":null,"warnings":["other path"]}`:           "Code: 404",
		`{"errors":["gone"],"data":{"k":"kept"}}`:           "* gone",
	} {
		answer = text
		_, err := c.Do(t.Context(), "GET", "a b", nil, nil)
		var refused *Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "/v1/a%20b") {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if has := strings.Contains(text, `"data"`); has != (refused.Answer != nil) {
			t.Errorf("%s: answer %v", text, refused.Answer)
		}
	}
}

// TestFromEnv: BAO_ wins over VAULT_; what cannot be read is named.
func TestFromEnv(t *testing.T) {
	get := func(env map[string]string) func(string) string { return func(name string) string { return env[name] } }
	c, err := FromEnv(get(map[string]string{"VAULT_ADDR": "http://v", "BAO_ADDR": "http://b", "VAULT_TOKEN": "t",
		"VAULT_CLIENT_TIMEOUT": "5", "BAO_SKIP_VERIFY": "true"}))
	if err != nil || c.Address != "http://b" || c.Token != "t" || c.Timeout != 5*time.Second || !c.SkipVerify {
		t.Errorf("%+v, %v", c, err)
	}
	for _, name := range []string{"VAULT_SKIP_VERIFY", "VAULT_CLIENT_TIMEOUT"} {
		if _, err := FromEnv(get(map[string]string{name: "perhaps"})); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{Address: "127.0.0.1:8200"}); err == nil {
		t.Error("an address without a scheme was taken")
	}
}
