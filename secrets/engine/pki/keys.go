package pki

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"strings"

	"corbel.dev/corbel/kit/errkind"
)

// privateKey is a key as it is stored: PKCS 8, under "key/<id>".
type privateKey struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Type string `json:"type"`
	DER  []byte `json:"pkcs8"`

	signer crypto.Signer
}

func parseKey(raw []byte) (*privateKey, error) {
	k, err := parsed[privateKey](raw)
	if err != nil {
		return nil, err
	}
	any, err := x509.ParsePKCS8PrivateKey(k.DER)
	if signer, ok := any.(crypto.Signer); err == nil && ok {
		k.signer = signer
		return k, nil
	}
	return nil, errkind.Errorf(errkind.Corrupt, "the key %s is not what was stored", k.ID)
}

const (
	keyRSA     = "rsa"
	keyEC      = "ec"
	keyEd25519 = "ed25519"
)

var curves = map[int]elliptic.Curve{224: elliptic.P224(), 256: elliptic.P256(), 384: elliptic.P384(),
	521: elliptic.P521()}

// keySize checks a type and size as people ask for them, and gives the size that 0 stands for.
func keySize(kind string, bits int) (int, error) {
	switch {
	case kind == keyRSA && bits == 0:
		return 2048, nil
	case kind == keyRSA && (bits == 2048 || bits == 3072 || bits == 4096 || bits == 8192):
		return bits, nil
	case kind == keyEC && bits == 0:
		return 256, nil
	case kind == keyEC && curves[bits] != nil:
		return bits, nil
	case kind == keyEd25519:
		return 0, nil
	case kind == keyRSA || kind == keyEC:
		return 0, invalid("unsupported bit length for %s key: %d", kind, bits)
	}
	return 0, invalid("unknown key type: %q", kind)
}

// newKey makes a key; RSA keys take a core for long, and take turns.
func (e *Engine) newKey(ctx context.Context, who, kind string, bits int) (crypto.Signer, error) {
	switch kind {
	case keyEC:
		return ecdsa.GenerateKey(curves[bits], rand.Reader)
	case keyEd25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	permit, err := e.cfg.Keys.Acquire(ctx, who)
	if err != nil {
		return nil, err
	}
	defer permit.Release()
	return rsa.GenerateKey(rand.Reader, bits)
}

// keyShape tells the type and size of a public key; what no role can allow is refused.
func keyShape(public crypto.PublicKey) (kind string, bits int, err error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if bits = k.N.BitLen(); bits < 2048 || bits > 8192 {
			return "", 0, invalid("RSA keys must have 2048 to 8192 bits, not %d", bits)
		}
		return keyRSA, bits, nil
	case *ecdsa.PublicKey:
		return keyEC, k.Curve.Params().BitSize, nil
	case ed25519.PublicKey:
		return keyEd25519, 0, nil
	}
	return "", 0, invalid("the key is neither RSA, EC nor Ed25519")
}

func samePublic(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

// keyID is the key identifier of RFC 5280: SHA-1 of the public key's bits. It names, it proves nothing.
func keyID(public crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	var info struct {
		Algorithm asn1.RawValue
		Bits      asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &info); err != nil {
		return nil, err
	}
	sum := sha1.Sum(info.Bits.Bytes)
	return sum[:], nil
}

// newSerial draws 159 bits: nobody has the same, and nobody guesses it before it is signed.
func newSerial() *big.Int {
	var b [20]byte
	_, _ = rand.Read(b[:])
	b[0] &= 0x7f
	b[0] |= 0x40 // of full length, so that all look alike
	return new(big.Int).SetBytes(b[:])
}

// colons writes a serial number as the API shows it: aa:bb:cc.
func colons(n *big.Int) string { return separated(n, ':') }

// hyphens writes a serial number as it is named in storage and in lists: aa-bb-cc.
func hyphens(n *big.Int) string { return separated(n, '-') }

func separated(n *big.Int, sep byte) string {
	b := n.Bytes()
	if len(b) == 0 {
		b = []byte{0}
	}
	return separatedBytes(b, sep)
}

func separatedBytes(b []byte, sep byte) string {
	out := make([]byte, 0, 3*len(b))
	for i := range b {
		if i > 0 {
			out = append(out, sep)
		}
		out = hex.AppendEncode(out, b[i:i+1])
	}
	return string(out)
}

// parseSerial reads a serial number in either form and gives it with hyphens.
func parseSerial(text string) (string, bool) {
	text = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(text), ":", "-"))
	if text == "" || len(text) > 3*32 {
		return "", false
	}
	var b []byte
	for part := range strings.SplitSeq(text, "-") {
		one, err := hex.DecodeString(part)
		if err != nil || len(one) != 1 {
			return "", false
		}
		b = append(b, one[0])
	}
	return hyphens(new(big.Int).SetBytes(b)), true
}

