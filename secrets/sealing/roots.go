package sealing

import (
	"context"
	"crypto/subtle"
	"encoding/base64"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/token"
)

// rootAttempt is a root token that is being made with shares.
type rootAttempt struct {
	nonce string
	otp   string
	lock  shareKeys // of one key, in the place of an OTP
	given gathering
}

// Roots makes root tokens with shares, one at a time. The seal's lock guards it; an attempt ends with the term.
type Roots struct {
	s       *Sealing
	rooting *rootAttempt
}

// RootStatus is what may be known of it.
type RootStatus struct {
	Started   bool
	Nonce     string
	Progress  int
	Required  int
	OTPLength int
	OTP       string // of the start that drew it
	Complete  bool
	// Fingerprint is that of the PGP key which stands in the OTP's place.
	Fingerprint string
	// Encoded is the token, XORed with the OTP, in base64 without padding; or a message for the PGP key, in base64.
	Encoded string
}

// otpLength is that of a root token's id, which it covers byte by byte.
var otpLength = len(token.NewID())

// ErrNoRootGeneration says that none is under way.
var ErrNoRootGeneration = errkind.New(errkind.Invalid, "no root generation in progress")

// GenerateRoot tells of the attempt that is under way.
func (o *Roots) GenerateRoot(ctx context.Context) (RootStatus, error) {
	defer o.s.lock()()
	return o.rootStatus(ctx)
}

func (o *Roots) rootStatus(ctx context.Context) (st RootStatus, err error) {
	if !o.s.Active() {
		return st, o.s.gate.Idle()
	}
	seal, err := o.s.sealStatusLocked(ctx)
	if err != nil {
		return st, err
	}
	st.Required, st.OTPLength = seal.Config.Threshold, otpLength
	if a := o.rooting; a != nil {
		st.Started, st.Nonce, st.Progress = true, a.nonce, len(a.given.shares)
		if prints := a.lock.fingerprints(); len(prints) > 0 {
			st.Fingerprint = prints[0]
		}
	}
	return st, nil
}

// StartGenerateRoot begins an attempt. The token will be covered with the OTP ("" draws one), or encrypted for the
// PGP key.
func (o *Roots) StartGenerateRoot(ctx context.Context, otp, pgpKey string) (st RootStatus, err error) {
	defer o.s.lock()()
	if st, err = o.rootStatus(ctx); err != nil {
		return st, err
	}
	if st.Started {
		return st, errkind.New(errkind.Invalid, "root generation already in progress")
	}
	if pgpKey != "" {
		if otp != "" {
			return st, errkind.New(errkind.Invalid, "otp: cannot be given beside pgp_key")
		}
		lock, err := parseShareKeys("pgp_key", []string{pgpKey}, 1)
		if err != nil {
			return st, err
		}
		o.rooting = &rootAttempt{nonce: uuid.NewString(), lock: lock}
		return o.rootStatus(ctx)
	}
	drawn := otp == ""
	if drawn {
		otp = NewOTP()
	}
	if len(otp) != otpLength {
		return st, errkind.Errorf(errkind.Invalid, "otp: must have %d characters", otpLength)
	}
	o.rooting = &rootAttempt{nonce: uuid.NewString(), otp: otp}
	st, err = o.rootStatus(ctx)
	if drawn {
		st.OTP = otp
	}
	return st, err
}

// NewOTP draws a one-time password as long as a token's id.
func NewOTP() string {
	return base64.RawURLEncoding.EncodeToString(random(otpLength))[:otpLength]
}

// CancelGenerateRoot forgets the attempt.
func (o *Roots) CancelGenerateRoot() error {
	defer o.s.lock()()
	if !o.s.Active() {
		return o.s.gate.Idle()
	}
	o.forget()
	return nil
}

func (o *Roots) forget() {
	if o.rooting != nil {
		o.rooting.given.reset()
		o.rooting = nil
	}
}

// UpdateGenerateRoot takes a share. With enough of them a root token is made.
func (o *Roots) UpdateGenerateRoot(ctx context.Context, share []byte, nonce string) (st RootStatus, err error) {
	defer o.s.lock()()
	if st, err = o.rootStatus(ctx); err != nil {
		return st, err
	}
	a := o.rooting
	switch {
	case a == nil:
		return st, ErrNoRootGeneration
	case nonce != a.nonce:
		return st, errkind.Errorf(errkind.Invalid, "incorrect nonce supplied; nonce for this root generation operation is %q",
			a.nonce)
	}
	key, err := a.given.add(share, st.Required)
	if err != nil {
		return st, err
	}
	if key == nil {
		return o.rootStatus(ctx)
	}
	defer clear(key)
	if err := o.s.checkKey(ctx, key); err != nil {
		return st, err
	}
	id := token.NewID()
	encoded, err := a.encode(id) // before the token is there: what cannot be given out must not hold
	if err != nil {
		return st, err
	}
	if err := o.makeRoot(ctx, id); err != nil {
		return st, err
	}
	o.forget()
	return RootStatus{Started: true, Nonce: nonce, Progress: st.Required, Required: st.Required, OTPLength: otpLength,
		Complete:    true,
		Fingerprint: st.Fingerprint, Encoded: encoded}, nil
}

// encode is a token's id as whoever began the attempt can read it.
func (a *rootAttempt) encode(id string) (string, error) {
	if len(a.lock) > 0 {
		message, err := a.lock[0].Encrypt([]byte(id))
		return base64.StdEncoding.EncodeToString(message), err
	}
	out := make([]byte, len(id))
	subtle.XORBytes(out, []byte(id), []byte(a.otp))
	return base64.RawStdEncoding.EncodeToString(out), nil
}

// makeRoot stores a new root token.
func (o *Roots) makeRoot(ctx context.Context, id string) error {
	st := o.s.gate.Load()
	if st == nil {
		return o.s.gate.Idle()
	}
	root := &token.Token{Origin: token.Origin{Path: "auth/token/root"}, DisplayName: "root",
		Policies: []string{policy.RootName}}
	root.Begin(o.s.cfg.Now(), 0, token.Limits{})
	return o.s.records.Commit(ctx, st.Book.Make(id, root))
}
