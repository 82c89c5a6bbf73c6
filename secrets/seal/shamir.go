// Package seal keeps the key that opens the barrier: split into shares among
// people, or wrapped by a key that the environment gives.
//
// Shares have the form that Vault's operators know: for each byte of the secret
// a random polynomial over GF(2^8) with the field's polynomial 0x11b whose value
// at 0 is that byte; a share is the values at one x, and then x itself. The
// arithmetic neither branches nor indexes by secret bytes. Combine cannot tell
// wrong shares from right ones: whoever combines must try the key.
package seal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
)

// MaxShares is the number of points that the field has beside 0.
const MaxShares = 255

// Split makes shares of a secret, any threshold of which give it back, and
// fewer tell nothing. One share with threshold 1 is the secret itself with a byte after it.
func Split(secret []byte, shares, threshold int) ([][]byte, error) {
	return split(rand.Reader, secret, shares, threshold)
}

// CheckShares reports what is wrong with a number of shares and a threshold, by the names of the API's parameters.
func CheckShares(shares, threshold int) error {
	switch {
	case shares < 1 || shares > MaxShares:
		return fmt.Errorf("secret_shares: must be between 1 and %d", MaxShares)
	case threshold < 1 || threshold > shares:
		return errors.New("secret_threshold: must be between 1 and secret_shares")
	case shares > 1 && threshold == 1:
		return errors.New("secret_threshold: must be greater than one for multiple shares")
	}
	return nil
}

func split(random io.Reader, secret []byte, shares, threshold int) ([][]byte, error) {
	if err := CheckShares(shares, threshold); err != nil {
		return nil, err
	}
	if len(secret) == 0 {
		return nil, errors.New("the secret is empty")
	}
	points, err := distinct(random, shares)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, shares)
	for i := range out {
		out[i] = append(make([]byte, len(secret), len(secret)+1), points[i])
	}
	polynomial := make([]byte, threshold)
	defer clear(polynomial)
	for at, b := range secret {
		if _, err := io.ReadFull(random, polynomial[1:]); err != nil {
			return nil, fmt.Errorf("no randomness: %w", err)
		}
		polynomial[0] = b
		for i := range out {
			out[i][at] = evaluate(polynomial, points[i])
		}
	}
	return out, nil
}

// distinct draws n different x coordinates, none of them 0.
func distinct(random io.Reader, n int) ([]byte, error) {
	all := make([]byte, MaxShares)
	for i := range all {
		all[i] = byte(i + 1)
	}
	var draw [1]byte
	for i := 0; i < n; {
		if _, err := io.ReadFull(random, draw[:]); err != nil {
			return nil, fmt.Errorf("no randomness: %w", err)
		}
		left := MaxShares - i
		if int(draw[0]) >= 256/left*left { // the rest of the range would make some more likely
			continue
		}
		j := i + int(draw[0])%left
		all[i], all[j] = all[j], all[i]
		i++
	}
	return all[:n], nil
}

// Combine gives back the secret that shares were made of, provided that they
// are enough and of one splitting; it returns other bytes otherwise. Errors are about their form.
func Combine(shares [][]byte) ([]byte, error) {
	if len(shares) == 0 {
		return nil, errors.New("no shares")
	}
	size := len(shares[0]) - 1
	var seen [256]bool
	for _, s := range shares {
		switch {
		case len(s) < 2:
			return nil, errors.New("a share has less than two bytes")
		case len(s)-1 != size:
			return nil, errors.New("shares have different lengths")
		case s[size] == 0:
			return nil, errors.New("a share has the point 0, which no splitting gives out")
		case seen[s[size]]:
			return nil, errors.New("a share was given twice")
		}
		seen[s[size]] = true
	}
	secret := make([]byte, size)
	for i, s := range shares {
		weight := byte(1) // Lagrange's: the product of xj / (xj - xi) for all others
		for j, other := range shares {
			if i != j {
				weight = multiply(weight, multiply(other[size], inverse(other[size]^s[size])))
			}
		}
		for at := range secret {
			secret[at] ^= multiply(weight, s[at])
		}
	}
	return secret, nil
}

// evaluate is the polynomial's value at x, by Horner's rule.
func evaluate(polynomial []byte, x byte) byte {
	value := byte(0)
	for i := len(polynomial) - 1; i >= 0; i-- {
		value = multiply(value, x) ^ polynomial[i]
	}
	return value
}

// multiply is the field's product, in the same time for all arguments.
func multiply(a, b byte) byte {
	product := byte(0)
	for range 8 {
		product ^= a & -(b & 1)
		a = a<<1 ^ 0x1b&-(a>>7)
		b >>= 1
	}
	return product
}

// inverse is a to the power of 254, which is 1/a where there is one, and 0 for 0.
func inverse(a byte) byte {
	power := byte(1)
	square := multiply(a, a)
	for range 7 { // 254 = 2 + 4 + ... + 128
		power = multiply(power, square)
		square = multiply(square, square)
	}
	return power
}
