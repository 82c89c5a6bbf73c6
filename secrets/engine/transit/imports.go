package transit

import (
	"crypto"
	"crypto/aes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
)

const (
	wrappingPath = "wrapping-key"
	wrappingBits = 4096
)

// imports takes in keys that were made elsewhere.
type imports struct{ *call }

// wrapping returns the key that imports are encrypted for; it is made when it is first asked for.
func (c imports) wrapping(mayMake bool) (*rsa.PrivateKey, error) {
	raw, ok, err := c.view.Get(c, wrappingPath)
	if err != nil {
		return nil, err
	}
	if ok {
		any, err := x509.ParsePKCS8PrivateKey(raw)
		if private, is := any.(*rsa.PrivateKey); err == nil && is {
			return private, nil
		}
		return nil, errkind.New(errkind.Corrupt, "the wrapping key is not what was stored")
	}
	if !mayMake {
		return nil, invalid("no wrapping key was asked for yet: read wrapping_key first")
	}
	permit, err := c.e.Keys.Acquire(c, c.r.Remote.String())
	if err != nil {
		return nil, err
	}
	defer permit.Release()
	c.e.bornMu.Lock() // two that both find none make one
	defer c.e.bornMu.Unlock()
	if c.e.wrap == nil {
		if c.e.wrap, err = rsa.GenerateKey(rand.Reader, wrappingBits); err != nil {
			return nil, err
		}
	}
	if raw, err = x509.MarshalPKCS8PrivateKey(c.e.wrap); err != nil {
		return nil, err
	}
	c.ops = append(c.ops, storage.Put(wrappingPath, raw))
	return c.e.wrap, nil
}

func (c imports) wrappingKey() (*secrets.Response, error) {
	c.name = ""
	private, err := c.wrapping(true)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		return nil, err
	}
	return answer(map[string]string{"public_key": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))})
}

// unwrap reads an import: an AES key under RSA-OAEP, and the key itself under that one (RFC 5649).
func (c imports) unwrap() ([]byte, error) {
	text, hash := c.f.String("ciphertext"), c.f.String("hash_function")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	blob, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(blob) <= wrappingBits/8 {
		return nil, invalid("field \"ciphertext\": must be base64 of a wrapped key and what it wraps")
	}
	h, ok := map[string]crypto.Hash{"": crypto.SHA256, "SHA1": crypto.SHA1, "SHA224": crypto.SHA224,
		"SHA256": crypto.SHA256, "SHA384": crypto.SHA384, "SHA512": crypto.SHA512}[hash]
	if !ok {
		return nil, invalid("field \"hash_function\": %q is none of SHA1, SHA224, SHA256, SHA384, SHA512", hash)
	}
	private, err := c.wrapping(false)
	if err != nil {
		return nil, err
	}
	inner, err := rsa.DecryptOAEP(h.New(), nil, private, blob[:wrappingBits/8], nil)
	if err != nil || len(inner) != 32 {
		return nil, invalid("the import does not open: was it made with the wrapping key of this mount, and this " +
			"hash_function?")
	}
	defer clear(inner)
	raw, err := unwrapKey(inner, blob[wrappingBits/8:])
	if err != nil {
		return nil, invalid("the import does not open: %v", err)
	}
	return raw, nil
}

// imported makes a version of what an import brings.
func (c imports) imported(k *key) (*version, error) {
	v := &version{HMAC: random(32), Made: c.r.Now.UTC()}
	f := k.family()
	if text := c.f.String("public_key"); text != "" && c.f.String("ciphertext") == "" {
		if f.symmetric {
			return nil, invalid("public_key: keys of type %s have none", k.Type)
		}
		der, err := publicOnly(text)
		if err != nil {
			return nil, err
		}
		v.Public = der
		if err := v.ready(k); err != nil {
			return nil, err
		}
		return v, checkKind(k, v.public)
	}
	raw, err := c.unwrap()
	if err != nil {
		return nil, err
	}
	if f.symmetric {
		if want := f.bytes; (!f.hmacOnly && len(raw) != want) || (f.hmacOnly && (len(raw) < 32 || len(raw) > 512)) {
			return nil, invalid("the key has %d bytes, which is not right for type %s", len(raw), k.Type)
		}
		if v.Key = raw; f.hmacOnly {
			k.Size = len(raw)
		}
		return v, nil
	}
	if _, err := x509.ParsePKCS8PrivateKey(raw); err != nil {
		return nil, invalid("the key is not in PKCS 8: %v", err)
	}
	v.Key = raw
	if err := v.ready(k); err != nil {
		return nil, err
	}
	return v, checkKind(k, v.public)
}

