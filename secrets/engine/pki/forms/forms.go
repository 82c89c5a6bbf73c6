// Package forms has the forms in which keys, certificates and the names in them come and go: PEM and DER, serial
// numbers, alternative names, usages, and what a request says of them. It is pure, but for the keys' randomness.
package forms

import "corbel.dev/corbel/kit/errkind"

// Refused is the error of a request that asks for what cannot be.
func Refused(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}
