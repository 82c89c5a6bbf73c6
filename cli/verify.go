package cli

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"corbel.dev/corbel/cli/command"
)

// verifySelf checks this binary against the signed checksums of its release.
func verifySelf(e *command.Env, sums, key string) error {
	if sums == "" || key == "" {
		return command.Usagef("--verify needs --sums SHA256SUMS (its signature is in SHA256SUMS.sig) and --key release.pub")
	}
	text, err := command.ReadFile(sums)
	if err != nil {
		return err
	}
	signature, err := command.ReadFile(sums + ".sig")
	if err != nil {
		return fmt.Errorf("the signature of the checksums: %w", err)
	}
	public, err := command.ReadFile(key)
	if err != nil {
		return err
	}
	if err := checkSignature(public, text, signature); err != nil {
		return fmt.Errorf("%s: %w", sums, err)
	}
	path, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	name, ok := listed(string(text), hex.EncodeToString(sum.Sum(nil)))
	if !ok {
		return fmt.Errorf("%s is none of the binaries of this release: its SHA-256 is %x. Install it anew from the release",
			path, sum.Sum(nil))
	}
	return e.Printf("%s is %s of the release; the signature is good.\n", path, name)
}

// checkSignature judges an Ed25519 signature by a public key in PEM.
func checkSignature(public, text, signature []byte) error {
	block, _ := pem.Decode(public)
	if block == nil {
		return errors.New("the key is no PEM")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("the key: %w", err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return errors.New("the key is none of Ed25519")
	}
	if !ed25519.Verify(key, text, signature) {
		return errors.New("the signature is not of this key and these checksums: do not trust them")
	}
	return nil
}

// listed finds the name of the file with a checksum in a list as sha256sum writes it.
func listed(sums, sum string) (name string, ok bool) {
	for line := range strings.Lines(sums) {
		has, name, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "  ")
		if ok && name != "" && strings.EqualFold(has, sum) {
			return name, true
		}
	}
	return "", false
}
