// Package pgp encrypts short secrets for OpenPGP keys, so that whoever draws them need not show them to anybody else.
//
// A Key is immutable and for any number of goroutines. Parse refuses what could not be encrypted for: a key that is
// expired, revoked, or for signing alone. Nothing here signs or decrypts, and nobody is asked over the network.
package pgp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// maxKeyBytes bounds what is parsed: keys with many signatures have some 100 KiB.
const maxKeyBytes = 1 << 20

// Key is somebody's public key.
type Key struct{ entity *openpgp.Entity }

// Binary gives the packets of a key that people have as a file: armoured, in base64, or as they are.
func Binary(text []byte) ([]byte, error) {
	if len(text) > maxKeyBytes {
		return nil, fmt.Errorf("has %d bytes, more than a key may have (%d)", len(text), maxKeyBytes)
	}
	trimmed := bytes.TrimSpace(text)
	switch {
	case len(trimmed) == 0:
		return nil, errors.New("is empty")
	case bytes.HasPrefix(trimmed, []byte("-----BEGIN ")):
		block, err := armor.Decode(bytes.NewReader(trimmed))
		if err != nil {
			return nil, fmt.Errorf("its armour cannot be read: %w", err)
		}
		if block.Type != openpgp.PublicKeyType {
			return nil, fmt.Errorf("is %q and no public key", block.Type)
		}
		var out bytes.Buffer
		if _, err := out.ReadFrom(block.Body); err != nil {
			return nil, fmt.Errorf("its armour cannot be read: %w", err)
		}
		return out.Bytes(), nil
	}
	if b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(trimmed)), "")); err == nil {
		return b, nil
	}
	return text, nil
}

// Parse reads a public key, in base64 or armoured.
func Parse(text string) (*Key, error) {
	raw, err := Binary([]byte(text))
	if err != nil {
		return nil, err
	}
	e, err := openpgp.ReadEntity(packet.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return nil, fmt.Errorf("is no OpenPGP key: %w", err)
	}
	if e.PrivateKey != nil {
		return nil, errors.New("is a private key: give the public one, and keep this to yourself")
	}
	if _, ok := e.EncryptionKey(time.Now()); !ok {
		return nil, errors.New("cannot be encrypted for: it is expired, revoked, or for signing alone")
	}
	return &Key{e}, nil
}

// Fingerprint is the key's, in hexadecimal.
func (k *Key) Fingerprint() string { return hex.EncodeToString(k.entity.PrimaryKey.Fingerprint) }

// Encrypt makes a message that whoever has the private key reads with gpg --decrypt.
func (k *Key) Encrypt(plain []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := openpgp.Encrypt(&out, []*openpgp.Entity{k.entity}, nil, &openpgp.FileHints{IsBinary: true}, nil)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
