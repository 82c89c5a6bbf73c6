package transit

import (
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"corbel.dev/corbel/secrets"
)

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// decode reads base64 of a field.
func decode(what, text string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, invalid("failed to base64-decode %s", what)
	}
	return b, nil
}

var errNoContext = invalid("missing 'context' for key derivation; the key was created using a derived key, which " +
	"means additional, per-request information must be included in order to perform operations with the key")

// context reads what a derived key is derived by.
func (k *key) context(f *secrets.Fields) ([]byte, error) {
	b, err := decode("context", f.String("context"))
	if err != nil {
		return nil, err
	}
	if k.Derived && len(b) == 0 {
		return nil, errNoContext
	}
	return b, f.Err()
}

// nonceBytes is what nonces have, but those of the types with an X.
const nonceBytes = 12

// cipher is the version's own, or the one that is derived for a context.
func (v *version) cipher(k *key, context []byte) (cipher.AEAD, error) {
	if !k.Derived {
		return v.aead, nil
	}
	raw, err := derive(v.Key, context, k.family().bytes)
	if err != nil {
		return nil, err
	}
	return newAEAD(k.Type, raw)
}

// seal encrypts with a version: nonce, ciphertext, tag.
func (v *version) seal(k *key, context, data, plain []byte) ([]byte, error) {
	if v.aead == nil { // RSA
		if len(data) > 0 {
			return nil, invalid("associated_data is not supported by keys of type %s", k.Type)
		}
		pub, ok := v.public.(*rsa.PublicKey)
		if !ok {
			return nil, invalid("key type %s does not support encryption", k.Type)
		}
		out, err := rsa.EncryptOAEP(sha256.New(), rand.Reader, pub, plain, nil)
		if err != nil {
			return nil, invalid("failed to encrypt: %v", err)
		}
		return out, nil
	}
	aead, err := v.cipher(k, context)
	if err != nil {
		return nil, err
	}
	out := make([]byte, aead.NonceSize(), aead.NonceSize()+len(plain)+aead.Overhead())
	if k.Convergent {
		if err := v.convergent(out, context, data, plain); err != nil {
			return nil, err
		}
	} else {
		v.nonces.next(out)
	}
	return aead.Seal(out, out, plain, data), nil
}

// convergent makes the nonce of what is encrypted, so that the same comes out each time. The
// associated data is part of it: one nonce with two of them would give the authentication key away.
func (v *version) convergent(out, context, data, plain []byte) error {
	sub, err := derive(v.HMAC, append([]byte("convergent nonce\x00"), context...), 32)
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, sub)
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(data)))
	mac.Write(length[:])
	mac.Write(data)
	mac.Write(plain)
	copy(out, mac.Sum(nil))
	return nil
}

var errOpen = invalid("invalid ciphertext: unable to decrypt")

// open decrypts.
func (v *version) open(k *key, context, data, sealed []byte) ([]byte, error) {
	if v.aead == nil {
		private, ok := v.signer.(*rsa.PrivateKey)
		if !ok {
			return nil, invalid("key type %s does not support decryption here", k.Type)
		}
		plain, err := rsa.DecryptOAEP(sha256.New(), nil, private, sealed, nil)
		if err != nil {
			return nil, errOpen
		}
		return plain, nil
	}
	aead, err := v.cipher(k, context)
	if err != nil {
		return nil, err
	}
	n := aead.NonceSize()
	if len(sealed) < n+aead.Overhead() {
		return nil, invalid("invalid ciphertext length")
	}
	plain, err := aead.Open(nil, sealed[:n], sealed[n:], data)
	if err != nil {
		return nil, errOpen
	}
	return plain, nil
}

