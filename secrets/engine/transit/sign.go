package transit

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha1" // hashes that crypto.Hash finds
	_ "crypto/sha256"
	_ "crypto/sha3"
	_ "crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"strconv"

	"corbel.dev/corbel/secrets"
)

// hashes are by the names that requests use.
var hashes = map[string]crypto.Hash{"sha1": crypto.SHA1, "sha2-224": crypto.SHA224, "sha2-256": crypto.SHA256,
	"sha2-384": crypto.SHA384, "sha2-512": crypto.SHA512,
	"sha3-224": crypto.SHA3_224, "sha3-256": crypto.SHA3_256, "sha3-384": crypto.SHA3_384, "sha3-512": crypto.SHA3_512}

// signing signs and verifies.
type signing struct{ *call }

// hashName is what a request says of its hash: in the path, or in a field by its newer or older name.
func (c signing) hashName(f *secrets.Fields) string {
	if len(c.more) > 0 {
		return c.more[0]
	}
	for _, name := range []string{"hash_algorithm", "algorithm"} {
		for _, from := range []*secrets.Fields{f, c.f} {
			if text := from.String(name); text != "" {
				return text
			}
		}
	}
	return "sha2-256"
}

func hashBy(name string) (crypto.Hash, error) {
	h, ok := hashes[name]
	if !ok {
		return 0, invalid("unsupported hash algorithm %q", name)
	}
	return h, nil
}

func sum(h crypto.Hash, b []byte) []byte {
	w := h.New()
	w.Write(b)
	return w.Sum(nil)
}

// manner is how a signature is made.
type manner struct {
	hash      crypto.Hash // 0: the input is signed as it is (RSA, PKCS 1 v1.5, prehashed)
	prehashed bool
	pkcs1     bool
	salt      int
	jws       bool
}

// either reads a field of the item, else of the request around it.
func (c signing) either(f *secrets.Fields, name string) *secrets.Fields {
	if f.Has(name) {
		return f
	}
	return c.f
}

func (c signing) manner(f *secrets.Fields) (m manner, err error) {
	name := c.hashName(f)
	m.prehashed = c.either(f, "prehashed").Bool("prehashed", false)
	switch s := c.either(f, "signature_algorithm").String("signature_algorithm"); s {
	case "", "pss":
	case "pkcs1v15":
		m.pkcs1 = true
	default:
		return m, invalid("invalid signature_algorithm %q: must be pss or pkcs1v15", s)
	}
	if name == "none" && m.prehashed && m.pkcs1 {
		m.hash = 0
	} else if m.hash, err = hashBy(name); err != nil {
		return m, err
	}
	switch s := c.either(f, "marshaling_algorithm").String("marshaling_algorithm"); s {
	case "", "asn1":
	case "jws":
		m.jws = true
	default:
		return m, invalid("invalid marshaling_algorithm %q: must be asn1 or jws", s)
	}
	switch s := c.either(f, "salt_length").String("salt_length"); s {
	case "", "auto":
		m.salt = rsa.PSSSaltLengthAuto
	case "hash":
		m.salt = rsa.PSSSaltLengthEqualsHash
	default:
		if m.salt, err = strconv.Atoi(s); err != nil || m.salt < 1 {
			return m, invalid("invalid salt_length %q: must be auto, hash or a number of bytes", s)
		}
	}
	if err := c.f.Err(); err != nil {
		return m, err
	}
	return m, f.Err()
}

// digest is what is signed.
func (m manner) digest(input []byte) ([]byte, error) {
	if !m.prehashed {
		return sum(m.hash, input), nil
	}
	if m.hash != 0 && len(input) != m.hash.Size() {
		return nil, invalid("the prehashed input has %d bytes, not the %d of its hash", len(input), m.hash.Size())
	}
	return input, nil
}

// encoded writes a signature.
func (m manner) encoded(sig []byte) string {
	if m.jws {
		return base64.RawURLEncoding.EncodeToString(sig)
	}
	return encode(sig)
}

func (m manner) decoded(text string) ([]byte, error) {
	enc := base64.StdEncoding
	if m.jws {
		enc = base64.RawURLEncoding
	}
	b, err := enc.DecodeString(text)
	if err != nil {
		return nil, invalid("invalid base64 signature value")
	}
	return b, nil
}

var errPrehashed = invalid("only Pure Ed25519 signatures supported: prehashed must be false")

