package cli

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
)

// This very binary is verified by a signed list that names it, and by no other.
func TestVerify(t *testing.T) {
	dir := t.TempDir()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	good := fmt.Sprintf("%x  other\n%x  corbel_1_linux_amd64\n", sha256.Sum256(nil), sha256.Sum256(self))
	key := filepath.Join(dir, "release.pub")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, text, signed, want string }{
		{"good", good, good, ""},
		{"changed after it was signed", strings.ToUpper(good), good, "do not trust"},
		{"without this binary", good[:72], good[:72], "none of the binaries"},
	} {
		sums := filepath.Join(dir, "SHA256SUMS")
		signature := ed25519.Sign(private, []byte(test.signed))
		for path, b := range map[string][]byte{sums: []byte(test.text), sums + ".sig": signature} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		err := verifySelf(&command.Env{Out: &out}, sums, key)
		if test.want == "" && (err != nil || !strings.Contains(out.String(), "corbel_1_linux_amd64")) {
			t.Errorf("%s: %v, %s", test.name, err, &out)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

func FuzzListed(f *testing.F) {
	f.Add("00  a\n01  b\r\n", "01")
	f.Fuzz(func(t *testing.T, sums, sum string) {
		if name, ok := listed(sums, sum); ok && (name == "" || !strings.Contains(sums, name)) {
			t.Fatalf("%q", name)
		}
	})
}
