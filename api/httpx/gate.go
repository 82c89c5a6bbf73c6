package httpx

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Gate refuses requests before they reach an adapter: blocked paths and writers
// from outside the allowed networks; and adds the configured headers to every
// answer. The zero value lets all pass and adds nothing.
type Gate struct {
	blocked  []string
	writers  []netip.Prefix
	headers  [][2]string
	anything bool
}

// NewGate compiles http_config's block_endpoints (path prefixes),
// allow_write_http_from (CIDRs) and response_headers.
func NewGate(block, writeFrom []string, headers map[string]string) (Gate, error) {
	g := Gate{blocked: block}
	for _, c := range writeFrom {
		p, err := netip.ParsePrefix(c)
		if err != nil {
			return Gate{}, fmt.Errorf("allow_write_http_from: %q is not a network", c)
		}
		g.writers = append(g.writers, p)
	}
	for k, v := range headers {
		g.headers = append(g.headers, [2]string{http.CanonicalHeaderKey(k), v})
	}
	g.anything = len(g.blocked)+len(g.writers)+len(g.headers) > 0
	return g, nil
}

// Plain reports whether the gate lets all pass and adds nothing.
func (g *Gate) Plain() bool { return !g.anything }

// Pass reports whether the request may go on; otherwise it has been answered with 403.
func (g *Gate) Pass(w http.ResponseWriter, r *http.Request) bool {
	if !g.anything {
		return true
	}
	for _, kv := range g.headers {
		w.Header()[kv[0]] = []string{kv[1]}
	}
	for _, p := range g.blocked {
		if strings.HasPrefix(r.URL.Path, p) {
			WriteText(w, http.StatusForbidden, "Endpoint is blocked by agent configuration")
			return false
		}
	}
	if len(g.writers) == 0 || r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return true
	}
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		for _, p := range g.writers {
			if p.Contains(from.Addr().Unmap()) {
				return true
			}
		}
	} else if !strings.Contains(r.RemoteAddr, ":") {
		return true // a unix socket: its file mode decides
	}
	WriteText(w, http.StatusForbidden, "Access is restricted")
	return false
}
