package vaultapi

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestForwardedFor(t *testing.T) {
	block := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for name, c := range map[string]struct {
		f      ForwardedFor
		from   string
		values []string
		want   string // the address, or what the refusal says
	}{
		"a proxy": {ForwardedFor{Authorized: block}, "10.1.2.3:44", []string{"1.2.3.4"}, "1.2.3.4:44"},
		"the last counts": {ForwardedFor{Authorized: block}, "10.1.2.3:44", []string{"9.9.9.9, 8.8.8.8", "1.2.3.4"},
			"1.2.3.4:44"},
		"hops": {ForwardedFor{Authorized: block, HopSkips: 1}, "10.1.2.3:44",
			[]string{"9.9.9.9", "8.8.8.8 , 1.2.3.4"}, "8.8.8.8:44"},
		"too many hops": {ForwardedFor{Authorized: block, HopSkips: 2}, "10.1.2.3:44", []string{"9.9.9.9, 1.2.3.4"},
			"would skip before earliest chain link (chain length 2)"},
		"version 6": {ForwardedFor{Authorized: block}, "10.1.2.3:44", []string{"2001:db8::1"},
			"[2001:db8::1]:44"},
		"no address": {ForwardedFor{Authorized: block}, "10.1.2.3:44", []string{"unknown"}, "malformed"},
		"a stranger": {ForwardedFor{Authorized: block}, "11.1.2.3:44", []string{"1.2.3.4"}, "11.1.2.3:44"},
		"a stranger, refused": {ForwardedFor{Authorized: block, RejectNotAuthorized: true}, "11.1.2.3:44",
			[]string{"1.2.3.4"}, "not authorized for x-forwarded-for"},
		"no header": {ForwardedFor{Authorized: block, RejectNotAuthorized: true}, "11.1.2.3:44", nil,
			"11.1.2.3:44"},
		"no header, refused": {ForwardedFor{Authorized: block, RejectNotPresent: true}, "10.1.2.3:44", nil,
			"missing x-forwarded-for header"},
		"mapped into version 6": {ForwardedFor{Authorized: block}, "[::ffff:10.1.2.3]:44", []string{"1.2.3.4"}, "1.2.3.4:44"},
	} {
		r := httptest.NewRequest("GET", "/v1/x", nil)
		r.RemoteAddr = c.from
		for _, v := range c.values {
			r.Header.Add("X-Forwarded-For", v)
		}
		got := ""
		if err := c.f.apply(r); err != nil {
			got = err.Error()
		} else {
			got = r.RemoteAddr
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A token that is bound to an address is used from where the proxy says, and from nowhere else.
func TestForwardedForIsTheAddress(t *testing.T) {
	d := openDoor(t)
	api := d.srv.Config.Handler.(*API)
	d.do("POST", "auth/token/roles/r", `{"allowed_policies":["default"],"token_bound_cidrs":"1.2.3.4/32"}`)
	_, made := d.do("POST", "auth/token/create/r", `{}`)
	token := made["auth"].(map[string]any)["client_token"].(string)
	api.cfg.ForwardedFor = ForwardedFor{Authorized: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	addr, _ := hotDoor(t, api)
	for forwarded, want := range map[string]int{"1.2.3.4": 200, "1.2.3.5": 403, "": 403} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/v1/auth/token/lookup-self", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Vault-Token", token)
		if forwarded != "" {
			req.Header.Set("X-Forwarded-For", forwarded)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %s, want %d", forwarded, resp.Status, want)
		}
	}
}

// Headers of the configuration are on all answers, of the hot path and of net/http.
func TestResponseHeaders(t *testing.T) {
	d := openDoor(t)
	api := d.srv.Config.Handler.(*API)
	h, err := NewResponseHeaders(map[string]map[string]string{"default": {"x-a": "d", "x-b": "d"}, "2xx": {"X-A": "2"},
		"404": {"x-a": "404"}}, map[string]string{"X-Vault-Hostname": "h"})
	if err != nil {
		t.Fatal(err)
	}
	api.SetHeaders(h)
	d.do("PUT", "secret/a", `{"x":1}`)
	addr, _ := hotDoor(t, api)
	for path, want := range map[string]string{"secret/a": "2", "secret/none": "404", "sys/health": "2", "sys/none": "404",
		"sys/mounts": "2"} {
		for _, base := range []string{d.srv.URL, "http://" + addr} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", base+"/v1/"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Vault-Token", d.root)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := resp.Header.Get("X-A"); got != want || resp.Header.Get("X-B") != "d" ||
				resp.Header.Get("X-Vault-Hostname") != "h" {
				t.Errorf("%s: %s has %q, %q", path, resp.Status, got, resp.Header.Get("X-B"))
			}
		}
	}
	for _, by := range []map[string]map[string]string{{"2xy": {"a": "b"}}, {"99": {"a": "b"}},
		{"default": {"X-Vault-Token": "b"}}, {"default": {"a": "b\r\nc: d"}}, {"6xx": {}}} {
		if _, err := NewResponseHeaders(by, nil); err == nil {
			t.Errorf("%v is taken", by)
		}
	}
}