// checkKind refuses a key of another type than it is said to have.
func checkKind(k *key, public crypto.PublicKey) error {
	f, ok := k.family(), false
	switch p := public.(type) {
	case ed25519.PublicKey:
		ok = f.ed25519
	case *ecdsa.PublicKey:
		ok = f.curve == p.Curve
	case *rsa.PublicKey:
		ok = f.rsaBits == p.N.BitLen()
	}
	if !ok {
		return invalid("the key is not of type %s", k.Type)
	}
	return nil
}

func (c imports) key() (*secrets.Response, error) {
	have, err := c.find(c.name)
	if err != nil {
		return nil, err
	}
	if have != nil {
		return nil, invalid("the import path cannot be used with an existing key; use import-version to rotate an " +
			"existing imported key")
	}
	k, err := newKey(c.name, c.f)
	if err != nil {
		return nil, err
	}
	k.Imported, k.MayRotate = true, c.f.Bool("allow_rotation", false)
	if k.Every > 0 && !k.MayRotate {
		return nil, invalid("allow_rotation must be set to true if auto-rotation is enabled")
	}
	v, err := c.imported(k)
	if err != nil {
		return nil, err
	}
	if k.Every > 0 {
		k.Next = c.r.Now.UTC().Add(k.Every)
	}
	k.add(v)
	return &secrets.Response{}, c.save(k, time.Time{})
}

// version adds a version to a key that was imported.
func (c imports) version() (*secrets.Response, error) {
	k, err := keyring(c).changing()
	if err != nil {
		return nil, err
	}
	if !k.Imported {
		return nil, invalid("the import_version endpoint can only be used with an imported key")
	}
	v, err := c.imported(k)
	if err != nil {
		return nil, err
	}
	k.add(v)
	return &secrets.Response{}, c.save(k, k.Next)
}

// unwrapKey opens AES key wrap with padding (RFC 5649).
func unwrapKey(kek, wrapped []byte) ([]byte, error) {
	if len(wrapped) < 16 || len(wrapped)%8 != 0 {
		return nil, errors.New("a wrapped key has 16 bytes or more, in steps of 8")
	}
	block, err := aes.NewCipher(kek)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 16)
	out := make([]byte, len(wrapped)-8)
	if len(wrapped) == 16 {
		block.Decrypt(buf, wrapped)
		copy(out, buf[8:])
	} else {
		copy(buf, wrapped[:8])
		copy(out, wrapped[8:])
		n := len(out) / 8
		for j := 5; j >= 0; j-- {
			for i := n; i >= 1; i-- {
				t := binary.BigEndian.Uint64(buf) ^ uint64(n*j+i)
				binary.BigEndian.PutUint64(buf, t)
				copy(buf[8:], out[8*(i-1):8*i])
				block.Decrypt(buf, buf)
				copy(out[8*(i-1):8*i], buf[8:])
			}
		}
	}
	size := int(binary.BigEndian.Uint32(buf[4:8]))
	good := subtle.ConstantTimeCompare(buf[:4], []byte{0xa6, 0x59, 0x59, 0xa6})
	if size <= len(out)-8 || size > len(out) {
		good, size = 0, 0
	}
	for _, pad := range out[size:] {
		good &= subtle.ConstantTimeByteEq(pad, 0)
	}
	if good != 1 {
		return nil, errors.New("the wrapped key does not fit the key around it")
	}
	return out[:size], nil
}
