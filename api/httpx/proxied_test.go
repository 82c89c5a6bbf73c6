package httpx

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
)

// TestProxied: whose header is believed, in both versions; who is slow keeps nobody out; who is not allowed is cut.
func TestProxied(t *testing.T) {
	here, elsewhere := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	one := "PROXY TCP4 192.0.2.7 192.0.2.1 4711 8200\r\n"
	head := proxyproto.HeaderProxyFromAddrs(2, &net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 4711},
		&net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 8200})
	raw, err := head.Format()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		who  Proxied
		head string
		want string // the address that the handler sees; "": the connection ends
	}{
		"always":             {Proxied{Any: true}, one, "192.0.2.7"},
		"always, version 2":  {Proxied{Any: true}, string(raw), "192.0.2.7"},
		"always, none":       {Proxied{Any: true}, "", "127.0.0.1"},
		"always, wrong":      {Proxied{Any: true}, "PROXY TCP4 nonsense\r\n", ""},
		"believed":           {Proxied{From: here}, one, "192.0.2.7"},
		"not believed":       {Proxied{From: elsewhere}, one, "127.0.0.1"},
		"not believed, none": {Proxied{From: elsewhere}, "", "127.0.0.1"},
		"denied":             {Proxied{From: elsewhere, Deny: true}, one, ""},
		"denied, none":       {Proxied{From: elsewhere, Deny: true}, "", ""},
		"allowed":            {Proxied{From: here, Deny: true}, one, "192.0.2.7"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewServer(ServerConfig{Name: "test", Listen: []Listen{{Address: "127.0.0.1:0", Proxied: &test.who}},
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Bind(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			t.Cleanup(func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
			slow, err := net.Dial("tcp", s.Addrs()[0].String()) // says nothing
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = slow.Close() })
			c, err := net.Dial("tcp", s.Addrs()[0].String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			// a cut connection shows below
			_, _ = io.WriteString(c, test.head+"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				if test.want != "" {
					t.Fatal(err)
				}
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" && resp.StatusCode < 400 || test.want != "" && !strings.HasPrefix(string(body), test.want+":") {
				t.Errorf("the handler sees %s (%d), want %q", body, resp.StatusCode, test.want)
			}
		})
	}
}
