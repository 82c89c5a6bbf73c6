package acme

import (
	"encoding/base64"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/secrets/engine"
)

func TestNoncesAreGoodOnce(t *testing.T) {
	var n Nonces
	if n.Use("") || n.Use(base64.RawURLEncoding.EncodeToString(make([]byte, nonceBytes))) {
		t.Error("a nonce was good before there was one")
	}
	first := n.New()
	if !n.Use(first) || n.Use(first) {
		t.Error("not good exactly once")
	}
	var other Nonces
	if n.Use(other.New()) {
		t.Error("another server's nonce is good")
	}
	old := n.New()
	n.last += nonceWindow
	if n.Use(old) {
		t.Error("a nonce is good for ever")
	}
}

func TestSplit(t *testing.T) {
	for path, want := range map[string]struct {
		d    Directory
		rest string
		ok   bool
	}{
		"acme/directory":                   {Directory{}, "directory", true},
		"roles/a/acme/order/1":             {Directory{Role: "a"}, "order/1", true},
		"issuer/i/acme/order/1/cert":       {Directory{Issuer: "i"}, "order/1/cert", true},
		"issuer/i/roles/r/acme/new-nonce":  {Directory{Issuer: "i", Role: "r"}, "new-nonce", true},
		"roles/acme":                       {},
		"acme":                             {},
		"issuer/acme/json":                 {Directory{Issuer: "acme"}, "", false},
		"roles/r/issuer/i/acme/directory":  {Directory{Role: "r"}, "", false},
		"config/acme":                      {},
		"issuer/acme/roles/acme/acme/acme": {Directory{Issuer: "acme", Role: "acme"}, "acme", true},
	} {
		d, rest, ok := Split(path)
		if ok != want.ok || rest != want.rest || ok && d != want.d {
			t.Errorf("%s: %v %q %v", path, d, rest, ok)
		}
		if ok && d.Prefix()+rest != path {
			t.Errorf("%s: its prefix is %s", path, d.Prefix())
		}
	}
	if engine.Matches(Open(), "acme/new-eab") || engine.Matches(Open(), "roles/a/acme/new-eab") {
		t.Error("bindings are given to everybody")
	}
	if !engine.Matches(Open(), "issuer/i/roles/r/acme/challenge/1/http-01") {
		t.Error("a challenge needs a token")
	}
}

// TestOnlyHosts: requests with names of other kinds than hosts and addresses are found whatever x509 makes of them.
func TestOnlyHosts(t *testing.T) {
	for _, test := range []struct {
		der  []byte
		want bool
	}{
		{[]byte{0x30, 3, 0x82, 1, 'a'}, true},
		{[]byte{0x30, 6, 0x82, 1, 'a', 0x87, 1, 1}, true},
		{[]byte{0x30, 6, 0x82, 1, 'a', 0x81, 1, 'm'}, false},        // a mailbox
		{[]byte{0x30, 6, 0x82, 1, 'a', 0x86, 1, 'u'}, false},        // a URI
		{[]byte{0x30, 7, 0x82, 1, 'a', 0xa0, 2, 0x0c, 0x00}, false}, // another name
		{[]byte{0x30, 3, 0x82, 1, 'a', 0x05, 0x00}, false},          // more behind it
		{[]byte{0x30, 3, 0x82, 9, 'a'}, false}, {[]byte{0x0c}, false}, {nil, false},
	} {
		if got := onlyHosts(test.der); got != test.want {
			t.Errorf("%x: %v", test.der, got)
		}
	}
}

func TestReverse(t *testing.T) {
	for addr, want := range map[string]string{"192.0.2.1": "1.2.0.192.in-addr.arpa",
		"2001:db8::1": "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", "x": "x"} {
		if got := reverse(addr); got != want {
			t.Errorf("%s: %s", addr, got)
		}
	}
}

func TestSerial(t *testing.T) {
	for path, want := range map[string]string{"acme/new-account": "acme", "roles/r/acme/key-change": "acme",
		"acme/new-order": "", "acme/order/1/finalize": "acme/order/1", "acme/challenge/z/http-01": "acme/authz/z",
		"acme/authorization/z": "acme/authz/z", "acme/challenge": "acme/authz/"} {
		if got, ok := Serial(path); got != want || !ok {
			t.Errorf("%s: %q, %v", path, got, ok)
		}
	}
	if _, ok := Serial("roles/a"); ok {
		t.Error("a role is ACME's")
	}
}

// FuzzMessage: what anybody sends is read without harm, and nothing unsigned is taken for signed.
func FuzzMessage(f *testing.F) {
	enc := base64.RawURLEncoding.EncodeToString
	f.Add(enc([]byte(`{"alg":"ES256","jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}}`)), "", "AA")
	f.Add(enc([]byte(`{"alg":"RS256","jwk":{"kty":"RSA","n":"AQAB","e":"AQAB"}}`)), enc([]byte("{}")), "AA")
	f.Add(enc([]byte(`{"alg":"EdDSA","jwk":{"kty":"OKP","crv":"Ed25519","x":"`+enc(make([]byte, 32))+`"}}`)), "", "AA")
	f.Add(enc([]byte(`{"alg":"none","kid":"x"}`)), "x", "")
	f.Fuzz(func(t *testing.T, protected, payload, signature string) {
		m, err := parseMessage(protected, payload, signature)
		if err != nil {
			if _, is := problemOf(err); !is {
				t.Errorf("%v is no answer to a client", err)
			}
			return
		}
		if m.key != nil && slices.Contains([]string{"", "none", "HS256"}, m.head.Alg) && m.signedBy(m.key) == nil {
			t.Error("a message without a signature is signed")
		}
	})
}

func FuzzIdentifier(f *testing.F) {
	f.Add("dns", "*.example.com")
	f.Add("ip", "::1")
	f.Fuzz(func(t *testing.T, kind, value string) {
		i := Identifier{kind, value}
		if i.check() != nil {
			return
		}
		if again := i; again.check() != nil || again != i {
			t.Errorf("%v becomes %v", i, again)
		}
		_, _, _ = reverse(i.Value), newAuthz(i, time.Time{}), onlyHosts([]byte(value))
	})
}
