package vault

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
	env := map[string]string{"VAULT_ADDR": "http://a:1", "VAULT_AGENT_ADDR": "http://b:2",
		"VAULT_PROXY_ADDR": "http://p:3", "VAULT_MFA": "m:1,n", "VAULT_DISABLE_REDIRECTS": "true",
		"VAULT_SRV_LOOKUP": "1", "VAULT_MAX_RETRIES": "4", "VAULT_RATE_LIMIT": "2.5:7"}
	c, err := FromEnv(func(name string) string { return env[name] })
	if err != nil || c.Address != "http://b:2" || c.Proxy != "http://p:3" || len(c.MFA) != 2 || !c.NoRedirects || !c.SRV ||
		c.Retries != 4 || c.RateLimit != 2.5 || c.RateBurst != 7 {
		t.Errorf("%+v, %v", c, err)
	}
	for name, value := range map[string]string{"VAULT_MAX_RETRIES": "many", "VAULT_DISABLE_REDIRECTS": "perhaps",
		"VAULT_SRV_LOOKUP": "x"} {
		if _, err := FromEnv(func(n string) string { return map[string]string{name: value}[n] }); err == nil {
			t.Errorf("%s=%s is taken", name, value)
		}
	}
	env = map[string]string{"VAULT_MAX_RETRIES": "-1", "VAULT_RATE_LIMIT": "2.5:7", "BAO_RATE_LIMIT": "0.5"}
	if c, err := FromEnv(func(name string) string { return env[name] }); err != nil || c.Retries != 0 ||
		c.RateLimit != 0.5 || c.RateBurst != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, text := range []string{"0", "-1", "x", "1:", "1:0", "1:x", ":1", "NaN", "1:2:3"} {
		if _, err := FromEnv(func(n string) string { return map[string]string{"VAULT_RATE_LIMIT": text}[n] }); err == nil ||
			!strings.Contains(err.Error(), "VAULT_RATE_LIMIT") {
			t.Errorf("VAULT_RATE_LIMIT=%s: %v", text, err)
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

// What is beyond the rate waits; what would wait past its deadline is refused and not sent.
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		c, err := New(Config{Address: "http://a:1", RateLimit: 0.5, RateBurst: 2, Timeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		c.http.Transport = roundTrip(func(*http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
		})
		start := time.Now()
		for want, after := range []time.Duration{0, 0, 2 * time.Second, 4 * time.Second} {
			if _, err := c.WithToken("x").Do(t.Context(), "GET", "x", nil, nil); err != nil || sent != want+1 ||
				time.Since(start) != after {
				t.Errorf("request %d: %v after %s, %d sent", want+1, err, time.Since(start), sent)
			}
		}
		c.cfg.Timeout = time.Second
		if _, err := c.Do(t.Context(), "GET", "x", nil, nil); err == nil ||
			!strings.HasPrefix(err.Error(), "VAULT_RATE_LIMIT") || sent != 4 || time.Since(start) != 4*time.Second {
			t.Errorf("past its deadline: %v after %s, %d sent", err, time.Since(start), sent)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// No answer at all is tried again, a certificate that is not believed is not.
func TestRetriesOfErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		sent int
	}{{errors.New("connection refused"), 3}, {&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, 1},
		{tls.RecordHeaderError{Msg: "no TLS"}, 1}} {
		synctest.Test(t, func(t *testing.T) {
			client, err := New(Config{Address: "http://a:1", Retries: 2})
			if err != nil {
				t.Fatal(err)
			}
			sent, start := 0, time.Now()
			client.http.Transport = roundTrip(func(*http.Request) (*http.Response, error) { sent++; return nil, c.err })
			if _, err := client.Do(t.Context(), "PUT", "x", nil, map[string]int{"a": 1}); !errors.Is(err, c.err) ||
				sent != c.sent {
				t.Errorf("%v: sent %d times, %v", c.err, sent, err)
			}
			if want := time.Duration(c.sent-1) * 1125 * time.Millisecond; time.Since(start) != want {
				t.Errorf("%v: paused for %s, want %s", c.err, time.Since(start), want)
			}
		})
	}
}
