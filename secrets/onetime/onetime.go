// Package onetime makes and checks one-time passwords by time (RFC 6238 over RFC 4226).
//
// A Key has no state: which steps of time have had their code taken is stored by who checks codes, and is given back
// with the next one. So a code is good once, after a failover too.
package onetime

import (
	"bytes"
	"crypto/subtle"
	"encoding/base64"
	"image/png"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"
	"github.com/pquerna/otp/totp"
)

// The bounds of what callers choose. They hold the work of a code and of a picture to what is of use.
const (
	MaxKeyBytes = 1024
	MaxEdge     = 4096 // pixels of a picture's edge
	MaxPeriod   = 24 * time.Hour
)

var algorithms = map[string]otp.Algorithm{"SHA1": otp.AlgorithmSHA1, "SHA256": otp.AlgorithmSHA256,
	"SHA512": otp.AlgorithmSHA512}

// Key is a secret that two sides have, and how they make codes of it. It is stored as it is.
type Key struct {
	Issuer    string `json:"issuer,omitempty"`
	Account   string `json:"account_name,omitempty"`
	Secret    string `json:"secret"` // base32, without padding
	Period    int    `json:"period"` // seconds
	Algorithm string `json:"algorithm"`
	Digits    int    `json:"digits"`
	Skew      int    `json:"skew"` // steps to either side whose codes are good too
}

func invalid(text string) error { return errkind.New(errkind.Invalid, text) }

// Check refuses, as Invalid, what no authenticator app makes codes by. The secret is not looked at.
func (k *Key) Check() error {
	_, known := algorithms[k.Algorithm]
	switch {
	case !known:
		return invalid("the algorithm value is not valid: SHA1, SHA256 or SHA512")
	case k.Digits != 6 && k.Digits != 8:
		return invalid("the digits value can only be 6 or 8")
	case k.Period <= 0:
		return invalid("the period value must be greater than zero")
	case time.Duration(k.Period)*time.Second > MaxPeriod:
		return invalid("the period value must be at most 24h")
	case k.Skew != 0 && k.Skew != 1:
		return invalid("the skew value can only be 0 or 1")
	}
	return nil
}

// CheckSizes refuses a secret, or a picture of it, that is too large to be of use.
func CheckSizes(keyBytes, edge int) error {
	switch {
	case keyBytes <= 0 || keyBytes > MaxKeyBytes:
		return invalid("the key_size value must be greater than zero and at most 1024")
	case edge < 0 || edge > MaxEdge:
		return invalid("the qr_size value must be greater than or equal to zero and at most 4096")
	}
	return nil
}

// Generate draws the key's secret. It gives what an authenticator app is told: url, of the scheme otpauth, and the same
// as a picture, PNG in base64; "" where edge, in pixels, is 0.
func (k *Key) Generate(keyBytes, edge int) (url, picture string, err error) {
	made, err := totp.Generate(totp.GenerateOpts{Issuer: k.Issuer, AccountName: k.Account, Period: uint(k.Period),
		Digits: otp.Digits(k.Digits), Algorithm: algorithms[k.Algorithm], SecretSize: uint(keyBytes)})
	if err != nil {
		return "", "", errkind.E(errkind.Internal, "make a key", err)
	}
	k.Secret = made.Secret()
	if edge > 0 {
		drawn, err := made.Image(edge, edge)
		if err != nil {
			return "", "", invalid("the qr_size value is too small for the key: " + err.Error())
		}
		var text bytes.Buffer
		if err := png.Encode(&text, drawn); err != nil {
			return "", "", err
		}
		picture = base64.StdEncoding.EncodeToString(text.Bytes())
	}
	return made.URL(), picture, nil
}

// Step is the step of time that a moment is in.
func (k *Key) Step(at time.Time) uint64 { return uint64(max(at.Unix(), 0)) / uint64(k.Period) }

// Code is the code of a step.
func (k *Key) Code(step uint64) (string, error) {
	return hotp.GenerateCodeCustom(k.Secret, step, hotp.ValidateOpts{Digits: otp.Digits(k.Digits),
		Algorithm: algorithms[k.Algorithm]})
}

// Taken is what became of a code.
type Taken int

// What may become of a code.
const (
	Wrong Taken = iota
	Good
	Again // it was good, and was taken before
)

// Take judges a code. used are the steps whose codes were taken; after are those to store where the code is Good.
// It takes the same time whichever step the code is of.
func (k *Key) Take(code string, used []uint64, at time.Time) (got Taken, after []uint64, err error) {
	now := k.Step(at)
	step := uint64(0)
	for s := now - min(now, uint64(k.Skew)); s <= now+uint64(k.Skew); s++ {
		want, err := k.Code(s)
		if err != nil {
			return Wrong, nil, errkind.E(errkind.Internal, "make a code", err)
		}
		if subtle.ConstantTimeCompare([]byte(want), []byte(code)) == 1 {
			step, got = s, Good
		}
	}
	if got == Wrong {
		return Wrong, nil, nil
	}
	if slices.Contains(used, step) {
		return Again, nil, nil
	}
	for _, s := range used {
		if s+2*uint64(k.Skew)+1 >= now { // its code may come again
			after = append(after, s)
		}
	}
	return Good, append(after, step), nil
}
