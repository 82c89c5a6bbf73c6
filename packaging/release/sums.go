//go:build release

package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sumsFile has the checksums, in the form of sha256sum.
const sumsFile = "SHA256SUMS"

// sums writes the checksums of all that was made, and their signature:
//
//	sha256sum -c SHA256SUMS
//	openssl pkeyutl -verify -pubin -inkey release.pub -rawin -in SHA256SUMS -sigfile SHA256SUMS.sig
func (r *release) sums() error {
	var b bytes.Buffer
	err := filepath.WalkDir(r.out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), sumsFile) || d.Name() == "release.pub" {
			return err
		}
		name, err := filepath.Rel(r.out, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(content), filepath.ToSlash(name))
		return nil
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, sumsFile), b.Bytes(), 0o644); err != nil {
		return err
	}
	if r.key == "" {
		fmt.Fprintln(os.Stderr, "release: the checksums are NOT SIGNED: -key names no key")
		return nil
	}
	return sign(r.key, r.out, b.Bytes())
}

func sign(keyFile, out string, text []byte) error {
	content, err := os.ReadFile(keyFile)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return fmt.Errorf("%s holds no PEM", keyFile)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("%s: %w", keyFile, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return fmt.Errorf("%s holds no key of Ed25519", keyFile)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(out, sumsFile+".sig"), ed25519.Sign(key, text), 0o644),
		os.WriteFile(filepath.Join(out, "release.pub"), pemOf("PUBLIC KEY", public), 0o644))
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// makeKey makes a key that signs releases.
func makeKey(path string) error {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	half, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(pemOf("PRIVATE KEY", der))
	return errors.Join(err, f.Close(), os.WriteFile(path+".pub", pemOf("PUBLIC KEY", half), 0o644))
}
