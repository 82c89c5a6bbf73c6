package vaultapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/api/hothttp"
)

// declined counts what the hot path left to net/http.
type declined struct {
	*Hot
	n atomic.Int32
}

func (d *declined) Serve(c *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
	o := d.Hot.Serve(c, r)
	if o == hothttp.Decline {
		d.n.Add(1)
	}
	return o
}

// hotDoor serves an API on a port as the product does: hot path first, net/http behind it.
func hotDoor(t testing.TB, a *API, wrap ...func(http.Handler) http.Handler) (addr string, left *declined) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	left = &declined{Hot: a.Hot()}
	s, err := hothttp.New(l, hothttp.Config{Handler: left})
	if err != nil {
		t.Fatal(err)
	}
	var h http.Handler = a
	for _, w := range wrap {
		h = w(h)
	}
	behind := httptest.NewUnstartedServer(h)
	_ = behind.Listener.Close()
	behind.Listener = s.Fallback()
	behind.Start()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		behind.Close()
	})
	return l.Addr().String(), left
}

var changing = regexp.MustCompile(`"(request_id|client_token|accessor|created_time)":"[^"]*"`)

// ask sends one request on a connection of its own and returns head and body without what differs each time.
func ask(t *testing.T, addr, raw string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(nc, raw); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("Date") == "" {
		t.Errorf("no Date in the answer to %q", raw)
	}
	resp.Header.Del("Date")
	_, length := resp.Header["Content-Length"]
	resp.Header.Del("Content-Length")
	return fmt.Sprintln(resp.Status, resp.Header, length, string(changing.ReplaceAll(body, []byte(`"$1":""`))))
}

// TestHotAnswersAsNetHTTP gives both paths the same requests and compares status, headers and body.
func TestHotAnswersAsNetHTTP(t *testing.T) {
	d := openDoor(t)
	a := d.srv.Config.Handler.(*API)
	addr, left := hotDoor(t, a)
	slow := strings.TrimPrefix(d.srv.URL, "http://")
	d.do("PUT", "sys/policies/acl/none", `{"policy":"path \"secret/none\" { capabilities = [\"read\"] }"}`)
	_, body := d.do("POST", "auth/token/create", `{"policies":["none"],"no_default_policy":true}`)
	weak, _ := body["auth"].(map[string]any)["client_token"].(string)
	d.do("PUT", "secret/a", `{"x":1}`)
	for _, test := range []struct {
		method, path, token, body string
		hot                       bool
	}{
		{"GET", "secret/a", d.root, "", true},
		{"GET", "secret/nothing", d.root, "", true},
		{"GET", "secret/a", weak, "", true},
		{"GET", "secret/a", "", "", true},
		{"GET", "secret/a", "hvs.nobody", "", true},
		{"GET", "nowhere/a", d.root, "", true},
		{"PUT", "secret/b", d.root, `{"x":"y"}`, true},
		{"POST", "secret/b", d.root, `{"x":"y"}`, true},
		{"PUT", "secret/b", weak, `{"x":"y"}`, true},
		{"PUT", "secret/b", d.root, `{"x":`, true},
		{"PUT", "secret/b", d.root, ``, true},
		{"PUT", "secret/b", d.root, `a=b`, false},
		{"PUT", "secret/b/", d.root, `{"x":"y"}`, false},
		{"PUT", "kv2/data/c", d.root, `{"data":{"x":"y"}}`, true},
		{"GET", "kv2/data/c", d.root, "", true},
		{"GET", "kv2/data/c?version=1", d.root, "", false},
		{"GET", "kv2/metadata/?list=true", d.root, "", false},
		{"POST", "auth/token/create", d.root, `{"ttl":"1h"}`, true},
		{"GET", "auth/token/lookup-self", weak, "", true},
		{"GET", "sys/mounts/secret", d.root, "", false},
		{"GET", "sys/health?standbyok=true", "", "", false},
		{"GET", "secret/../secret/a", d.root, "", false},
		{"DELETE", "secret/b", d.root, "", false},
		{"LIST", "secret/", d.root, "", false},
	} {
		name := test.method + " " + test.path
		raw := fmt.Sprintf("%s /v1/%s HTTP/1.1\r\nHost: x\r\nX-Vault-Request: true\r\nContent-Length: %d\r\n", test.method,
			test.path, len(test.body))
		if test.token != "" {
			raw += "X-Vault-Token: " + test.token + "\r\n"
		}
		raw += "\r\n" + test.body
		before := left.n.Load()
		got, want := ask(t, addr, raw), ask(t, slow, raw)
		if got != want && !strings.Contains(test.path, "health") { // which tells the time
			if strings.HasPrefix(test.path, "kv2/data/c") { // one version more
				got, want = strings.ReplaceAll(got, `"version":2`, `"version":1`),
					strings.ReplaceAll(want, `"version":2`, `"version":1`)
			}
			if got != want {
				t.Errorf("%s:\n hot %s\nslow %s", name, got, want)
			}
		}
		usual := test.method == "GET" || test.method == "PUT" || test.method == "POST"
		if usual && (left.n.Load() == before) != test.hot {
			t.Errorf("%s: by the hot path %t, want %t", name, !test.hot, test.hot)
		}
	}
	// A sealed server answers the same on both, and at once.
	d.do("PUT", "sys/seal", "")
	raw := "GET /v1/secret/a HTTP/1.1\r\nHost: x\r\nX-Vault-Token: " + d.root + "\r\n\r\n"
	if got, want := ask(t, addr, raw), ask(t, slow, raw); got != want || !strings.HasPrefix(got, "503") {
		t.Errorf("sealed:\n hot %s\nslow %s", got, want)
	}
}

// TestWithin is the context of hot requests against what a context promises.
func TestWithin(t *testing.T) {
	w := &within{deadline: time.Now().Add(-time.Second)}
	if w.Err() == nil {
		t.Error("no error past the deadline")
	}
	<-w.Done()
	w = &within{deadline: time.Now().Add(time.Hour)}
	if w.Err() != nil {
		t.Error("ended before the deadline")
	}
	child, cancel := context.WithCancel(w)
	defer cancel()
	select {
	case <-child.Done():
		t.Error("a child ended before")
	default:
	}
	w.release()
	<-child.Done()
	if w.Err() == nil {
		t.Error("no error after the release")
	}
}