// What is meant for a namespace does not come to be in the root one.
func TestNamespaceHeader(t *testing.T) {
	d := openDoor(t)
	d.do("PUT", "sys/namespaces/ns1", `{}`)
	d.do("PUT", "ns1/sys/mounts/secret", `{"type":"kv"}`)
	for name, want := range map[string]int{"": 204, "root": 204, "/": 204, "root/": 204, "admin": 404, "ns1/ns2/": 404,
		"ns1": 204, "/ns1/": 204, "ns1/../": 400, "..": 400, "ns1//ns2": 400, "ns1/secret": 404, "secret": 404} {
		req, err := http.NewRequestWithContext(t.Context(), "PUT", d.srv.URL+"/v1/secret/a", strings.NewReader(`{"x":1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Vault-Token", d.root)
		req.Header.Set("X-Vault-Namespace", name)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %s, want %d", name, resp.Status, want)
		}
		if got := resp.Header.Get("X-Vault-Namespace"); want == 204 && got != name {
			t.Errorf("%q comes back as %q", name, got)
		}
	}
}

// TestProxyLendsNoCertificate: a proxy's own certificate is nobody else's, whether the proxy says for whom it asks or
// not.
func TestProxyLendsNoCertificate(t *testing.T) {
	f := ForwardedFor{Authorized: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, c := range []struct {
		from, header string
		kept         bool
	}{{"10.1.2.3:44", "", false}, {"10.1.2.3:44", "1.2.3.4", false}, {"192.0.2.1:44", "", true}} {
		r := httptest.NewRequest("POST", "/v1/auth/cert/login", nil)
		r.RemoteAddr, r.TLS = c.from, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
		if c.header != "" {
			r.Header.Set("X-Forwarded-For", c.header)
		}
		if err := f.apply(r); err != nil || (len(r.TLS.PeerCertificates) > 0) != c.kept {
			t.Errorf("%+v: %d certificates, %v", c, len(r.TLS.PeerCertificates), err)
		}
	}
}

// A proxy that is believed tells the client's certificate, in the forms that proxies have; nobody else does.
func TestClientCertHeader(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7)}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	plain := base64.StdEncoding.EncodeToString(der)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, c := range map[string]struct {
		decoders []string
		value    string
		from     string
		want     string // what the refusal says; "none": there is no certificate
	}{
		"base64":             {nil, plain, "10.1.2.3:44", ""},
		"RFC 9440":           {[]string{"RFC9440"}, ":" + plain + ":", "10.1.2.3:44", ""},
		"URL and PEM":        {[]string{"URL", "PEM"}, url.PathEscape(string(text)), "10.1.2.3:44", ""},
		"no header":          {nil, "", "10.1.2.3:44", "none"},
		"a stranger":         {nil, plain, "11.1.2.3:44", "proxy"},
		"without colons":     {[]string{"RFC9440"}, plain, "10.1.2.3:44", "no colons"},
		"no PEM":             {[]string{"PEM"}, plain, "10.1.2.3:44", "no PEM"},
		"no base64":          {nil, "%%", "10.1.2.3:44", "no base64"},
		"no URL":             {[]string{"URL"}, "%zz", "10.1.2.3:44", "not URL-encoded"},
		"base64 of nonsense": {nil, "AAAA", "10.1.2.3:44", "no certificate"},
	} {
		f := ForwardedFor{Authorized: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, CertHeader: "Client-Cert",
			CertDecoders: c.decoders}
		r := httptest.NewRequest("GET", "/v1/x", nil)
		r.RemoteAddr = c.from
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{SerialNumber: big.NewInt(1)}}} // the proxy's own
		r.Header.Set("X-Forwarded-For", "1.2.3.4")
		if c.value != "" {
			r.Header.Set("Client-Cert", c.value)
		}
		err := f.apply(r)
		got := "none"
		switch {
		case err != nil:
			got = err.Error()
		case len(r.TLS.PeerCertificates) > 0 && r.TLS.PeerCertificates[0].SerialNumber.Int64() == 1:
			got = "proxy"
		case len(r.TLS.PeerCertificates) > 0 && bytes.Equal(r.TLS.PeerCertificates[0].Raw, der):
			got = ""
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