// encodePEM writes PEM as the API does, without the last line's end.
func encodePEM(kind string, der []byte) string {
	return strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

func certPEM(der []byte) string { return encodePEM("CERTIFICATE", der) }

// encodeKey writes a private key: its type's own form, or PKCS 8.
func encodeKey(key crypto.Signer, form string) (der []byte, block string, err error) {
	if form != "pkcs8" {
		switch k := key.(type) {
		case *rsa.PrivateKey:
			return x509.MarshalPKCS1PrivateKey(k), "RSA PRIVATE KEY", nil
		case *ecdsa.PrivateKey:
			der, err = x509.MarshalECPrivateKey(k)
			return der, "EC PRIVATE KEY", err
		}
	}
	der, err = x509.MarshalPKCS8PrivateKey(key)
	return der, "PRIVATE KEY", err
}

// decodeKey reads a block of PEM that holds a private key.
func decodeKey(block *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch block.Type {
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, invalid("a private key cannot be read: %v", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, invalid("a private key of type %T cannot sign", key)
	}
	_, _, err = keyShape(signer.Public())
	return signer, err
}

// pemBytes bounds what a request may bring in PEM.
const pemBytes = 1 << 20

// decodeBundle reads certificates and private keys from PEM.
func decodeBundle(text string) (certs []*x509.Certificate, keys []crypto.Signer, err error) {
	if len(text) > pemBytes {
		return nil, nil, invalid("the PEM bundle has more than %d bytes", pemBytes)
	}
	rest := []byte(text)
	for {
		block, after := pem.Decode(rest)
		if block == nil {
			break
		}
		rest = after
		switch {
		case block.Type == "CERTIFICATE":
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, nil, invalid("a certificate cannot be read: %v", err)
			}
			certs = append(certs, cert)
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			key, err := decodeKey(block)
			if err != nil {
				return nil, nil, err
			}
			keys = append(keys, key)
		}
	}
	if len(bytes.TrimSpace(rest)) > 0 || len(certs)+len(keys) == 0 {
		return nil, nil, invalid("no data found in PEM block")
	}
	return certs, keys, nil
}

// requestBytes bounds a request for a certificate.
const requestBytes = 128 << 10

// decodeRequest reads a request for a certificate (CSR) that is signed by its own key.
func decodeRequest(text string) (*x509.CertificateRequest, error) {
	if text == "" {
		return nil, invalid("\"csr\" is empty")
	}
	if len(text) > requestBytes {
		return nil, invalid("the certificate request has more than %d bytes", requestBytes)
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || (block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST") {
		return nil, invalid("csr contains no data")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, invalid("csr: something follows the request")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, invalid("certificate request could not be parsed: %v", err)
	}
	if _, _, err := keyShape(csr.PublicKey); err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, invalid("request signature invalid: %v", err)
	}
	return csr, nil
}

func base64DER(der []byte) string { return base64.StdEncoding.EncodeToString(der) }

// hexColons writes bytes as aa:bb:cc.
func hexColons(b []byte) string { return separatedBytes(b, ':') }
