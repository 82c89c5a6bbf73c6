package mount

import (
	"cmp"
	"time"
)

// Lockout says when an alias is locked out. The zero value of a field is one that nobody set: Over fills it in.
type Lockout struct {
	After int           `json:"threshold,omitempty"`     // failures
	For   time.Duration `json:"duration,omitempty"`      // since the last of them
	Reset time.Duration `json:"counter_reset,omitempty"` // failures before a time without any count no more
	Off   *bool         `json:"disable,omitempty"`       // nobody is locked out
}

// DefaultLockout holds where nobody says otherwise.
func DefaultLockout() Lockout {
	return Lockout{After: 5, For: 15 * time.Minute, Reset: 15 * time.Minute}
}

// Over gives the rules with what they do not set taken from below.
func (r Lockout) Over(below Lockout) Lockout {
	r.After, r.For, r.Reset = cmp.Or(r.After, below.After), cmp.Or(r.For, below.For), cmp.Or(r.Reset, below.Reset)
	if r.Off == nil {
		r.Off = below.Off
	}
	return r
}

// Disabled reports whether nobody is locked out.
func (r *Lockout) Disabled() bool { return r.Off != nil && *r.Off }
