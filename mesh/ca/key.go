package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// The types of keys, as the configuration names them.
const (
	keyEC  = "ec"
	keyRSA = "rsa"
)

var curves = map[int]elliptic.Curve{256: elliptic.P256(), 384: elliptic.P384(), 521: elliptic.P521()}

var rsaBits = []int{2048, 3072, 4096}

func soundKey(kind string, bits int) bool {
	return kind == keyEC && curves[bits] != nil || kind == keyRSA && slices.Contains(rsaBits, bits)
}

// NewKey makes a private key of the type and size, also as PEM.
func NewKey(kind string, bits int) (crypto.Signer, string, error) {
	switch {
	case !soundKey(kind, bits):
		return nil, "", fmt.Errorf("no keys of type %q have %d bits", kind, bits)
	case kind == keyRSA:
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			return nil, "", err
		}
		return key, encodePEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)), nil
	}
	key, err := ecdsa.GenerateKey(curves[bits], rand.Reader)
	if err != nil {
		return nil, "", err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, encodePEM("EC PRIVATE KEY", der), err
}

// parseKey reads a private key in any of the usual forms.
func parseKey(text string) (crypto.Signer, error) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		default: // openssl writes the curve's parameters in front
			continue
		}
		if err != nil {
			return nil, err
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("a key of type %T cannot sign", key)
		}
		_, _, err = keyShape(signer.Public())
		return signer, err
	}
	return nil, errors.New("holds no private key in PEM")
}

// keyShape tells a public key's type and size; others than the configuration could ask for are refused.
func keyShape(public crypto.PublicKey) (kind string, bits int, err error) {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		kind, bits = keyEC, k.Curve.Params().BitSize
	case *rsa.PublicKey:
		kind, bits = keyRSA, k.N.BitLen()
	}
	if !soundKey(kind, bits) {
		return "", 0, errors.New("the key must be ec with 256, 384 or 521 bits, or rsa with 2048, 3072 or 4096")
	}
	return kind, bits, nil
}

// subjectKeyID names a public key within certificates.
func subjectKeyID(public crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	sum := sha256.Sum256(der)
	return sum[:], err
}

// serial is a number that nobody else has: 120 random bits, so that servers need not agree on a counter.
func serial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return n.Add(n, big.NewInt(1)), nil
}

// rootSerial is a serial number that JSON's numbers hold exactly, as answers about roots need.
func rootSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, big.NewInt(1<<53-1))
	if err != nil {
		return nil, err
	}
	return n.Add(n, big.NewInt(1)), nil
}

// colons writes bytes as people compare them: aa:bb:cc.
func colons(b []byte) string {
	var s strings.Builder
	for i := range b {
		if i > 0 {
			s.WriteByte(':')
		}
		s.WriteString(hex.EncodeToString(b[i : i+1]))
	}
	return s.String()
}

// fingerprint is the id of a certificate in the API; it names, it proves nothing.
func fingerprint(cert *x509.Certificate) string {
	sum := sha1.Sum(cert.Raw)
	return colons(sum[:])
}

func encodePEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func certPEM(der []byte) string { return encodePEM("CERTIFICATE", der) }

// parseCert reads the first certificate of a PEM text.
func parseCert(text string) (*x509.Certificate, error) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, errors.New("holds no certificate in PEM")
}
