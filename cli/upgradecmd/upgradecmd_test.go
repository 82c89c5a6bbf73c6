package upgradecmd

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"corbel.dev/corbel/client"
)

// A server that denies its state is asked again with the token of dev only if it says that it is dev.
func TestDeniedState(t *testing.T) {
	for _, dev := range []bool{true, false} {
		tokens := []string{}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token := r.Header.Get("X-Consul-Token")
			switch {
			case r.URL.Path == "/v1/agent/self" && dev:
				_, _ = io.WriteString(w, `{"DebugConfig":{"DevMode":true}}`)
			case r.URL.Path == "/v1/agent/self":
				_, _ = io.WriteString(w, `{"DebugConfig":{"DevMode":false}}`)
			default:
				if tokens = append(tokens, token); token != "root" {
					http.Error(w, "Permission denied", http.StatusForbidden)
					return
				}
				_, _ = io.WriteString(w, "no snapshot")
			}
		}))
		t.Cleanup(server.Close)
		cl, err := client.New(client.Config{Address: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		f := &facts{}
		if err := f.readState(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
		if asked := strings.Join(tokens, ","); dev && (asked != ",root" || f.state == nil || f.stateSkipped != "") ||
			!dev && (asked != "" || f.stateSkipped == "") {
			t.Errorf("dev %t: asked with %q: %+v", dev, asked, f)
		}
		cl.Close()
	}
}