// signed signs with a version.
func (v *version) signed(k *key, m manner, context, input []byte) ([]byte, error) {
	if v.signer == nil {
		return nil, invalid("the private half of this version of the key is not here")
	}
	switch private := v.signer.(type) {
	case ed25519.PrivateKey:
		if m.prehashed {
			return nil, errPrehashed
		}
		if k.Derived {
			seed, err := derive(private.Seed(), context, ed25519.SeedSize)
			if err != nil {
				return nil, err
			}
			private = ed25519.NewKeyFromSeed(seed)
		}
		return ed25519.Sign(private, input), nil
	case *ecdsa.PrivateKey:
		digest, err := m.digest(input)
		if err != nil {
			return nil, err
		}
		if !m.jws {
			return ecdsa.SignASN1(rand.Reader, private, digest)
		}
		r, s, err := ecdsa.Sign(rand.Reader, private, digest)
		if err != nil {
			return nil, err
		}
		half := (private.Curve.Params().BitSize + 7) / 8
		out := make([]byte, 2*half)
		r.FillBytes(out[:half])
		s.FillBytes(out[half:])
		return out, nil
	case *rsa.PrivateKey:
		digest, err := m.digest(input)
		if err != nil {
			return nil, err
		}
		var sig []byte
		if m.pkcs1 {
			sig, err = rsa.SignPKCS1v15(nil, private, m.hash, digest)
		} else {
			sig, err = rsa.SignPSS(rand.Reader, private, m.hash, digest, &rsa.PSSOptions{SaltLength: m.salt})
		}
		if err != nil {
			return nil, invalid("failed to sign: %v", err)
		}
		return sig, nil
	}
	return nil, invalid("unsupported key type %s", k.Type)
}

// verified reports whether a signature is of a version.
func (v *version) verified(k *key, m manner, context, input, sig []byte) (bool, error) {
	switch public := v.public.(type) {
	case ed25519.PublicKey:
		if m.prehashed {
			return false, errPrehashed
		}
		if k.Derived {
			private, ok := v.signer.(ed25519.PrivateKey)
			if !ok {
				return false, invalid("a derived key verifies with its private half alone")
			}
			seed, err := derive(private.Seed(), context, ed25519.SeedSize)
			if err != nil {
				return false, err
			}
			public = ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
		}
		return ed25519.Verify(public, input, sig), nil
	case *ecdsa.PublicKey:
		digest, err := m.digest(input)
		if err != nil {
			return false, err
		}
		if !m.jws {
			return ecdsa.VerifyASN1(public, digest, sig), nil
		}
		half := (public.Curve.Params().BitSize + 7) / 8
		if len(sig) != 2*half {
			return false, nil
		}
		return ecdsa.Verify(public, digest, new(big.Int).SetBytes(sig[:half]), new(big.Int).SetBytes(sig[half:])), nil
	case *rsa.PublicKey:
		digest, err := m.digest(input)
		if err != nil {
			return false, err
		}
		if m.pkcs1 {
			return rsa.VerifyPKCS1v15(public, m.hash, digest, sig) == nil, nil
		}
		return rsa.VerifyPSS(public, m.hash, digest, sig, &rsa.PSSOptions{SaltLength: m.salt}) == nil, nil
	}
	return false, invalid("unsupported key type %s", k.Type)
}

func input(f *secrets.Fields) ([]byte, error) {
	if !f.Has("input") {
		return nil, invalid("missing input")
	}
	b, err := base64.StdEncoding.DecodeString(f.String("input"))
	if err != nil {
		return nil, invalid("unable to decode input as base64: %s", err)
	}
	return b, f.Err()
}

