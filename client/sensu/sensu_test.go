package sensu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

func TestReadResources(t *testing.T) {
	list, err := ReadResources([]byte("# a comment\n---\ntype: Check\nmetadata: {name: a}\nspec:\n  interval: 10\n  " +
		"ttl: 4294967296\n---\ntype: Namespace\napi_version: core/v2\nspec: {name: dev}\n"))
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	for _, c := range []struct{ text, path, body string }{
		{`{"type":"CheckConfig","api_version":"core/v2","metadata":{"name":"a","namespace":"dev"},"spec":{` +
			`"interval":4294967296}}`, "/api/core/v2/namespaces/dev/checks/a",
			`{"interval":4294967296,"metadata":{"name":"a","namespace":"dev"}}`},
		{"type: User\nspec: {username: ann}", "/api/core/v2/users/ann", `{"username":"ann"}`},
		{"type: Namespace\nspec: {name: dev}", "/api/core/v2/namespaces/dev", `{"name":"dev"}`},
		{"type: Asset\nmetadata: {name: a/b}\nspec: {}", "/api/core/v2/namespaces/default/assets/a%2Fb",
			`{"metadata":{"name":"a/b"}}`},
		{"type: Silenced\nspec: {check: cpu}", "/api/core/v2/namespaces/default/silenced/%2A:cpu", `{"check":"cpu"}`},
		{"type: Event\nspec: {entity: {metadata: {name: w}}, check: {metadata: {name: c}}}",
			"/api/core/v2/namespaces/default/events/w/c", ""},
		{"type: ClusterRole\nmetadata: {name: x}\nspec: {}", "/api/core/v2/clusterroles/x", ""},
		{"type: EntityConfig\napi_version: core/v3\nmetadata: {name: x}\nspec: {a: 1}",
			"/api/core/v3/namespaces/default/entity-configs/x",
			`{"type":"EntityConfig","api_version":"core/v3","metadata":{"name":"x"},"spec":{"a":1}}`},
		{"type: Secret\napi_version: secrets/v1\nmetadata: {name: x}\nspec: {}",
			"/api/enterprise/secrets/v1/namespaces/default/secrets/x", ""},
		{"type: PostgresConfig\napi_version: store/v1\nmetadata: {name: x}\nspec: {}", "/api/enterprise/store/v1/provider/x",
			""},
		{"type: TessenConfig\nspec: {opt_out: true}", "/api/core/v2/tessen", `{"opt_out":true}`},
	} {
		list, err := ReadResources([]byte(c.text))
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %v", c.text, err)
		}
		path, body, err := list[0].Request("default")
		if err != nil || path != c.path || c.body != "" && string(body) != c.body {
			t.Errorf("%s: %s %s %v", c.text, path, body, err)
		}
	}
	for text, says := range map[string]string{
		"type: [": "object 1", `{"type":`: "object 1", "spec: {}": "type is missing", "a": "object 1",
		"- type: Check": "object 1", "type: Check\n? [a]\n: b": "object 1",
		"type: Check\nspec: 3": "spec",
	} {
		if _, err := ReadResources([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"type: Carrot\nspec: {}", "type: Check\nspec: {}"} {
		list, err := ReadResources([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := list[0].Request("default"); errkind.Of(err) != errkind.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// server answers like the monitor, as far as the client's own doing is concerned.
func server(t *testing.T, f func(w http.ResponseWriter, r *http.Request)) *Client {
	t.Helper()
	var logins atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/auth" {
			if user, password, _ := r.BasicAuth(); user != "admin" || password != "secret" {
				http.Error(w, "Request unauthorized", http.StatusUnauthorized)
				return
			}
			fmt.Fprintf(w, `{"access_token":"t%d"}`, logins.Add(1))
			return
		}
		f(w, r)
	}))
	t.Cleanup(s.Close)
	c, err := New(Config{Address: s.URL, User: "admin", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A token that has run out is replaced once, and the request is sent again.
func TestTokens(t *testing.T) {
	var asked []string
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Authorization"))
		if r.Header.Get("Authorization") == "Bearer t1" && len(asked) > 1 || r.URL.Path == "/never" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"Message":"invalid token","Code":5}`)
			return
		}
		fmt.Fprint(w, `{}`)
	})
	for range 3 {
		if _, _, err := c.Do(t.Context(), "GET", "/x", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"Bearer t1", "Bearer t1", "Bearer t2", "Bearer t2"}; !slices.Equal(asked, want) {
		t.Errorf("%v, not %v", asked, want)
	}
	_, _, err := c.Do(t.Context(), "GET", "/never", nil, nil)
	var refused *Error
	if !errors.As(err, &refused) || refused.Status != 401 || refused.Code != 5 ||
		!strings.Contains(err.Error(), "log in with") {
		t.Error(err)
	}
	c.cfg.Password = "wrong"
	c.access = ""
	if _, _, err := c.Do(t.Context(), "GET", "/x", nil, nil); !errors.As(err, &refused) || refused.Path != "/auth" {
		t.Error(err)
	}
}

func TestListPages(t *testing.T) {
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); q.Get("continue") {
		case "":
			if q.Get("limit") == "" || q.Get("labelSelector") != "a == b" {
				t.Error(q)
			}
			w.Header().Set("Sensu-Continue", "next")
			fmt.Fprint(w, `[1,2]`)
		case "next":
			fmt.Fprint(w, `[3]`)
		}
	})
	var got []string
	for raw, err := range c.List(t.Context(), "/x", url.Values{"labelSelector": {"a == b"}}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(raw))
	}
	if !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Error(got)
	}
}

// A stream that ends is opened again; a refusal ends following.
func TestFollow(t *testing.T) {
	var opened atomic.Int64
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch opened.Add(1) {
		case 1:
			fmt.Fprint(w, "\n{\"n\":1}\n\n{\"error\":{\"message\":\"too slow\",\"code\":0}}\n")
		case 2:
			fmt.Fprint(w, "{\"n\":2}\n")
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"Message":"no","Code":4}`)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	for raw, err := range c.Follow(ctx, nil) {
		if err != nil {
			got = append(got, "error")
			continue
		}
		got = append(got, string(raw))
	}
	if want := []string{`{"n":1}`, "error", `{"n":2}`, "error", "error"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestWrongConfig(t *testing.T) {
	for _, address := range []string{"ftp://x", "http://", "://"} {
		if _, err := New(Config{Address: address}); errkind.Of(err) != errkind.Invalid {
			t.Errorf("%s: %v", address, err)
		}
	}
	c, err := New(Config{Address: "127.0.0.1:1", Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Do(t.Context(), "GET", "/x", nil, nil); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Error(err)
	}
	env := FromEnv(func(name string) string {
		return map[string]string{"SENSU_API_URL": "http://s", "SENSU_API_KEY": "k", "CORBEL_MONITOR_API_KEY": "c"}[name]
	})
	if env.Address != "http://s" || env.APIKey != "c" {
		t.Errorf("%+v", env)
	}
}

func FuzzReadResources(f *testing.F) {
	f.Add([]byte("type: Check\nmetadata: {name: a}\nspec: {a: &x [1], b: *x}\n---\n{}"))
	f.Add([]byte(`{"type":"Event","spec":{"entity":{"metadata":{"name":1}}}}{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := ReadResources(text)
		if err != nil {
			return
		}
		for _, r := range list {
			path, body, err := r.Request("default")
			if err != nil {
				continue
			}
			if !strings.HasPrefix(path, "/api/") || !json.Valid(body) || strings.ContainsAny(path, " ?#\n") {
				t.Fatalf("%s %s", path, body)
			}
		}
	})
}
