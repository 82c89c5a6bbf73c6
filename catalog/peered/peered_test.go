package peered

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

func root(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func trust(t testing.TB, change func(*Trust)) *Trust {
	v := &Trust{Domain: "11111111-2222-3333-4444-555555555555.consul", Datacenter: "dc1", As: "west",
		Roots: []string{root(t)}, Gateways: []Gateway{{Address: "192.0.2.1", Port: 8443, Weight: 1}}}
	change(v)
	return v
}

func TestWhatNoClusterSays(t *testing.T) {
	noCert := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	key := "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
	for name, change := range map[string]func(*Trust){
		"":                           func(*Trust) {},
		"no domain":                  func(v *Trust) { v.Domain = "" },
		"a domain that is a pattern": func(v *Trust) { v.Domain = "*.consul" },
		"a domain with a path":       func(v *Trust) { v.Domain = "a/ns/default" },
		"no datacenter":              func(v *Trust) { v.Datacenter = "" },
		"a name that is a pattern":   func(v *Trust) { v.As = "*" },
		"no roots":                   func(v *Trust) { v.Roots = nil },
		"a root that is a key":       func(v *Trust) { v.Roots[0] = key },
		"a root that is nothing":     func(v *Trust) { v.Roots[0] = noCert },
		"a root with more behind it": func(v *Trust) { v.Roots[0] += key },
		"a gateway with no name":     func(v *Trust) { v.Gateways[0].Address = "10.0.0" },
		"a gateway with a path":      func(v *Trust) { v.Gateways[0].Address = "/run/envoy.sock" },
		"a gateway without a port":   func(v *Trust) { v.Gateways[0].Port = 0 },
		"many gateways":              func(v *Trust) { v.Gateways = make([]Gateway, maxGateways+1) },
		"many bytes":                 func(v *Trust) { v.Roots[0] += strings.Repeat("\n", MaxBytes) },
	} {
		v := trust(t, change)
		got, err := Read(v.Encode())
		if good := name == ""; good != (err == nil) || good && !reflect.DeepEqual(got, v) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if k := errkind.Of(err); err != nil && k != errkind.Invalid && k != errkind.TooLarge {
			t.Errorf("%s: %v is of kind %v", name, err, k)
		}
	}
	if _, err := Read([]byte("{")); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("no JSON: %v", err)
	}
}

func TestGatewaysHaveNamesOrAddresses(t *testing.T) {
	for _, address := range []string{"gateway.example", "192.0.2.1", "2001:db8::1", "a"} {
		if _, err := Read(trust(t, func(v *Trust) { v.Gateways[0].Address = address }).Encode()); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestOneDomainIsOfOnePeer(t *testing.T) {
	st, v := statestore.Empty(), trust(t, func(*Trust) {})
	apply := func(ops []catalog.RecordOp) {
		st, _, _ = st.Apply([]catalog.Command{&catalog.Records{Ops: ops}})
	}
	apply(Put(st, "east", v))
	if again := Put(st, "east", v); len(again) != 0 || Of(st, "east") == nil || Of(st, "west") != nil {
		t.Errorf("put again: %v; %v", again, Of(st, "west"))
	}
	if Taken(st, "east", v.Domain) || !Taken(st, "west", v.Domain) || Taken(st, "west", "other.consul") {
		t.Error("the domain is east's, and nobody else's")
	}
	apply(Drop(st, "east"))
	if Of(st, "east") != nil || len(Drop(st, "east")) != 0 {
		t.Error("it is there still")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(trust(f, func(*Trust) {}).Encode())
	f.Add([]byte(`{"Domain":"a","Datacenter":"b","As":"c","Roots":[""]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Read(b)
		if err != nil {
			return
		}
		again, err := Read(v.Encode())
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Errorf("%+v is read as %+v, %v", v, again, err)
		}
	})
}
