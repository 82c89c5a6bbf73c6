package clienttls

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestErrorsNameTheKeys(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	names := Files{CA: "tls_ca_file", Cert: "tls_cert_file", Key: "tls_key_file"}
	for want, f := range map[string]Files{
		"tls_ca_file: open": {CA: text + ".none"},
		"tls_ca_file: " + text + " holds no certificate": {CA: text},
		"tls_cert_file, tls_key_file: one needs":         {Key: text},
		"tls_cert_file, tls_key_file: tls":               {Cert: text, Key: text},
	} {
		if _, err := f.Config(names); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", f, err, want)
		}
	}
	if c, err := (Files{}).Config(names); err != nil || c.RootCAs != nil || len(c.Certificates) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}
