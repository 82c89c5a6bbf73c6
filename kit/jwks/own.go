package jwks

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"corbel.dev/corbel/kit/errkind"
)

// Own signs and checks the tokens that this program hands out itself, with one key and one algorithm. It is the only
// place where a secret that is shared signs: both ends of it are ours.
type Own struct {
	alg    Algorithm
	check  any
	signer jose.Signer // nil where only a public key is known
}

// NewSecret returns an Own that signs with HS256. The secret has 32 bytes or more.
func NewSecret(secret []byte) (*Own, error) {
	if len(secret) < 32 {
		return nil, errors.New("a secret of less than 32 bytes")
	}
	return newOwn(jose.HS256, secret, secret)
}

// NewEC returns an Own that signs with a private EC key in PEM, by ES256, ES384 or ES512 as its curve has it. public,
// where it is given, is what tokens are checked with in place of the private key's other half; with it alone nothing
// can be signed.
func NewEC(private, public []byte) (*Own, error) {
	var key *ecdsa.PrivateKey
	var check *ecdsa.PublicKey
	if len(private) > 0 {
		var err error
		if key, err = ecPrivate(private); err != nil {
			return nil, fmt.Errorf("private key: %w", err)
		}
		check = &key.PublicKey
	}
	if len(public) > 0 {
		other, err := PublicKey(string(public))
		if err != nil {
			return nil, fmt.Errorf("public key: %w", err)
		}
		ec, ok := other.(*ecdsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("public key: it is a %T, not an EC key", other)
		}
		check = ec
	}
	if check == nil {
		return nil, errors.New("neither a private nor a public key")
	}
	alg, ok := map[int]Algorithm{256: jose.ES256, 384: jose.ES384, 521: jose.ES512}[check.Curve.Params().BitSize]
	if !ok {
		return nil, fmt.Errorf("the curve %s is not P-256, P-384 or P-521", check.Curve.Params().Name)
	}
	if key == nil {
		return &Own{alg: alg, check: check}, nil
	}
	return newOwn(alg, key, check)
}

func ecPrivate(text []byte) (*ecdsa.PrivateKey, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "EC PRIVATE KEY":
			return x509.ParseECPrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			if ec, ok := key.(*ecdsa.PrivateKey); ok {
				return ec, nil
			}
			return nil, fmt.Errorf("it is a %T, not an EC key", key)
		}
	}
	return nil, errors.New("no PEM block of an EC key")
}

func newOwn(alg Algorithm, key, check any) (*Own, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, err
	}
	return &Own{alg, check, signer}, nil
}

// Sign returns a token that says what claims does.
func (o *Own) Sign(claims any) (string, error) {
	if o.signer == nil {
		return "", errkind.Errorf(errkind.Unavailable, "tokens cannot be signed: there is no private key")
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed, err := o.signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// Check reads what a token of ours says. Whether its times hold is for the caller to find out. Errors are of kind
// Denied.
func (o *Own) Check(token string, claims any) error {
	if len(token) > MaxBytes {
		return errkind.Errorf(errkind.Denied, "a token of %d bytes", len(token))
	}
	signed, err := jose.ParseSignedCompact(token, []Algorithm{o.alg})
	if err != nil {
		return errkind.E(errkind.Denied, "token", err)
	}
	payload, err := signed.Verify(o.check)
	if err != nil {
		return errkind.E(errkind.Denied, "token", err)
	}
	return errkind.E(errkind.Denied, "token", json.Unmarshal(payload, claims))
}
