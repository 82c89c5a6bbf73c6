package jwks

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
)

func ecPEM(t *testing.T, curve elliptic.Curve) (private, public []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub})
}

func TestOwn(t *testing.T) {
	type claims struct{ Sub string }
	secret, err := NewSecret(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	other, _ := NewSecret(bytes.Repeat([]byte{8}, 32))
	all := []*Own{secret, other}
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		private, public := ecPEM(t, curve)
		o, err := NewEC(private, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
		checker, err := NewEC(nil, public)
		if err != nil {
			t.Fatal(err)
		}
		token, _ := o.Sign(claims{"a"})
		var got claims
		if err := checker.Check(token, &got); err != nil || got.Sub != "a" {
			t.Fatalf("%s: a public key alone: %v, %v", curve.Params().Name, got, err)
		}
		if _, err := checker.Sign(claims{"a"}); errkind.Of(err) != errkind.Unavailable {
			t.Fatalf("a public key signed: %v", err)
		}
	}
	for i, from := range all {
		token, err := from.Sign(claims{"a"})
		if err != nil {
			t.Fatal(err)
		}
		for j, to := range all {
			var got claims
			if err := to.Check(token, &got); (err == nil) != (i == j) {
				t.Errorf("a token of %d at %d: %v", i, j, err)
			}
		}
		if cut := token[:len(token)-2] + "xx"; from.Check(cut, new(claims)) == nil {
			t.Error("a changed signature is accepted")
		}
	}
	none := "eyJhbGciOiJub25lIn0." + strings.Split(func() string { s, _ := secret.Sign(claims{"a"}); return s }(),
		".")[1] + "."
	if secret.Check(none, new(claims)) == nil {
		t.Error("a token without a signature is accepted")
	}
	if _, err := NewSecret([]byte("short")); err == nil {
		t.Error("a short secret is accepted")
	}
	if _, err := NewEC(nil, nil); err == nil {
		t.Error("no key is accepted")
	}
	if _, err := NewEC([]byte("no PEM"), nil); err == nil {
		t.Error("what is no PEM is accepted")
	}
}
