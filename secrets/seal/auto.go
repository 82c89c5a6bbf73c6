package seal

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
)

// Auto wraps the root key by a key that the environment keeps, so that nobody is needed to unseal.
// Its methods may be called from any goroutine.
type Auto interface {
	// Type is its name in the configuration and in the status: "static", "transit".
	Type() string
	// Wrap encrypts; Unwrap opens what Wrap gave, now or before a change of the key.
	Wrap(ctx context.Context, plain []byte) ([]byte, error)
	Unwrap(ctx context.Context, wrapped []byte) ([]byte, error)
}

// ErrWrongKey says that a key does not open what it was given.
var ErrWrongKey = errors.New("the unseal key is not the right one")

// Wrap encrypts with AES-256-GCM under a key: nonce, ciphertext, tag. name is bound to it.
func Wrap(key, plain []byte, name string) ([]byte, error) {
	aead, err := gcm(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return aead.Seal(nonce, nonce, plain, []byte(name)), nil
}

// Unwrap opens what Wrap gave; ErrWrongKey when it does not open.
func Unwrap(key, wrapped []byte, name string) ([]byte, error) {
	aead, err := gcm(key)
	if err != nil || len(wrapped) < aead.NonceSize() {
		return nil, ErrWrongKey
	}
	plain, err := aead.Open(nil, wrapped[:aead.NonceSize()], wrapped[aead.NonceSize():], []byte(name))
	if err != nil {
		return nil, ErrWrongKey
	}
	return plain, nil
}

func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
