package sensuapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/users"
	"github.com/gorilla/websocket"
)

// TestSessionRightsEnd: an agent that sends something each 10 ms, and never pauses, has no session any more within 5
// s of when the right to one was taken (row C12). Another agent's goes on.
func TestSessionRightsEnd(t *testing.T) {
	ca := certificate(t, "ca", 1, nil)
	for name, take := range map[string]func(t *testing.T, b *backend, revoked *atomic.Bool){
		"the user is disabled": func(t *testing.T, b *backend, _ *atomic.Bool) {
			user := *b.resources.View().Get("users", "", "agent").Object().(*monitor.User)
			user.Disabled = true
			write(t, b, objects.Op{Verb: objects.Put, Type: "users", Name: "agent", Encoded: tagproto.Append(nil, &user)})
		},
		"its groups have no role": func(t *testing.T, b *backend, _ *atomic.Bool) {
			user := *b.resources.View().Get("users", "", "agent").Object().(*monitor.User)
			user.Groups = []string{"visitors"}
			write(t, b, objects.Op{Verb: objects.Put, Type: "users", Name: "agent", Encoded: tagproto.Append(nil, &user)})
		},
		"the role binding is deleted": func(t *testing.T, b *backend, _ *atomic.Bool) {
			write(t, b, objects.Op{Verb: objects.Delete, Type: "clusterrolebindings", Name: "system:agent"})
		},
		"the certificate is revoked": func(_ *testing.T, _ *backend, revoked *atomic.Bool) { revoked.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			var revoked atomic.Bool
			b.TrustCertificates(func(c *x509.Certificate) error {
				if revoked.Load() && c.SerialNumber.Int64() == 2 {
					return errors.New("it was revoked")
				}
				return nil
			})
			s := httptest.NewUnstartedServer(b.Agents)
			pool := x509.NewCertPool()
			pool.AddCert(ca.Leaf)
			s.TLS = &tls.Config{ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven}
			s.StartTLS()
			defer s.Close()
			defer b.Close()
			dial := func(h http.Header, certs ...tls.Certificate) *websocket.Conn {
				d := websocket.Dialer{
					TLSClientConfig: &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
						Certificates: certs},
				}
				c, _, err := d.DialContext(t.Context(), "wss"+strings.TrimPrefix(s.URL, "https"), h)
				if err != nil {
					t.Fatal(err)
				}
				next(t, c)
				return c
			}
			taken := dial(header("a", "agent", users.AgentPassword), certificate(t, "agent", 2, &ca))
			defer taken.Close()
			stays := dial(header("b", "admin", "correct horse"))
			defer stays.Close()
			event := func(c *websocket.Conn, agent string) error {
				e := &monitor.Event{Timestamp: time.Now().Unix(),
					Entity: &monitor.Entity{Meta: monitor.Meta{Name: agent, Namespace: "default"}, Class: monitor.ClassAgent}}
				return c.WriteMessage(websocket.BinaryMessage, append([]byte("event\n"), tagproto.Append(nil, e)...))
			}
			take(t, b, &revoked)
			polltest.Until(t, func() bool { return event(taken, "a") != nil || b.cfg.Hub.Get("default", "a") == nil },
				"the session's end")
			if err := event(stays, "b"); err != nil || b.cfg.Hub.Get("default", "b") == nil {
				t.Error("the other agent's session:", err)
			}
		})
	}
}

func write(t *testing.T, b *backend, op objects.Op) {
	t.Helper()
	if err := b.resources.Write(t.Context(), op); err != nil {
		t.Fatal(err)
	}
}
