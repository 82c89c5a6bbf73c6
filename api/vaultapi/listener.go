package vaultapi

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/kit/errkind"
)

// ForwardedFor says whose X-Forwarded-For is believed. Without Authorized nobody's is.
type ForwardedFor struct {
	Authorized []netip.Prefix
	HopSkips   int // how many addresses at the end are of proxies in between
	// RejectNotPresent refuses requests without the header, RejectNotAuthorized those with one from somebody else.
	RejectNotPresent, RejectNotAuthorized bool
	// CertHeader names the header in which a proxy tells the client's certificate; "": none is believed. CertDecoders
	// say what it went through, in turn: see CertDecoders.
	CertHeader   string
	CertDecoders []string
}

func (f *ForwardedFor) on() bool { return len(f.Authorized) > 0 }

// apply puts the client's address in the place of the proxy's.
func (f *ForwardedFor) apply(r *http.Request) error {
	values := r.Header.Values("X-Forwarded-For")
	from := remote(r)
	proxy := slices.ContainsFunc(f.Authorized, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) })
	if proxy && r.TLS != nil {
		r.TLS = &tls.ConnectionState{} // its own certificate is not the client's, whether it says who that is or not
	}
	if len(values) == 0 {
		if f.RejectNotPresent {
			return withStatus(http.StatusBadRequest, "missing x-forwarded-for header and configured to reject when not present")
		}
		return nil
	}
	if !proxy {
		if f.RejectNotAuthorized {
			return withStatus(http.StatusBadRequest,
				"client address not authorized for x-forwarded-for and configured to reject connection")
		}
		return nil
	}
	var chain []string
	for _, v := range values {
		chain = append(chain, strings.Split(v, ",")...)
	}
	at := len(chain) - 1 - f.HopSkips
	if at < 0 {
		return withStatus(http.StatusBadRequest, "malformed x-forwarded-for configuration or request, hops to skip ("+
			strconv.Itoa(f.HopSkips)+
			") would skip before earliest chain link (chain length "+strconv.Itoa(len(chain))+")")
	}
	client, err := netip.ParseAddr(strings.TrimSpace(chain[at]))
	if err != nil {
		return withStatus(http.StatusBadRequest, "malformed x-forwarded-for: an entry is no address")
	}
	r.RemoteAddr = net.JoinHostPort(client.String(), strconv.Itoa(int(from.Port())))
	return f.certificate(r)
}

// ResponseHeaders are headers for each status, as names and values in turn. Immutable.
type ResponseHeaders struct {
	base    map[string]string
	classes [6]map[string]string // by the first digit
	exact   map[int]map[string]string
}

// NewResponseHeaders reads headers by "default", "2xx" or "200", and adds the server's own, by name, to all answers;
// nil when there are none.
func NewResponseHeaders(by map[string]map[string]string, own map[string]string) (*ResponseHeaders, error) {
	if len(by)+len(own) == 0 {
		return nil, nil
	}
	out := &ResponseHeaders{exact: map[int]map[string]string{}}
	for _, at := range slices.Sorted(maps.Keys(by)) {
		set := map[string]string{}
		for name, value := range by[at] {
			name = http.CanonicalHeaderKey(name)
			if strings.HasPrefix(name, "X-Vault-") || strings.ContainsAny(name, " :\r\n") || strings.ContainsAny(value, "\r\n") {
				return nil, errkind.Errorf(errkind.Invalid, "custom_response_headers: %q: cannot be set", name)
			}
			set[name] = value
		}
		status, err := strconv.Atoi(at)
		switch {
		case at == "default":
			out.base = set
		case len(at) == 3 && at[1:] == "xx" && at[0] >= '1' && at[0] <= '5':
			out.classes[at[0]-'0'] = set
		case err == nil && status >= 100 && status <= 599:
			out.exact[status] = set
		default:
			return nil, errkind.Errorf(errkind.Invalid,
				"custom_response_headers: %q is no status, no class of them (2xx) and not default", at)
		}
	}
	if out.base == nil {
		out.base = map[string]string{}
	}
	maps.Copy(out.base, own)
	return out, nil
}

// of gives the headers of a status: what is more exact wins.
func (h *ResponseHeaders) of(status int) map[string]string {
	if h == nil {
		return nil
	}
	out := maps.Clone(h.base)
	if out == nil {
		out = map[string]string{}
	}
	if class := status / 100; class >= 0 && class < len(h.classes) {
		maps.Copy(out, h.classes[class])
	}
	maps.Copy(out, h.exact[status])
	return out
}

// headed adds headers when the status is known.
type headed struct {
	http.ResponseWriter
	headers *ResponseHeaders // nil: none
	done    bool
	status  int
}

// WriteHeader implements http.ResponseWriter.
func (w *headed) WriteHeader(status int) {
	if !w.done && status >= http.StatusOK {
		w.done, w.status = true, status
		for name, value := range w.headers.of(status) {
			w.Header().Set(name, value)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *headed) Write(b []byte) (int, error) {
	if !w.done {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (w *headed) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (w *headed) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// namespaceOf is the namespace that a request names in its header, with '/' at its end; "" is the root one.
func namespaceOf(r *http.Request) (string, error) {
	values := r.Header.Values("X-Vault-Namespace")
	if len(values) > 1 { // whoever looks at one of them, and another at the other, would judge two requests
		return "", withStatus(http.StatusBadRequest, "X-Vault-Namespace: is there more than once")
	}
	if len(values) == 0 {
		return "", nil
	}
	name := strings.Trim(values[0], "/ ")
	if name == "" || name == "root" {
		return "", nil
	}
	if err := checkPath(name); err != nil {
		return "", err
	}
	if strings.Contains(name, "//") {
		return "", withStatus(http.StatusBadRequest, "X-Vault-Namespace: has an empty part")
	}
	return name + "/", nil
}

var errRootOnly = withStatus(http.StatusBadRequest, "operation unavailable in namespaces")
