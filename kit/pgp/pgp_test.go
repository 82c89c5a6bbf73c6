package pgp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"corbel.dev/corbel/kit/loud"
)

// newKey draws a key pair; the public half in packets.
func newKey(t testing.TB, config *packet.Config) (*openpgp.Entity, []byte) {
	t.Helper()
	e, err := openpgp.NewEntity("Somebody", "", "somebody@example.org", config)
	if err != nil {
		t.Fatal(err)
	}
	var public bytes.Buffer
	if err := e.Serialize(&public); err != nil {
		t.Fatal(err)
	}
	return e, public.Bytes()
}

func armoured(t *testing.T, kind string, raw []byte) string {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, kind, nil)
	if err == nil {
		if _, err = w.Write(raw); err == nil {
			err = w.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestEncrypt(t *testing.T) {
	for name, config := range map[string]*packet.Config{"Curve25519": {Algorithm: packet.PubKeyAlgoEdDSA},
		"RSA": {Algorithm: packet.PubKeyAlgoRSA, RSABits: 2048}} {
		e, public := newKey(t, config)
		for form, text := range map[string]string{"base64": base64.StdEncoding.EncodeToString(public),
			"armour": armoured(t, openpgp.PublicKeyType, public)} {
			k, err := Parse(text)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, form, err)
			}
			if want := hex.EncodeToString(e.PrimaryKey.Fingerprint); k.Fingerprint() != want {
				t.Errorf("%s: fingerprint %s, want %s", name, k.Fingerprint(), want)
			}
			message, err := k.Encrypt([]byte("0123abcd"))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(message, []byte("0123abcd")) {
				t.Error("the message is plain")
			}
			read, err := openpgp.ReadMessage(bytes.NewReader(message), openpgp.EntityList{e}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(read.UnverifiedBody); err != nil || string(got) != "0123abcd" {
				t.Errorf("%s, %s: decrypted %q, %v", name, form, got, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	e, public := newKey(t, nil)
	var private bytes.Buffer
	if err := e.SerializePrivate(&private, nil); err != nil {
		t.Fatal(err)
	}
	_, old := newKey(t, &packet.Config{KeyLifetimeSecs: 60, Time: func() time.Time { return time.Now().Add(-time.Hour) }})
	for name, c := range map[string]struct{ text, want string }{
		"empty":          {" \n", "empty"},
		"words":          {"this is no key", "no OpenPGP key"},
		"cut":            {base64.StdEncoding.EncodeToString(public[:40]), "no OpenPGP key"},
		"private":        {base64.StdEncoding.EncodeToString(private.Bytes()), "private key"},
		"private armour": {armoured(t, openpgp.PrivateKeyType, private.Bytes()), "no public key"},
		"expired":        {base64.StdEncoding.EncodeToString(old), "expired"},
		"large":          {strings.Repeat("A", maxKeyBytes+1), "more than a key may have"},
	} {
		if _, err := Parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestGnuPG reads a message with the program that people have.
func TestGnuPG(t *testing.T) {
	gpg, err := exec.LookPath("gpg")
	if err != nil {
		loud.Skip(t, "there is no gpg here")
	}
	home, err := os.MkdirTemp("", "pgp") // short: the agent's socket is in it
	if err != nil {
		t.Fatal(err)
	}
	run := func(stdin []byte, args ...string) []byte {
		t.Helper()
		cmd := exec.Command(gpg, append([]string{"--homedir", home, "--batch", "--yes", "--passphrase", "", "--pinentry-mode",
			"loopback"}, args...)...)
		cmd.Stdin = bytes.NewReader(stdin)
		var complaint bytes.Buffer
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("gpg %v: %v\n%s", args, err, complaint.Bytes())
		}
		return out
	}
	t.Cleanup(func() {
		end := exec.Command("gpgconf", "--homedir", home, "--kill", "all")
		_ = end.Run() // the agent ends by itself when its folder goes
		_ = os.RemoveAll(home)
	})
	run(nil, "--quick-gen-key", "operator@example.org", "default", "default", "never")
	file := filepath.Join(home, "operator.asc")
	run(nil, "--armor", "--output", file, "--export", "operator@example.org")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	k, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	message, err := k.Encrypt([]byte("a share"))
	if err != nil {
		t.Fatal(err)
	}
	if got := run(message, "--decrypt"); string(got) != "a share" {
		t.Errorf("gpg reads %q", got)
	}
}

func FuzzParse(f *testing.F) {
	_, public := newKey(f, nil)
	f.Add(base64.StdEncoding.EncodeToString(public))
	f.Add("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nxjM=\n-----END PGP PUBLIC KEY BLOCK-----")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := Parse(text)
		if err != nil {
			return
		}
		if _, err := k.Encrypt([]byte("x")); err != nil {
			t.Logf("a key that parses takes nothing: %v", err) // an error, never a panic
		}
	})
}