func (c signing) sign() (*secrets.Response, error) {
	k, err := c.need()
	if err != nil {
		return nil, err
	}
	if !k.family().signs {
		return nil, invalid("key type %s does not support signing", k.Type)
	}
	return c.each(func(f *secrets.Fields) (map[string]any, error) {
		b, err := input(f)
		if err != nil {
			return nil, err
		}
		m, err := c.manner(f)
		if err != nil {
			return nil, err
		}
		context, err := k.context(f)
		if err != nil {
			return nil, err
		}
		n, v, err := k.forUse(c.either(f, "key_version").Int("key_version", 0))
		if err != nil {
			return nil, err
		}
		sig, err := v.signed(k, m, context, b)
		if err != nil {
			return nil, err
		}
		out := map[string]any{"signature": joined(n, m.encoded(sig)), "key_version": n}
		if k.Derived && k.family().ed25519 {
			seed, err := derive(v.signer.(ed25519.PrivateKey).Seed(), context, ed25519.SeedSize)
			if err != nil {
				return nil, err
			}
			out["public_key"] = encode(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
		}
		return out, nil
	})
}

// macKey is what a version authenticates with.
func (v *version) macKey(k *key) []byte {
	if k.family().hmacOnly {
		return v.Key
	}
	return v.HMAC
}

func (c signing) hmac() (*secrets.Response, error) {
	k, err := c.need()
	if err != nil {
		return nil, err
	}
	return c.each(func(f *secrets.Fields) (map[string]any, error) {
		b, err := input(f)
		if err != nil {
			return nil, err
		}
		h, err := hashBy(c.hashName(f))
		if err != nil {
			return nil, err
		}
		n, v, err := k.forUse(c.either(f, "key_version").Int("key_version", 0))
		if err != nil {
			return nil, err
		}
		mac := hmac.New(h.New, v.macKey(k))
		mac.Write(b)
		return map[string]any{"hmac": joined(n, encode(mac.Sum(nil)))}, nil
	})
}

// verify tells whether a signature, or an HMAC, is good.
func (c signing) verify() (*secrets.Response, error) {
	k, err := c.need()
	if err != nil {
		return nil, err
	}
	return c.each(func(f *secrets.Fields) (map[string]any, error) {
		b, err := input(f)
		if err != nil {
			return nil, err
		}
		sig, mac := f.String("signature"), f.String("hmac")
		var good bool
		switch {
		case sig != "" && mac != "":
			return nil, invalid("provide one of 'signature' or 'hmac'")
		case sig != "":
			good, err = c.verifySignature(k, f, b, sig)
		case mac != "":
			good, err = c.verifyHMAC(k, f, b, mac)
		default:
			return nil, invalid("neither a 'signature' nor an 'hmac' was given to verify")
		}
		if err != nil {
			return nil, err
		}
		return map[string]any{"valid": good}, nil
	})
}

func (c signing) verifySignature(k *key, f *secrets.Fields, b []byte, text string) (bool, error) {
	if !k.family().signs {
		return false, invalid("key type %s does not support verification", k.Type)
	}
	m, err := c.manner(f)
	if err != nil {
		return false, err
	}
	context, err := k.context(f)
	if err != nil {
		return false, err
	}
	n, rest, err := split("signature", text)
	if err != nil {
		return false, err
	}
	v, err := k.forOpening(n)
	if err != nil {
		return false, err
	}
	sig, err := m.decoded(rest)
	if err != nil {
		return false, err
	}
	return v.verified(k, m, context, b, sig)
}

func (c signing) verifyHMAC(k *key, f *secrets.Fields, b []byte, text string) (bool, error) {
	h, err := hashBy(c.hashName(f))
	if err != nil {
		return false, err
	}
	n, rest, err := split("HMAC", text)
	if err != nil {
		return false, err
	}
	v, err := k.forOpening(n)
	if err != nil {
		return false, err
	}
	given, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return false, invalid("invalid HMAC: could not decode base64")
	}
	mac := hmac.New(h.New, v.macKey(k))
	mac.Write(b)
	return hmac.Equal(given, mac.Sum(nil)), nil
}

func written(b []byte, format string) (string, error) {
	switch format {
	case "hex":
		return hex.EncodeToString(b), nil
	case "base64":
		return encode(b), nil
	}
	return "", invalid("unsupported encoding format %q; must be \"hex\" or \"base64\"", format)
}

// hash needs no key.
func (c *call) hash() (*secrets.Response, error) {
	b, err := input(c.f)
	if err != nil {
		return nil, err
	}
	h, err := hashBy(signing{c}.hashName(c.f))
	if err != nil {
		return nil, err
	}
	format := c.f.String("format")
	if format == "" {
		format = "hex"
	}
	text, err := written(sum(h, b), format)
	if err != nil {
		return nil, err
	}
	return answer(map[string]string{"sum": text})
}

// randomMost bounds the bytes of one answer.
const randomMost = 128 << 10

func (c *call) random() (*secrets.Response, error) {
	n, format := c.f.Int("bytes", 32), c.f.String("format")
	for _, part := range c.more {
		switch number, err := strconv.Atoi(part); {
		case err == nil:
			n = number
		case part != "platform" && part != "seal" && part != "all":
			return nil, invalid("unsupported entropy source %q", part)
		}
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if n < 1 || n > randomMost {
		return nil, invalid("\"bytes\" must be 1 to %d", randomMost)
	}
	if format == "" {
		format = "base64"
	}
	text, err := written(random(n), format)
	if err != nil {
		return nil, err
	}
	return answer(map[string]string{"random_bytes": text})
}
