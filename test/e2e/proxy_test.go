package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestBuiltInProxies: two proxies of `connect proxy` carry connections between services; intentions open and
// close them, the mesh's certificates are demanded on both sides and may rotate meanwhile.
func TestBuiltInProxies(t *testing.T) {
	t.Parallel()
	r := newMeshRig(t, "")
	r.service("db", "db", "1", echo(t), nil)
	r.builtIn("-sidecar-for", "db")
	r.builtIn("-service", "web", "-upstream", fmt.Sprintf("db:%d", r.port("to db")), "-upstream",
		fmt.Sprintf("cache:127.0.0.1:%d", r.port("to cache")),
		"-upstream", fmt.Sprintf("liar:%d", r.port("to liar")))
	r.await("an echo through both proxies", func() bool { return echoed(r.port("to db")) })

	held := r.hold(r.port("to db"))
	r.must("PUT", "/v1/connect/intentions/exact?source=web&destination=db", `{"Action":"deny"}`)
	if _, err := held.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the open connection of a source that is denied ends with %v", err)
	}
	r.await("the refusal of new connections", func() bool { return !echoed(r.port("to db")) })
	r.must("DELETE", "/v1/connect/intentions/exact?source=web&destination=db", "")
	r.await("an echo again", func() bool { return echoed(r.port("to db")) })

	t.Run("own registration", func(t *testing.T) {
		stop := r.builtIn("-service", "cache", "-listen", fmt.Sprintf("127.0.0.1:%d", r.port("cache public")),
			"-service-addr", fmt.Sprintf("127.0.0.1:%d", echo(t)),
			"-register", "-register-id", "one")
		r.await("an echo from the cache", func() bool { return echoed(r.port("to cache")) })
		if _, body := r.ask("GET", "/v1/health/connect/cache?passing", ""); !strings.Contains(body, `"cache-proxy-one"`) {
			t.Errorf("the proxy is registered as %s", body)
		}
		stop()
		if _, body := r.ask("GET", "/v1/health/connect/cache", ""); strings.TrimSpace(body) != "[]" {
			t.Errorf("the proxy ended and left %s", body)
		}
	})

	t.Run("who shows a wrong certificate", func(t *testing.T) {
		// Discovery names the database's proxy as one of another service: its certificate says what it is.
		r.must("PUT", "/v1/catalog/register", fmt.Sprintf(`{"Node":"far","Address":"127.0.0.1","Service":{`+
			`"Kind":"connect-proxy","Service":"liar-proxy","Port":%d,"Proxy":{"DestinationServiceName":"liar"}}}`,
			r.port("db public")))
		r.await("the liar", func() bool {
			_, body := r.ask("GET", "/v1/health/connect/liar?cached", "")
			return strings.Contains(body, "liar-proxy")
		})
		if echoed(r.port("to liar")) {
			t.Error("an instance that is of another service was taken")
		}
		if status, body := r.get(r.port("db public"), "/"); status != 0 {
			t.Errorf("the public listener answers without a certificate: %d %s", status, body)
		}
	})

	t.Run("rotation", func(t *testing.T) {
		held := r.hold(r.port("to db"))
		before := r.must("GET", "/v1/connect/ca/roots", "")
		r.must("PUT", "/v1/connect/ca/configuration",
			`{"Provider":"consul","Config":{"PrivateKeyType":"rsa","PrivateKeyBits":2048}}`)
		r.await("the new root", func() bool {
			status, now := r.ask("GET", "/v1/connect/ca/roots", "")
			return status == http.StatusOK && now != before
		})
		r.await("an echo after the rotation", func() bool { return echoed(r.port("to db")) })
		if _, err := held.Write([]byte("still\n")); err != nil {
			t.Error(err)
		}
		got := make([]byte, 6)
		if _, err := io.ReadFull(held, got); err != nil || string(got) != "still\n" {
			t.Errorf("the connection from before the rotation: %q, %v", got, err)
		}
	})
}

// builtIn starts `connect proxy` and returns how to end it.
func (r *meshRig) builtIn(args ...string) (stop func()) {
	r.Helper()
	cmd := r.command(append([]string{"consul", "connect", "proxy"}, args...)...)
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.all = append(r.all, cmd)
	return func() { r.interrupt(cmd) }
}

// hold opens a connection over which something has passed already.
func (r *meshRig) hold(port int) net.Conn {
	r.Helper()
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 10*time.Second)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(45 * time.Second))
	got := make([]byte, 6)
	if _, err := c.Write([]byte("hello\n")); err != nil {
		r.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil {
		r.Fatal(err)
	}
	return c
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}
