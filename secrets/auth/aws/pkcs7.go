package aws

import (
	"bytes"
	"crypto"
	//lint:ignore SA1019 AWS signs documents of machines with it
	"crypto/dsa"
	"crypto/rsa"
	_ "crypto/sha1" // of DSA signatures
	_ "crypto/sha256"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// element is one of BER. AWS' documents come with lengths that are not said beforehand, which encoding/asn1 does not
// read.
type element struct {
	id   byte
	raw  []byte // of a primitive one
	kids []element
}

const (
	constructed = 0x20
	octets      = 0x04
	objectID    = 0x06
	sequence    = 0x30
	set         = 0x31
	context0    = 0xa0
	deepest     = 24
	pkcs7Bytes  = 64 << 10
)

var errBER = errors.New("it is no BER")

// parseBER reads the first element of b.
func parseBER(b []byte, depth int) (e element, rest []byte, err error) {
	if len(b) < 2 || b[0]&0x1f == 0x1f || depth > deepest {
		return e, nil, errBER
	}
	e.id, b = b[0], b[1:]
	n, b := int(b[0]), b[1:]
	open := n == 0x80
	if n > 0x80 {
		size := n & 0x7f
		if size > 4 || len(b) < size {
			return e, nil, errBER
		}
		n = 0
		for _, c := range b[:size] {
			n = n<<8 | int(c)
		}
		b = b[size:]
	}
	switch {
	case open && e.id&constructed == 0, !open && (n < 0 || n > len(b)):
		return e, nil, errBER
	case e.id&constructed == 0:
		e.raw = b[:n]
		return e, b[n:], nil
	case !open:
		b, rest = b[:n], b[n:]
	}
	for {
		if open && len(b) >= 2 && b[0] == 0 && b[1] == 0 {
			return e, b[2:], nil
		}
		if !open && len(b) == 0 {
			return e, rest, nil
		}
		var kid element
		if kid, b, err = parseBER(b, depth+1); err != nil {
			return e, nil, err
		}
		e.kids = append(e.kids, kid)
	}
}

// der writes an element as DER has it: what is signed of attributes.
func (e *element) der() []byte {
	content := e.raw
	if e.id&constructed != 0 {
		content = nil
		for i := range e.kids {
			content = append(content, e.kids[i].der()...)
		}
	}
	out := []byte{e.id}
	switch n := len(content); {
	case n < 0x80:
		out = append(out, byte(n))
	case n < 0x100:
		out = append(out, 0x81, byte(n))
	case n < 0x10000:
		out = append(out, 0x82, byte(n>>8), byte(n))
	default:
		out = append(out, 0x83, byte(n>>16), byte(n>>8), byte(n))
	}
	return append(out, content...)
}

// text is the value of an octet string, which may come in pieces.
func (e *element) text() []byte {
	if e.id&constructed == 0 {
		return e.raw
	}
	var out []byte
	for i := range e.kids {
		out = append(out, e.kids[i].text()...)
	}
	return out
}

// is reports whether an element is an object identifier.
func (e *element) is(oid string) bool { return e.id == objectID && string(e.raw) == oid }

// Object identifiers, as BER has them.
const (
	oidSigned     = "\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02"
	oidData       = "\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01"
	oidAttrType   = "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x03"
	oidAttrDigest = "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x04"
	oidSHA1       = "\x2b\x0e\x03\x02\x1a"
	oidSHA256     = "\x60\x86\x48\x01\x65\x03\x04\x02\x01"
)

// at is the kid of a number; an element without it gives one that is nothing.
func (e *element) at(i int) *element {
	if i < 0 || i >= len(e.kids) {
		return &element{}
	}
	return &e.kids[i]
}

// signedContent is what a PKCS 7 message says, once one of the keys was found to have signed it.
func signedContent(raw []byte, keys []any) ([]byte, error) {
	if len(raw) > pkcs7Bytes {
		return nil, fmt.Errorf("it has more than %d bytes", pkcs7Bytes)
	}
	outer, rest, err := parseBER(raw, 0)
	if err != nil || len(rest) > 0 {
		return nil, errBER
	}
	data := outer.at(1).at(0)
	inner := data.at(2)
	signers := data.at(len(data.kids) - 1)
	switch {
	case outer.id != sequence || !outer.at(0).is(oidSigned) || data.id != sequence || len(data.kids) < 4:
		return nil, errors.New("it is no signed message of PKCS 7")
	case !inner.at(0).is(oidData) || inner.at(1).id != context0:
		return nil, errors.New("it has no document")
	case signers.id != set || len(signers.kids) != 1:
		return nil, errors.New("it must have one signature")
	}
	content := inner.at(1).text()
	if err := verify(signers.at(0), content, keys); err != nil {
		return nil, err
	}
	return content, nil
}

// verify checks a SignerInfo, whoever it says that it is of.
func verify(signer *element, content []byte, keys []any) error {
	var hash crypto.Hash
	switch alg := signer.at(2).at(0); {
	case alg.is(oidSHA1):
		hash = crypto.SHA1
	case alg.is(oidSHA256):
		hash = crypto.SHA256
	default:
		return errors.New("its digest is neither SHA-1 nor SHA-256")
	}
	digest := func(b []byte) []byte {
		h := hash.New()
		h.Write(b)
		return h.Sum(nil)
	}
	signed, next := content, 3
	if attrs := signer.at(3); attrs.id == context0 {
		if err := attrs.vouch(digest(content)); err != nil {
			return err
		}
		as := *attrs
		as.id = set // what is signed is not how it is sent
		signed, next = as.der(), 4
	}
	mark := signer.at(next + 1)
	if mark.id&^constructed != octets {
		return errors.New("it has no signature")
	}
	sum, signature := digest(signed), mark.text()
	if !slices.ContainsFunc(keys, func(key any) bool { return signedBy(key, hash, sum, signature) }) {
		return errors.New("it is signed by none of the certificates of config/certificate")
	}
	return nil
}

// vouch checks that signed attributes are of a content with the digest.
func (e *element) vouch(digest []byte) error {
	digests := 0
	for i := range e.kids {
		attr := e.at(i)
		value := attr.at(1).at(0)
		switch {
		case attr.at(0).is(oidAttrDigest) && !bytes.Equal(value.text(), digest):
			return errors.New("its signature is of another document")
		case attr.at(0).is(oidAttrDigest):
			digests++
		case attr.at(0).is(oidAttrType) && !value.is(oidData):
			return errors.New("its signature is of no document")
		}
	}
	if digests != 1 {
		return errors.New("its signature says no digest")
	}
	return nil
}

// signedBy reports whether a key made a signature: DSA with either digest, as AWS has it, RSA with SHA-256 alone.
func signedBy(key any, hash crypto.Hash, sum, signature []byte) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return hash == crypto.SHA256 && rsa.VerifyPKCS1v15(key, hash, sum, signature) == nil
	case *dsa.PublicKey:
		var pair struct{ R, S *big.Int }
		rest, err := asn1.Unmarshal(signature, &pair)
		most := (key.Q.BitLen() + 7) / 8
		return err == nil && len(rest) == 0 && dsa.Verify(key, sum[:min(len(sum), most)], pair.R, pair.S)
	}
	return false
}
