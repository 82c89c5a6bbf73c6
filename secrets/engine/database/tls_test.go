package database

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

// With certificates a connection is TLS alone, whatever its URL would fall back to; the key is told to nobody.
func TestTLSOfConnections(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	as := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, as, as, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, private := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
	for _, mode := range []string{"disable", "prefer", "require"} {
		cfg := &config{URL: "postgres://u@db.example/x?sslmode=" + mode, tlsFiles: tlsFiles{TLSCA: cert, TLSCert: cert,
			TLSKey: private}}
		pc, err := cfg.connection("")
		if err != nil || pc.TLSConfig == nil || pc.TLSConfig.InsecureSkipVerify || pc.TLSConfig.ServerName != "db.example" ||
			pc.TLSConfig.RootCAs == nil || len(pc.TLSConfig.Certificates) != 1 || len(pc.Fallbacks) != 0 {
			t.Errorf("sslmode=%s: %+v, %v", mode, pc, err)
		}
	}
	d := enginetest.New(t, &Engine{}, "database/")
	body := map[string]any{"plugin_name": plugin, "connection_url": "postgres://u@db.example/x",
		"verify_connection": false, "tls_ca": cert, "tls_certificate": cert, "private_key": private}
	d.OK(secrets.Update, "config/a", body)
	shown := fmt.Sprint(d.OK(secrets.Read, "config/a", nil))
	if strings.Contains(shown, "PRIVATE KEY") || !strings.Contains(shown, "BEGIN CERTIFICATE") {
		t.Errorf("the configuration reads %s", shown)
	}
	for field, bad := range map[string]string{"tls_ca": "x", "tls_certificate": "x", "private_key": ""} {
		own := map[string]any{}
		for name, v := range body {
			own[name] = v
		}
		own[field] = bad
		d.Refused(errkind.Invalid, field, secrets.Update, "config/b", own)
	}
	if r := d.OK(secrets.Update, "reload/"+plugin, nil); fmt.Sprint(r["connections"]) != "[a]" || r["count"] != 1.0 {
		t.Errorf("reloaded %v", r)
	}
	d.Refused(errkind.Invalid, "no plugins", secrets.Update, "reload/mysql", nil)
}
