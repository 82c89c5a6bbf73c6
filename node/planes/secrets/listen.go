package secretsplane

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/vaultapi"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/vaultconf"
)

// listenerTLS is the TLS of a listener, replaced by Reload.
type listenerTLS struct {
	at  int // of the configuration's listeners
	now atomic.Pointer[tls.Config]
}

// ports are the listeners, each with its rules.
func (s *Server) ports() (list []secretsPort, err error) {
	for i := range s.cfg.Listeners {
		l := &s.cfg.Listeners[i]
		port := secretsPort{listen: httpx.Listen{Address: l.Address},
			unix: httpx.UnixMode{User: l.SocketUser, Group: l.SocketGroup, Mode: l.SocketMode},
			idle: l.IdleTimeout, readHeader: l.ReadHeaderTimeout, body: l.ReadTimeout, write: l.WriteTimeout}
		if !l.TLS.Disable {
			t, err := vaultTLS(&l.TLS)
			if err != nil {
				return nil, err
			}
			held := &listenerTLS{at: i}
			held.now.Store(t)
			s.tls = append(s.tls, held)
			port.listen.TLS = &tls.Config{MinVersion: tls.VersionTLS12,
				GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return held.now.Load(), nil }}
		}
		if port.listen.Proxied, err = proxied(l); err != nil {
			return nil, err
		}
		if port.rules, err = s.rules(l); err != nil {
			return nil, err
		}
		if port.headers, err = vaultapi.NewResponseHeaders(l.ResponseHeaders, s.ownHeaders()); err != nil {
			return nil, fmt.Errorf("listener: %w", err)
		}
		list = append(list, port)
	}
	return list, nil
}

// rules are a listener's.
func (s *Server) rules(l *vaultconf.Listener) (out vaultapi.Listener, err error) {
	out = vaultapi.Listener{OpenRekey: l.OpenRekey, OpenGenerateRoot: l.OpenGenerateRoot, MaxBodyBytes: l.MaxRequestSize,
		MaxRequestTime: s.cfg.MaxRequestDuration,
		MetricsOnly:    l.MetricsOnly, NoMetrics: l.NoMetrics, OpenProfiles: l.UnauthenticatedPprof,
		OpenInFlight: l.UnauthenticatedInFlight, OpenDoctor: l.UnauthenticatedDoctor}
	if l.MaxRequestDuration > 0 {
		out.MaxRequestTime = l.MaxRequestDuration
	}
	if l.UnauthenticatedMetrics {
		out.OpenMetrics = metricsOf(s.metrics)
	}
	out.ForwardedFor, err = forwardedFor(&l.ForwardedFor)
	return out, err
}

// handedRules are those of what other servers hand on, whose listeners have judged it: a listener's limits have been
// kept, and open is only what all open here.
func handedRules(list []secretsPort) vaultapi.Listener {
	out := vaultapi.Listener{OpenRekey: true, OpenGenerateRoot: true}
	for i := range list {
		r := &list[i].rules
		out.OpenRekey, out.OpenGenerateRoot = out.OpenRekey && r.OpenRekey, out.OpenGenerateRoot && r.OpenGenerateRoot
		out.MaxBodyBytes, out.MaxRequestTime = max(out.MaxBodyBytes, r.MaxBodyBytes),
			max(out.MaxRequestTime, r.MaxRequestTime)
	}
	return out
}

// ownHeaders are what the configuration has all answers tell of this server.
func (s *Server) ownHeaders() map[string]string {
	out := map[string]string{}
	if s.cfg.HostnameHeader {
		out["X-Vault-Hostname"] = hostname()
	}
	if s.cfg.RaftNodeIDHeader && s.raftID != "" {
		out["X-Vault-Raft-Node-ID"] = s.raftID
	}
	return out
}