// encryptWith encrypts one item.
func (k *key) encryptWith(f *secrets.Fields, plain []byte) (map[string]any, error) {
	if f.String("nonce") != "" {
		return nil, invalid("provided nonce not allowed for this key")
	}
	context, err := k.context(f)
	if err != nil {
		return nil, err
	}
	data, err := decode("associated_data", f.String("associated_data"))
	if err != nil {
		return nil, err
	}
	n, v, err := k.forUse(f.Int("key_version", 0))
	if err != nil {
		return nil, err
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	sealed, err := v.seal(k, context, data, plain)
	if err != nil {
		return nil, err
	}
	return map[string]any{"ciphertext": joined(n, encode(sealed)), "key_version": n}, nil
}

// decryptWith decrypts one item.
func (k *key) decryptWith(f *secrets.Fields) ([]byte, error) {
	text := f.String("ciphertext")
	if text == "" {
		return nil, invalid("missing ciphertext to decrypt")
	}
	context, err := k.context(f)
	if err != nil {
		return nil, err
	}
	data, err := decode("associated_data", f.String("associated_data"))
	if err != nil {
		return nil, err
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	n, rest, err := split("ciphertext", text)
	if err != nil {
		return nil, err
	}
	v, err := k.forOpening(n)
	if err != nil {
		return nil, err
	}
	sealed, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return nil, invalid("invalid ciphertext: could not decode base64")
	}
	return v.open(k, context, data, sealed)
}

func (k *key) mustEncrypt() error {
	if !k.family().encrypts {
		return invalid("message encryption not supported for key type %s", k.Type)
	}
	return nil
}

// encrypt encrypts with a key; one that is not there is made, by who has the right to create it.
func (c *call) encrypt() (*secrets.Response, error) {
	k, err := c.find(c.name)
	if err != nil {
		return nil, err
	}
	if k == nil {
		if k, err = c.upsert(); err != nil {
			return nil, err
		}
	}
	if err := k.usable(); err != nil {
		return nil, err
	}
	if err := k.mustEncrypt(); err != nil {
		return nil, err
	}
	resp, err := c.each(func(f *secrets.Fields) (map[string]any, error) {
		if !f.Has("plaintext") {
			return nil, invalid("missing plaintext to encrypt")
		}
		plain, err := decode("plaintext", f.String("plaintext"))
		if err != nil {
			return nil, err
		}
		return k.encryptWith(f, plain)
	})
	if resp != nil && resp.Status != 0 && len(c.ops) > 0 && resp.Status >= 400 {
		c.ops = nil // nothing came of it: no key either
	}
	return resp, err
}

func (c *call) upsert() (*key, error) {
	s, err := c.mount()
	if err != nil {
		return nil, err
	}
	if c.r.Op != secrets.Create || s.DisableUpsert {
		return nil, errNoKey
	}
	k, err := newKey(c.name, c.f)
	if err != nil {
		return nil, err
	}
	if !c.f.Has("derived") {
		k.Derived = c.f.Has("context") || batchHas(c.f, "context")
	}
	if k, err = c.bear(k); err != nil {
		return nil, err
	}
	return k, c.save(k, time.Time{})
}

// batchHas reports whether the items of a batch have a field.
func batchHas(f *secrets.Fields, name string) bool {
	list, _ := f.Any("batch_input").([]any)
	for _, one := range list {
		if item, ok := one.(map[string]any); ok && item[name] != nil {
			return true
		}
	}
	return false
}

// needCipher is need, of a key that encrypts.
func (c *call) needCipher() (*key, error) {
	k, err := c.need()
	if err != nil {
		return nil, err
	}
	return k, k.mustEncrypt()
}

func (c *call) decrypt() (*secrets.Response, error) {
	k, err := c.needCipher()
	if err != nil {
		return nil, err
	}
	return c.each(func(f *secrets.Fields) (map[string]any, error) {
		plain, err := k.decryptWith(f)
		if err != nil {
			return nil, err
		}
		return map[string]any{"plaintext": encode(plain)}, nil
	})
}

// rewrap encrypts with the latest version what another made, without telling the plaintext.
func (c *call) rewrap() (*secrets.Response, error) {
	k, err := c.needCipher()
	if err != nil {
		return nil, err
	}
	return c.each(func(f *secrets.Fields) (map[string]any, error) {
		plain, err := k.decryptWith(f)
		if err != nil {
			return nil, err
		}
		defer clear(plain)
		return k.encryptWith(f, plain)
	})
}

// datakey makes a key and encrypts it; "plaintext" gives it in the clear as well.
func (c *call) datakey() (*secrets.Response, error) {
	kind := c.more[0]
	if kind != "plaintext" && kind != "wrapped" {
		return nil, invalid("invalid path, must be 'plaintext' or 'wrapped'")
	}
	bits := c.f.Int("bits", 256)
	if bits != 128 && bits != 256 && bits != 512 {
		return nil, invalid("invalid bit length: must be 128, 256 or 512")
	}
	k, err := c.needCipher()
	if err != nil {
		return nil, err
	}
	plain := random(bits / 8)
	out, err := k.encryptWith(c.f, plain)
	if err != nil {
		return nil, err
	}
	if kind == "plaintext" {
		out["plaintext"] = encode(plain)
	}
	return answer(out)
}
