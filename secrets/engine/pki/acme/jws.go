package acme

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
)

// header is the protected header of a signed request.
type header struct {
	Alg   string          `json:"alg"`
	Nonce string          `json:"nonce"`
	URL   string          `json:"url"`
	Kid   string          `json:"kid"`
	Key   json.RawMessage `json:"jwk"`
}

// message is a signed request (a flattened JWS).
type message struct {
	head      header
	key       *key // of the header, where it has one
	payload   []byte
	signed    []byte // what the signature is of
	signature []byte
}

// key is a public key of a client.
type key struct {
	public crypto.PublicKey
	print  string // its thumbprint (RFC 7638)
	raw    []byte // as a client gave it
}

const (
	messageBytes = 256 << 10
	rsaLeast     = 2048
	rsaMost      = 8192
)

func malformed(format string, args ...any) *Problem {
	return problem(http.StatusBadRequest, "malformed", format, args...)
}

// parseMessage reads a signed request and judges its form, not yet its signature.
func parseMessage(protected, payload, signature string) (*message, error) {
	if len(protected)+len(payload)+len(signature) > messageBytes {
		return nil, malformed("the request is longer than %d bytes", messageBytes)
	}
	m := &message{signed: []byte(protected + "." + payload)}
	head, err := base64.RawURLEncoding.DecodeString(protected)
	if err != nil || json.Unmarshal(head, &m.head) != nil {
		return nil, malformed("protected is no header in base64url")
	}
	if m.payload, err = base64.RawURLEncoding.DecodeString(payload); err != nil {
		return nil, malformed("payload is not in base64url")
	}
	if m.signature, err = base64.RawURLEncoding.DecodeString(signature); err != nil || len(m.signature) == 0 {
		return nil, malformed("signature is not in base64url")
	}
	switch {
	case m.head.Kid != "" && m.head.Key != nil:
		return nil, malformed("the signed header has both jwk and kid")
	case m.head.Key != nil:
		if m.key, err = parseKey(m.head.Key); err != nil {
			return nil, err
		}
	}
	return m, nil
}

var curves = map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}

// parseKey reads a JWK.
func parseKey(raw []byte) (*key, error) {
	bad := problem(http.StatusBadRequest, "badPublicKey", "jwk is no public key of RSA (2048 bits or more), EC or Ed25519")
	var j struct{ Kty, Crv, X, Y, N, E, D, K string }
	if json.Unmarshal(raw, &j) != nil || j.D != "" || j.K != "" {
		return nil, bad
	}
	var parts [4][]byte
	for i, text := range []string{j.X, j.Y, j.N, j.E} {
		var err error
		if parts[i], err = base64.RawURLEncoding.DecodeString(text); err != nil || len(text) > rsaMost/4 {
			return nil, bad
		}
	}
	x, y, n, e := parts[0], parts[1], parts[2], parts[3]
	k, canon := &key{raw: bytes.Clone(raw)}, ""
	switch {
	case j.Kty == "EC" && curves[j.Crv] != nil:
		size := (curves[j.Crv].Params().BitSize + 7) / 8
		if len(x) != size || len(y) != size {
			return nil, bad
		}
		public, err := ecdsa.ParseUncompressedPublicKey(curves[j.Crv], append(append([]byte{4}, x...), y...))
		if err != nil {
			return nil, bad
		}
		k.public, canon = public, fmt.Sprintf(`{"crv":%q,"kty":"EC","x":%q,"y":%q}`, j.Crv, j.X, j.Y)
	case j.Kty == "RSA":
		exponent := new(big.Int).SetBytes(e)
		public := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent.Int64())}
		if bits := public.N.BitLen(); bits < rsaLeast || bits > rsaMost || exponent.BitLen() > 31 || public.E < 3 ||
			public.E%2 == 0 {
			return nil, bad
		}
		k.public, canon = public, fmt.Sprintf(`{"e":%q,"kty":"RSA","n":%q}`, j.E, j.N)
	case j.Kty == "OKP" && j.Crv == "Ed25519" && len(x) == ed25519.PublicKeySize:
		k.public, canon = ed25519.PublicKey(x), fmt.Sprintf(`{"crv":"Ed25519","kty":"OKP","x":%q}`, j.X)
	default:
		return nil, bad
	}
	sum := sha256.Sum256([]byte(canon))
	k.print = base64.RawURLEncoding.EncodeToString(sum[:])
	return k, nil
}

func (k *key) same(public crypto.PublicKey) bool {
	own, ok := k.public.(interface{ Equal(crypto.PublicKey) bool })
	return ok && own.Equal(public)
}

// signedBy checks the signature. The key decides which algorithms there are.
func (m *message) signedBy(k *key) error {
	var good bool
	switch public := k.public.(type) {
	case *ecdsa.PublicKey:
		bits := public.Curve.Params().BitSize
		alg, hash := map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[bits], hashOf(map[int]int{256: 256, 384: 384,
			521: 512}[bits], m.signed)
		if m.head.Alg != alg {
			return badAlgorithm(alg)
		}
		size := (bits + 7) / 8
		good = len(m.signature) == 2*size && ecdsa.Verify(public, hash, new(big.Int).SetBytes(m.signature[:size]),
			new(big.Int).SetBytes(m.signature[size:]))
	case *rsa.PublicKey:
		if m.head.Alg != "RS256" {
			return badAlgorithm("RS256")
		}
		good = rsa.VerifyPKCS1v15(public, crypto.SHA256, hashOf(256, m.signed), m.signature) == nil
	case ed25519.PublicKey:
		if m.head.Alg != "EdDSA" {
			return badAlgorithm("EdDSA")
		}
		good = ed25519.Verify(public, m.signed, m.signature)
	}
	if !good {
		return malformed("the signature is wrong")
	}
	return nil
}

func badAlgorithm(want string) error {
	return problem(http.StatusBadRequest, "badSignatureAlgorithm", "alg must be %s with this key", want)
}

func hashOf(bits int, b []byte) []byte {
	switch bits {
	case 384:
		sum := sha512.Sum384(b)
		return sum[:]
	case 512:
		sum := sha512.Sum512(b)
		return sum[:]
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// signedWith checks a signature that a shared secret made.
func (m *message) signedWith(secret []byte) bool {
	if m.head.Alg != "HS256" {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(m.signed)
	return hmac.Equal(mac.Sum(nil), m.signature)
}