// proxied says whose PROXY protocol headers a listener believes; nil: it expects none.
func proxied(l *vaultconf.Listener) (*httpx.Proxied, error) {
	out := &httpx.Proxied{}
	switch l.ProxyProtocol {
	case "":
		return nil, nil
	case "use_always":
		out.Any = true
		return out, nil
	case "deny_unauthorized":
		out.Deny = true
	case "allow_authorized":
	default:
		return nil, fmt.Errorf("listener: proxy_protocol_behavior: %q is none of use_always, allow_authorized, "+
			"deny_unauthorized", l.ProxyProtocol)
	}
	var err error
	if out.From, err = prefixes("proxy_protocol_authorized_addrs", l.ProxyAuthorized); err == nil && len(out.From) == 0 {
		err = errors.New("listener: proxy_protocol_authorized_addrs: is needed with proxy_protocol_behavior = " +
			l.ProxyProtocol)
	}
	return out, err
}

// prefixes reads addresses and blocks of them.
func prefixes(key string, texts []string) (out []netip.Prefix, err error) {
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if addr, bad := netip.ParseAddr(text); bad == nil {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("listener: %s: %q is neither an address nor a block of them", key, text)
		}
		out = append(out, p)
	}
	return out, nil
}

// forwardedFor reads whose X-Forwarded-For, and whose word of the client's certificate, is believed.
func forwardedFor(f *vaultconf.ForwardedFor) (out vaultapi.ForwardedFor, err error) {
	out.HopSkips, out.RejectNotPresent, out.RejectNotAuthorized = f.HopSkips, f.RejectNotPresent, f.RejectNotAuthorized
	if f.HopSkips < 0 {
		return out, errors.New("listener: x_forwarded_for_hop_skips: must not be negative")
	}
	if out.Authorized, err = prefixes("x_forwarded_for_authorized_addrs", f.Authorized); err != nil {
		return out, err
	}
	out.CertHeader = f.CertHeader
	if f.CertHeader != "" && len(f.Authorized) == 0 {
		return out, errors.New("listener: x_forwarded_for_client_cert_header: needs x_forwarded_for_authorized_addrs, or " +
			"everybody could say to be anybody")
	}
	for _, name := range f.CertDecoders {
		if name = strings.ToUpper(name); !slices.Contains(vaultapi.CertDecoders, name) {
			return out, fmt.Errorf("listener: x_forwarded_for_client_cert_header_decoders: %q is none of %s", name,
				strings.Join(vaultapi.CertDecoders, ", "))
		}
		out.CertDecoders = append(out.CertDecoders, name)
	}
	return out, nil
}

var tlsVersions = map[string]uint16{"tls10": tls.VersionTLS10, "tls11": tls.VersionTLS11, "tls12": tls.VersionTLS12,
	"tls13": tls.VersionTLS13}

// vaultTLS makes the TLS of a listener.
func vaultTLS(t *vaultconf.TLS) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("listener: tls_cert_file, tls_key_file: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	for name, v := range map[string]struct {
		text string
		dst  *uint16
	}{"tls_min_version": {t.MinVersion, &c.MinVersion}, "tls_max_version": {t.MaxVersion, &c.MaxVersion}} {
		if v.text == "" {
			continue
		}
		var ok bool
		if *v.dst, ok = tlsVersions[strings.ToLower(v.text)]; !ok {
			return nil, fmt.Errorf("listener: %s: %q is none of tls10, tls11, tls12, tls13", name, v.text)
		}
	}
	block := config.TLSBlock{CipherSuites: t.CipherSuites}
	if c.CipherSuites, err = block.Suites(); err != nil {
		return nil, fmt.Errorf("listener: tls_cipher_suites: %w", err)
	}
	if t.DisableClientCerts {
		return c, nil
	}
	c.ClientAuth = tls.RequestClientCert
	if t.ClientCAFile != "" {
		text, err := os.ReadFile(t.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("listener: tls_client_ca_file: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("listener: tls_client_ca_file: %s holds no certificate", t.ClientCAFile)
		}
	}
	if t.RequireClientCert {
		if c.ClientCAs == nil {
			return nil, errors.New("listener: tls_require_and_verify_client_cert: needs tls_client_ca_file")
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}
