// Package opaque holds values that must never be printed: tokens, keys, passwords.
//
// A Secret prints, formats and marshals as "hidden" whatever the verb. Equal
// compares in constant time. Reveal is the only way out and is easy to grep for.
package opaque

import (
	"crypto/subtle"
	"fmt"
)

// Hidden is what a Secret prints as.
const Hidden = "hidden"

// Secret is a string that does not print itself. The zero value is the empty secret.
type Secret struct{ value string }

// New wraps a value.
func New(value string) Secret { return Secret{value} }

// Reveal returns the value; call it only where the value leaves for its purpose.
func (s Secret) Reveal() string { return s.value }

// Empty reports whether there is no value.
func (s Secret) Empty() bool { return s.value == "" }

// Equal compares in time that depends on the length alone.
func (s Secret) Equal(other string) bool {
	return subtle.ConstantTimeCompare([]byte(s.value), []byte(other)) == 1
}

// String implements fmt.Stringer.
func (Secret) String() string { return Hidden }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return Hidden }

// Format implements fmt.Formatter for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(Hidden)) }

// MarshalText implements encoding.TextMarshaler, and so JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(Hidden), nil }
