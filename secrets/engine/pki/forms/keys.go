package forms

import (
	"bytes"
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
)

const (
	KeyRSA     = "rsa"
	KeyEC      = "ec"
	KeyEd25519 = "ed25519"
)

// Curves are those that keys may have, by their bits.
var Curves = map[int]elliptic.Curve{224: elliptic.P224(), 256: elliptic.P256(), 384: elliptic.P384(),
	521: elliptic.P521()}

// KeySize checks a type and size as people ask for them, and gives the size that 0 stands for.
func KeySize(kind string, bits int) (int, error) {
	switch {
	case kind == KeyRSA && bits == 0:
		return 2048, nil
	case kind == KeyRSA && (bits == 2048 || bits == 3072 || bits == 4096 || bits == 8192):
		return bits, nil
	case kind == KeyEC && bits == 0:
		return 256, nil
	case kind == KeyEC && Curves[bits] != nil:
		return bits, nil
	case kind == KeyEd25519:
		return 0, nil
	case kind == KeyRSA || kind == KeyEC:
		return 0, Refused("unsupported bit length for %s key: %d", kind, bits)
	}
	return 0, Refused("unknown key type: %q", kind)
}

// KeyShape tells the type and size of a public key; what no role can allow is refused.
func KeyShape(public crypto.PublicKey) (kind string, bits int, err error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if bits = k.N.BitLen(); bits < 2048 || bits > 8192 {
			return "", 0, Refused("RSA keys must have 2048 to 8192 bits, not %d", bits)
		}
		return KeyRSA, bits, nil
	case *ecdsa.PublicKey:
		return KeyEC, k.Curve.Params().BitSize, nil
	case ed25519.PublicKey:
		return KeyEd25519, 0, nil
	}
	return "", 0, Refused("the key is neither RSA, EC nor Ed25519")
}

// SamePublic reports whether two public keys are one.
func SamePublic(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

// KeyID is the key identifier of RFC 5280: SHA-1 of the public key's bits. It names, it proves nothing.
func KeyID(public crypto.PublicKey) ([]byte, error) {
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

// NewSerial draws 159 bits: nobody has the same, and nobody guesses it before it is signed.
func NewSerial() *big.Int {
	var b [20]byte
	_, _ = rand.Read(b[:])
	b[0] &= 0x7f
	b[0] |= 0x40 // of full length, so that all look alike
	return new(big.Int).SetBytes(b[:])
}

// Colons writes a serial number as the API shows it: aa:bb:cc.
func Colons(n *big.Int) string { return separated(n, ':') }

// Hyphens writes a serial number as it is named in storage and in lists: aa-bb-cc.
func Hyphens(n *big.Int) string { return separated(n, '-') }

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

// ParseSerial reads a serial number in either form and gives it with hyphens.
func ParseSerial(text string) (string, bool) {
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
	return Hyphens(new(big.Int).SetBytes(b)), true
}

// EncodePEM writes PEM as the API does, without the last line's end.
func EncodePEM(kind string, der []byte) string {
	return strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

// CertPEM writes a certificate in PEM.
func CertPEM(der []byte) string { return EncodePEM("CERTIFICATE", der) }

// EncodeKey writes a private key: its type's own form, or PKCS 8.
func EncodeKey(key crypto.Signer, form string) (der []byte, block string, err error) {
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

// DecodeKey reads a block of PEM that holds a private key.
func DecodeKey(block *pem.Block) (crypto.Signer, error) {
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
		return nil, Refused("a private key cannot be read: %v", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, Refused("a private key of type %T cannot sign", key)
	}
	_, _, err = KeyShape(signer.Public())
	return signer, err
}

// PemBytes bounds what a request may bring in PEM.
const PemBytes = 1 << 20

// DecodeBundle reads certificates and private keys from PEM.
func DecodeBundle(text string) (certs []*x509.Certificate, keys []crypto.Signer, err error) {
	if len(text) > PemBytes {
		return nil, nil, Refused("the PEM bundle has more than %d bytes", PemBytes)
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
				return nil, nil, Refused("a certificate cannot be read: %v", err)
			}
			certs = append(certs, cert)
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			key, err := DecodeKey(block)
			if err != nil {
				return nil, nil, err
			}
			keys = append(keys, key)
		}
	}
	if len(bytes.TrimSpace(rest)) > 0 || len(certs)+len(keys) == 0 {
		return nil, nil, Refused("no data found in PEM block")
	}
	return certs, keys, nil
}

// requestBytes bounds a request for a certificate.
const requestBytes = 128 << 10

// DecodeRequest reads a request for a certificate (CSR) that is signed by its own key.
func DecodeRequest(text string) (*x509.CertificateRequest, error) {
	if text == "" {
		return nil, Refused("\"csr\" is empty")
	}
	if len(text) > requestBytes {
		return nil, Refused("the certificate request has more than %d bytes", requestBytes)
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || (block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST") {
		return nil, Refused("csr contains no data")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, Refused("csr: something follows the request")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, Refused("certificate request could not be parsed: %v", err)
	}
	if _, _, err := KeyShape(csr.PublicKey); err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, Refused("request signature invalid: %v", err)
	}
	return csr, nil
}

// Base64DER writes DER as the API does.
func Base64DER(der []byte) string { return base64.StdEncoding.EncodeToString(der) }

// HexColons writes bytes as aa:bb:cc.
func HexColons(b []byte) string { return separatedBytes(b, ':') }
