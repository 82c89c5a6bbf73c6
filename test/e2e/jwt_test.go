package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"
)

// jwtMain signs claims, given as JSON, with the key in key.pem (see certs) and prints the JWT: jwt CLAIMS.
func jwtMain() {
	text, err := os.ReadFile("key.pem")
	if err != nil {
		fail("%v", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		fail("key.pem holds no PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		fail("%v", err)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		fail("%v", err)
	}
	signed, err := s.Sign([]byte(os.Args[1]))
	if err != nil {
		fail("%v", err)
	}
	compact, err := signed.CompactSerialize()
	if err != nil {
		fail("%v", err)
	}
	fmt.Println(compact)
}
