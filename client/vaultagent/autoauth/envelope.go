package autoauth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"corbel.dev/corbel/client/vaultagent/agentconfig"
)

// publicKey is what the reader of a sink leaves at dh_path, for dh_type curve25519.
type publicKey struct {
	Key []byte `json:"curve25519_public_key"`
}

// envelope is what is written then: our key of this one time, and the text under the key that both make of theirs
// (AES-256-GCM).
type envelope struct {
	Key     []byte `json:"curve25519_public_key"`
	Nonce   []byte `json:"nonce"`
	Payload []byte `json:"encrypted_payload"`
}

// readerOf is the key that the reader of a sink left.
func readerOf(one *agentconfig.Sink) (*ecdh.PublicKey, error) {
	raw, err := slurp(one.DHPath)
	if err != nil {
		return nil, fmt.Errorf("dh_path: %w", err)
	}
	var reader publicKey
	if err := json.Unmarshal([]byte(raw), &reader); err != nil {
		return nil, fmt.Errorf("dh_path: %s: %w", one.DHPath, err)
	}
	theirs, err := ecdh.X25519().NewPublicKey(reader.Key)
	if err != nil {
		return nil, fmt.Errorf(`dh_path: %s must be {"curve25519_public_key": "32 bytes in base64"}: %w`, one.DHPath, err)
	}
	return theirs, nil
}

// sealed is a text that whoever has the other half of a key alone can open.
func sealed(theirs *ecdh.PublicKey, aad, text string) (string, error) {
	ours, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	secret, err := ours.ECDH(theirs)
	if err != nil {
		return "", fmt.Errorf("the key at dh_path: %w", err)
	}
	defer clear(secret)
	block, err := aes.NewCipher(secret)
	if err != nil {
		return "", err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return "", err
	}
	e := envelope{Key: ours.PublicKey().Bytes(), Nonce: make([]byte, aead.NonceSize())}
	if n, err := rand.Read(e.Nonce); err != nil || n != len(e.Nonce) {
		return "", errors.Join(errors.New("there is no randomness"), err)
	}
	e.Payload = aead.Seal(nil, e.Nonce, []byte(text), []byte(aad))
	out, err := json.Marshal(e)
	return string(out), err
}
