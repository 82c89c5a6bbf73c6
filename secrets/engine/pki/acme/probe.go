package acme

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Prober looks whether challenges are met, from this host. The zero value looks at the ports of the protocol.
type Prober struct {
	HTTPPort, TLSPort string // for tests; "" is 80 and 443
	running           atomic.Int32
}

const (
	probes       = 32               // at a time, of a mount
	probeWithin  = 25 * time.Second // all tries
	tryWithin    = 8 * time.Second
	answerBytes  = 4096 // of a page: a key authorization has about 90
	redirectMost = 5
)

// pauses are those between tries: what a client has just put up may not be seen everywhere at once.
var pauses = []time.Duration{0, time.Second, 3 * time.Second}

// enter takes one of the places that there are for looks.
func (p *Prober) enter() (leave func(), ok bool) {
	if p.running.Add(1) > probes {
		p.running.Add(-1)
		return nil, false
	}
	return func() { p.running.Add(-1) }, true
}

// Probe returns nil if the challenge is met. It tries a few times, and takes 25 s at most.
func (p *Prober) Probe(ctx context.Context, kind string, name Identifier, token, proof, resolver string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	for _, pause := range pauses {
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return cmp.Or(err, error(problem(http.StatusForbidden, "connection", "no time was left to look")))
		}
		if err = p.try(ctx, kind, name, token, proof, resolver); err == nil {
			return nil
		}
	}
	return err
}

func (p *Prober) try(ctx context.Context, kind string, name Identifier, token, proof, resolver string) error {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	from := &net.Dialer{Resolver: resolverAt(resolver)}
	switch kind {
	case http01:
		return p.page(ctx, from, name, token, proof)
	case alpn01:
		return p.handshake(ctx, from, name, proof)
	}
	return text(ctx, from.Resolver, name, proof)
}

// resolverAt asks one server; "" is the host's own way.
func resolverAt(addr string) *net.Resolver {
	if addr == "" {
		return &net.Resolver{}
	}
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
}

// unreached tells why there was no answer; names that do not exist have an error of their own.
func unreached(err error) *Problem {
	var lookup *net.DNSError
	if errors.As(err, &lookup) {
		return problem(http.StatusBadRequest, "dns", "the name cannot be looked up: %s", lookup.Err)
	}
	return problem(http.StatusBadRequest, "connection", "%v", err)
}

func wrong(format string, args ...any) *Problem {
	return problem(http.StatusForbidden, "incorrectResponse", format, args...)
}

// page fetches the page of http-01. Redirects lead to the two ports of the web alone.
func (p *Prober) page(ctx context.Context, from *net.Dialer, name Identifier, token, proof string) error {
	port := cmp.Or(p.HTTPPort, "80")
	tr := &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // a host that has no certificate yet may redirect there
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		at := cmp.Or(r.URL.Port(), map[string]string{"http": "80", "https": "443"}[r.URL.Scheme])
		if len(via) > redirectMost || (at != "80" && at != "443" && at != port) {
			return errors.New("redirected too often, or to another port than 80 and 443")
		}
		return nil
	}}
	host := name.Value
	if port != "80" || strings.Contains(host, ":") {
		host = net.JoinHostPort(host, port)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/.well-known/acme-challenge/"+token, nil)
	if err != nil {
		return unreached(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		return unreached(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read alone
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	if err != nil {
		return unreached(err)
	}
	if resp.StatusCode != http.StatusOK {
		return wrong("the page has status %d", resp.StatusCode)
	}
	if subtle.ConstantTimeCompare(bytes.TrimSpace(body), []byte(proof)) != 1 {
		return wrong("the page does not hold the key authorization")
	}
	return nil
}

// text looks up the record of dns-01.
func text(ctx context.Context, at *net.Resolver, name Identifier, proof string) error {
	list, err := at.LookupTXT(ctx, "_acme-challenge."+name.Value+".")
	if err != nil {
		return unreached(err)
	}
	sum := sha256.Sum256([]byte(proof))
	want := base64.RawURLEncoding.EncodeToString(sum[:])
	for _, got := range list {
		if subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1 {
			return nil
		}
	}
	return wrong("none of the %d TXT records of _acme-challenge.%s is the one", len(list), name.Value)
}

// reverse is the name of an address in the tree of reverse look-ups, as RFC 8738 has it sent.
func reverse(addr string) string {
	at, err := netip.ParseAddr(addr)
	if err != nil {
		return addr
	}
	raw, suffix := at.AsSlice(), "in-addr.arpa"
	var labels []string
	for _, b := range raw {
		if at.Is4() {
			labels = append(labels, fmt.Sprint(b))
			continue
		}
		labels, suffix = append(labels, fmt.Sprintf("%x", b>>4), fmt.Sprintf("%x", b&15)), "ip6.arpa"
	}
	slices.Reverse(labels)
	return strings.Join(append(labels, suffix), ".")
}

// oidProof is the extension of certificates for tls-alpn-01 (RFC 8737).
var oidProof = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 31}

// handshake looks at the certificate of tls-alpn-01.
func (p *Prober) handshake(ctx context.Context, from *net.Dialer, name Identifier, proof string) error {
	const protocol = "acme-tls/1"
	server := name.Value
	if name.Type == "ip" {
		server = reverse(name.Value)
	}
	to := &tls.Dialer{NetDialer: from, Config: &tls.Config{ServerName: server, NextProtos: []string{protocol},
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}} // what is looked at instead stands below
	conn, err := to.DialContext(ctx, "tcp", net.JoinHostPort(name.Value, cmp.Or(p.TLSPort, "443")))
	if err != nil {
		return unreached(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	state := conn.(*tls.Conn).ConnectionState()
	if state.NegotiatedProtocol != protocol || len(state.PeerCertificates) == 0 {
		return wrong("the server does not speak %s", protocol)
	}
	cert := state.PeerCertificates[0]
	is := len(cert.DNSNames) == 1 && len(cert.IPAddresses) == 0 && strings.EqualFold(cert.DNSNames[0], name.Value)
	if name.Type == "ip" {
		at, err := netip.ParseAddr(name.Value)
		is = err == nil && len(cert.DNSNames) == 0 && len(cert.IPAddresses) == 1 &&
			cert.IPAddresses[0].Equal(net.IP(at.AsSlice()))
	}
	if !is {
		return wrong("the certificate does not name %s alone", name.Value)
	}
	sum := sha256.Sum256([]byte(proof))
	for _, ext := range cert.Extensions {
		var got []byte
		if !ext.Id.Equal(oidProof) || !ext.Critical {
			continue
		}
		if rest, err := asn1.Unmarshal(ext.Value, &got); err == nil && len(rest) == 0 &&
			subtle.ConstantTimeCompare(got, sum[:]) == 1 {
			return nil
		}
	}
	return wrong("the certificate does not hold the key authorization")
}
